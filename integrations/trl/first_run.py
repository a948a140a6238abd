"""Trains a tiny language model with GRPO and adaptive() on a CPU, in a minute; `budgetalloc demo` compares policies."""

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from budgetalloc.cli.testbed import skills  # 26 tasks on strings of digits, and a model of 340 k parameters
from budgetalloc.cli.testbed.heldout import evaluate
from budgetalloc.trl import AdaptiveGRPOCallback

STEPS, ROLLOUTS = 60, 256  # rollouts of each step
torch.set_num_threads(1)  # for so small a model more threads are slower
tokenizer = AutoTokenizer.from_pretrained(skills.WEIGHTS)
trainer = GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(skills.WEIGHTS),
    processing_class=tokenizer,
    reward_funcs=skills.make_reward(),  # 1 if right, else 0; for two of the tasks a coin toss
    train_dataset=Dataset.from_list(skills.pool()),  # 2,080 prompts; the column prompt_id names them
    args=GRPOConfig(
        output_dir="runs/first_run",
        max_steps=STEPS,
        per_device_train_batch_size=ROLLOUTS,
        num_generations=8,  # the group size of plain GRPO; the callback decides instead
        max_completion_length=5,
        learning_rate=3e-4,
        lr_scheduler_type="constant",
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
    ),
)
trainer.add_callback(AdaptiveGRPOCallback(trainer))  # the only line that differs from plain GRPO
before = evaluate(trainer.model, tokenizer, skills.held_out()).expected
trainer.train()
after = evaluate(trainer.model, tokenizer, skills.held_out()).expected
print(f"Success on held-out prompts: {before:.3f} before, {after:.3f} after {STEPS * ROLLOUTS:,} rollouts.")
