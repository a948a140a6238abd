"""Run by test_checkpoint.py as its own process: trains with checkpoints, and may kill itself as a machine would."""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from conftest import low_digit, make_tokenizer, rows
from transformers import LlamaForCausalLM
from trl import GRPOConfig, GRPOTrainer

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback


def main() -> None:
    folder, model, name, die_at = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    resume, config = sys.argv[5] == "resume", json.loads(sys.argv[6])
    torch.set_num_threads(1)

    def reward(completions, trainer_state, **_):
        if trainer_state.global_step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return low_digit(completions)

    settings = {
        "output_dir": str(folder / "run"),
        "per_device_train_batch_size": 16,
        "num_generations": 4,
        "max_completion_length": 4,
        "learning_rate": 1e-2,
        "max_steps": 8,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": 2,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
    }
    trainer = GRPOTrainer(
        LlamaForCausalLM.from_pretrained(model),
        reward,
        GRPOConfig(**{**settings, **config}),
        train_dataset=rows(40),
        processing_class=make_tokenizer(),
    )
    policy = {"adaptive": ba.adaptive, "knapsack": ba.knapsack, "uniform": ba.uniform}[name](seed=3)
    candidates = {"adaptive": "all", "knapsack": 2, "uniform": 1}[name]
    trainer.add_callback(AdaptiveGRPOCallback(trainer, policy, candidates=candidates, ledger=folder / "ledger.jsonl"))
    trainer.train(resume_from_checkpoint=True if resume else None)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    ba.save_state(folder / "final.npz", policy.state_dict(), {"losses": losses})


if __name__ == "__main__":
    main()
