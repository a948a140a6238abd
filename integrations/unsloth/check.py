"""Checks on a GPU, in about five minutes, that Unsloth trains on what the policy decided.

    python integrations/unsloth/check.py                        # Unsloth, with a model from the hub
    python integrations/unsloth/check.py --trl --model FOLDER   # the same checks of TRL alone, on a CPU too

It prints RIGHT or WRONG for each policy. Please report what it printed, with the versions: nobody has run Unsloth yet.
"""

import argparse

import numpy as np

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="unsloth/SmolLM2-135M-Instruct")
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--trl", action="store_true", help="without Unsloth")
args = parser.parse_args()

if args.trl:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(args.model), AutoTokenizer.from_pretrained(args.model)
    device = {} if torch.cuda.is_available() else {"use_cpu": True, "bf16": False}
else:
    from unsloth import FastLanguageModel  # before budgetalloc.trl: it replaces trl.GRPOTrainer

    model, tokenizer = FastLanguageModel.from_pretrained(args.model, max_seq_length=256, load_in_4bit=False)
    model, device = FastLanguageModel.get_peft_model(model, r=8), {}

from datasets import Dataset  # noqa: E402
from transformers import TrainerCallback  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

import budgetalloc as ba  # noqa: E402
from budgetalloc.trl import AdaptiveGRPOCallback  # noqa: E402


def reward(completions: list[str], **_: object) -> list[float]:
    """Whether the completion has an even number of characters: half of all, whatever the model."""
    return [float(len(text) % 2 == 0) for text in completions]


class Compare(TrainerCallback):
    """Compares the advantages that reach the loss with those of the policy's rollouts, step by step."""

    def __init__(self, trainer: GRPOTrainer, callback: AdaptiveGRPOCallback) -> None:
        self.callback, self.trained, self.wrong = callback, [], 0
        loss = trainer.compute_loss

        def compute_loss(model: object, inputs: dict, *more: object, **named: object) -> object:
            self.trained += inputs["advantages"].tolist()
            return loss(model, inputs, *more, **named)

        trainer.compute_loss = compute_loss

    def on_step_end(self, *_: object, **__: object) -> None:
        batch = self.callback.batch
        wanted = self.callback.options.advantages(batch).values_R
        same = len(wanted) == len(self.trained) and np.allclose(sorted(wanted), sorted(self.trained), atol=1e-4)
        self.wrong += not same
        sizes = np.bincount(batch.counts_G)[1:].tolist()
        print(f"groups of 1, 2, ... rollouts: {sizes}, advantages {'equal' if same else 'DIFFER'}")
        self.trained = []


for policy in (ba.uniform(), ba.knapsack(), ba.adaptive()):
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=reward,
        train_dataset=Dataset.from_list([{"prompt": f"{n} + {n} =", "prompt_id": n} for n in range(64)]),
        args=GRPOConfig(
            output_dir="runs/unsloth_check",
            max_steps=args.steps,
            per_device_train_batch_size=16,
            num_generations=4,
            max_completion_length=16,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            **device,
        ),
    )
    callback = AdaptiveGRPOCallback(trainer, policy, baseline=policy.needs.baseline or "group")
    trainer.add_callback(callback)
    compare = Compare(trainer, callback)
    trainer.add_callback(compare)
    trainer.train()
    print(f"{policy}: {'RIGHT' if not compare.wrong else 'WRONG'}")
