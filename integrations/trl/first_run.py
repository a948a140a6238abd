"""Trains a tiny language model with GRPO on a CPU, twice: with equal groups, and with the policy adaptive()."""

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

import budgetalloc as ba
from budgetalloc.cli.testbed import skills  # 26 tasks on strings of digits, and a model of 340 k parameters
from budgetalloc.cli.testbed.heldout import evaluate
from budgetalloc.trl import AdaptiveGRPOCallback

STEPS, ROLLOUTS = 150, 256  # rollouts of each step
torch.set_num_threads(1)  # for so small a model more threads are slower


def train(policy: ba.Policy) -> tuple[float, float]:
    """The success rate on held-out prompts before and after a run with this policy."""
    tokenizer = AutoTokenizer.from_pretrained(skills.WEIGHTS)
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(skills.WEIGHTS),
        processing_class=tokenizer,
        reward_funcs=skills.make_reward(seed=0),  # 1 if right, else 0; for two tasks a coin toss
        train_dataset=Dataset.from_list(skills.pool(seed=0)),  # 2,080 prompts; the column prompt_id names them
        args=GRPOConfig(
            output_dir="runs/first_run",
            max_steps=STEPS,
            per_device_train_batch_size=ROLLOUTS,
            num_generations=8,  # the group size; under a policy, the average
            max_completion_length=5,
            learning_rate=3e-4,
            lr_scheduler_type="constant",
            seed=0,
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
        ),
    )
    trainer.add_callback(AdaptiveGRPOCallback(trainer, policy))
    before = evaluate(trainer.model, tokenizer, skills.held_out()).expected
    trainer.train()
    return before, evaluate(trainer.model, tokenizer, skills.held_out()).expected


runs = {"uniform": train(ba.uniform(seed=0)), "adaptive": train(ba.adaptive(seed=0))}
print(f"Held-out success, {STEPS * ROLLOUTS:,} rollouts each:\n{'policy':<10}{'before':>8}{'after':>8}")
for name, (before, after) in runs.items():
    print(f"{name:<10}{before:>8.3f}{after:>8.3f}")
