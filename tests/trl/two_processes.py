"""Run by test_two_processes_agree under `accelerate launch`: trains three steps and writes what this process saw."""

import json
import sys
from pathlib import Path

from conftest import fresh_model, low_digit, make_tokenizer, rows
from trl import GRPOConfig, GRPOTrainer

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback


def main() -> None:
    folder, candidates, name = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
    args = GRPOConfig(
        output_dir=str(folder / "run"),
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=4,
        learning_rate=1e-2,
        max_steps=3,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(fresh_model(), low_digit, args, train_dataset=rows(), processing_class=make_tokenizer())
    policy = {
        "uniform": ba.uniform(),
        "knapsack": ba.knapsack(discount=1.0),
        "thompson": ba.thompson(discount=1.0, idle=1.0),
        "adaptive": ba.Policy("undiscounted", ba.adaptive().decide, ba.BetaEstimator(), needs=ba.adaptive().needs),
    }[name]
    trainer.add_callback(AdaptiveGRPOCallback(trainer, policy, candidates=candidates, ledger=folder / "ledger.jsonl"))
    prompts = []
    generate = trainer._generate
    trainer._generate = lambda p: prompts.append(list(p)) or generate(p)
    trainer.train()
    state = policy.state_dict()
    seen = {
        "ids": state["ids"],
        "evidence": state["evidence"].tolist(),
        "rows": [len(p) for p in prompts],
        "prompts": prompts,
    }
    (folder / f"rank{trainer.accelerator.process_index}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
