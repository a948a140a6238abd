"""Do weights between those before and after training have more coverage at the same success? Real GRPO runs.

    python benchmarks/learning/interpolated.py [--policy adaptive] [--mix u_shape] [--seed 100]

After each run the model has weights start + share x (end - start). A row has its success and pass@64 on the held-out
prompts, and the pass@64 that the run itself had when it first reached this success: if the difference is small, a
stopped run keeps as much coverage as averaged weights.
"""

import argparse
import itertools
from typing import Any

import numpy as np
from added import RATE, STEPS, run_with  # in this folder
from mixes import MIXES
from run import RIVALS
from train import Recorder
from transformers import AutoModelForCausalLM

from budgetalloc.cli.testbed.heldout import Success

SHARES = (0.25, 0.5, 0.75, 1.0)


def interpolate(trainer: Any) -> dict[float, Success]:
    """What the held-out prompts show, by the share of the way from the weights before training to the trained ones."""
    model = trainer.model
    recorder = next(x for x in trainer.callback_handler.callbacks if isinstance(x, Recorder))
    start = AutoModelForCausalLM.from_pretrained(model.name_or_path).state_dict()
    end = {name: value.clone() for name, value in model.state_dict().items()}
    found = {}
    for share in SHARES:
        model.load_state_dict({name: start[name] + share * (value - start[name]) for name, value in end.items()})
        found[share] = recorder.measure()
    return found


def coverage_at(expected: float, successes: list[float], coverages: list[float]) -> float:
    """The pass@64 of a run when it first reached this success, between the points of its curve; NaN if it never did.

    >>> coverage_at(0.5, [0.2, 0.4, 0.6, 0.5], [0.9, 0.8, 0.7, 0.6])
    0.75
    """
    at = next((k for k, success in enumerate(successes) if success >= expected), None)
    if at is None:
        return float("nan")
    part = slice(max(at - 1, 0), at + 1)
    return round(float(np.interp(expected, successes[part], coverages[part])), 6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", action="append", choices=RIVALS, help="default: uniform4 and adaptive")
    parser.add_argument("--mix", action="append", choices=MIXES, help="default: u_shape and hard_once")
    parser.add_argument("--seed", type=int, action="append", help="default: 100 and 101")
    parser.add_argument("--steps", type=int, default=STEPS)
    args = parser.parse_args()
    trainers: list[Any] = []
    print(f"{'policy':>10} {'mix':>10} {'seed':>5} {'share':>6} {'success':>8} {'pass@64':>8} {'run':>7} {'more':>7}")
    jobs = itertools.product(args.policy or ("uniform4", "adaptive"), args.mix or ("u_shape", "hard_once"))
    for (policy, mix), seed in itertools.product(jobs, args.seed or (100, 101)):
        line = run_with(lambda trainer, _: trainers.append(trainer), policy, mix, RATE, seed, args.steps)
        for share, found in interpolate(trainers.pop()).items():
            usual = coverage_at(found.expected, line["expected"], line["pass64"])
            each = f"{found.expected:8.3f} {found.pass_at(64):8.3f} {usual:7.3f} {found.pass_at(64) - usual:+7.3f}"
            print(f"{policy:>10} {mix:>10} {seed:5} {share:6.2f} {each}", flush=True)


if __name__ == "__main__":
    main()
