"""Teaches a model the short format once, by supervised fine-tuning; every run with this start begins there.

    python benchmarks/scale/start.py runs/scale/model runs/scale/start --steps 200

Each example is a question, a newline, an answer and the end of text. Answers are right with `--right` probability,
else the answer to another question of the same kind, so that the format is learned and the skill only in part.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lighter import cut_vocabulary  # beside this file
from pieces import SAMPLES, right_of
from questions import right_answer, short
from transformers import AutoModelForCausalLM, AutoTokenizer

SEED = 2_000_000  # questions that no run and no measurement begins with
TOKENS = 6  # of an answer and its end
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def tokens(tokenizer: Any, prompts: Sequence[str], said: Sequence[str]) -> dict[str, Any]:
    """A batch, padded on the right: prompts with their answers and the end of text; labels for the latter two only."""
    texts = [f"{prompt}{answer}{tokenizer.eos_token}" for prompt, answer in zip(prompts, said, strict=True)]
    rows = tokenizer(texts, return_tensors="pt", padding=True)
    labels = rows["input_ids"].masked_fill(rows["attention_mask"] == 0, -100)
    for at, prompt in enumerate(prompts):
        labels[at, : len(tokenizer(prompt)["input_ids"])] = -100
    return {name: part.to(DEVICE) for name, part in {**rows, "labels": labels}.items()}


def show(model: Any, tokenizer: Any, rows: int = 132) -> None:
    """Prints the success of each kind of question, and of all."""
    tokenizer.padding_side = "left"
    asked = short.asked(short.held_out(rows))
    rights = right_of(model, tokenizer, asked, short.reward, TOKENS, 256, "float32")
    for kind in (*short.kinds, "all"):
        counts = [n for row, n in zip(asked, rights, strict=True) if kind in ("all", row["kind"])]
        print(f"    {sum(counts) / (SAMPLES * len(counts)):.3f}  {kind}", flush=True)
    tokenizer.padding_side = "right"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rows", type=int, default=32, help="of a step")
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument(
        "--every",
        type=int,
        default=100,
        help="steps between two tables of the success by kind; the model is written then",
    )
    parser.add_argument("--right", type=float, default=0.5, help="share of right answers")
    args = parser.parse_args(argv)
    torch.manual_seed(SEED)
    tokenizer = AutoTokenizer.from_pretrained(args.model, padding_side="right")
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate, weight_decay=0.0, fused=True)
    tokenizer.save_pretrained(args.out)  # loaders of generation set the side of the padding
    examples = short.rows(args.steps * args.rows, SEED, without=short.held_out(256))
    rng = random.Random(SEED)
    rng.shuffle(examples)
    answers: dict[str, list[int]] = {}
    for row in examples:
        answers.setdefault(row["kind"], []).append(right_answer(row["prompt_id"]))
    for step in range(args.steps):
        part = examples[step * args.rows : (step + 1) * args.rows]
        prompts, said = [], []
        for row in part:
            right = rng.random() < args.right
            said.append(str(right_answer(row["prompt_id"]) if right else rng.choice(answers[row["kind"]])))
            prompts.append(row["prompt"] + short.after)
        rows = tokens(tokenizer, prompts, said)
        labels = rows.pop("labels")[:, 1:]
        # Float32: faster than bfloat16 on a core without AMX. Logits of the answers only: a fifth of all.
        hidden = model.model(**rows).last_hidden_state[:, :-1][labels >= 0]
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden), labels[labels >= 0])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % args.every == 0 or step + 1 == args.steps:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
            show(model, tokenizer)
            model.save_pretrained(args.out)
    print(f"{cut_vocabulary(args.out, [row['prompt'] + short.after for row in examples])} tokens are left")


if __name__ == "__main__":
    main()
