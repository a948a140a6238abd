"""Processor seconds of the parts of a step, for each choice of `run.py`: what is worth doing before a long run.

    OMP_NUM_THREADS=1 python benchmarks/scale/speed.py runs/scale/start

A step is a generation and a forward and backward pass over all its completions. Prompts stand alone or in groups of 8.
"""

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lighter import UPPER, freeze_lower, share_prefill  # beside this file
from questions import TASKS
from transformers import AutoModelForCausalLM, AutoTokenizer


def seconds(work: Callable[[], Any], times: int = 2) -> float:
    """The fewest of some runs, after one that is not counted."""
    work()
    spent = []
    for _ in range(times):
        began = time.process_time()  # other work on the machine does not count
        work()
        spent.append(time.process_time() - began)
    return min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rollouts", type=int, default=64, help="of a step")
    parser.add_argument("--tokens", type=int, default=6, help="longest completion")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(args.model, padding_side="left")
    task = TASKS["short"]
    prompts = [row["prompt"] for row in task.asked(task.rows(args.rollouts, 0))]
    print("| precision | layers trained | prompts | generation, s | shared prefill, s | forward and backward, s |")
    print("|---" * 6 + "|")
    for precision, upper in itertools.product((torch.float32, torch.bfloat16), (1.0, UPPER)):
        model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
        freeze_lower(model, upper)
        for group in (1, 8):
            texts = [prompt for prompt in prompts[: len(prompts) // group] for _ in range(group)]
            rows = tokenizer(texts, return_tensors="pt", padding=True)
            options = {"do_sample": True, "min_new_tokens": args.tokens, "max_new_tokens": args.tokens}

            def generate(model: Any = model, rows: Any = rows, options: Any = options) -> Any:
                with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=precision is torch.bfloat16):  # noqa: B023
                    return model.generate(**rows, **options)

            alone = seconds(generate)
            plain = model.generate
            share_prefill(model)
            shared = seconds(generate)
            model.generate = plain
            whole = generate()
            real = torch.cat([rows["attention_mask"], torch.ones(len(texts), args.tokens, dtype=torch.long)], dim=1)

            def learn(model: Any = model, whole: Any = whole, real: Any = real) -> None:
                with torch.autocast("cpu", torch.bfloat16, enabled=precision is torch.bfloat16):  # noqa: B023
                    logits = model(whole, attention_mask=real, logits_to_keep=args.tokens + 1).logits[:, :-1]
                    said = torch.log_softmax(logits.float(), -1).gather(-1, whole[:, -args.tokens :, None])
                said.mean().backward()
                model.zero_grad()

            cells = [str(precision).removeprefix("torch."), "all" if upper == 1 else "upper third"]
            cells += [f"{len(texts) // group} in groups of {group}"]
            print(
                " | ".join(["", *cells, *(f"{s:.1f}" for s in (alone, shared, seconds(learn))), ""]).strip(), flush=True
            )


if __name__ == "__main__":
    main()
