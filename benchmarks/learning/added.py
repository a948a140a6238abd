"""Runs a policy with something added to TRL's trainer; used by `temperature.py`, `rehearsal.py` and `altered.py`.

The runs are those of `run.py` in all else: same mixes, settings, evaluations and lines of results.
"""

import argparse
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import run  # in this folder
import train
from mixes import MIXES

Add = Callable[[Any, int], None]
"""Changes a trainer before the policy is attached to it; takes the trainer and the seed."""
RATE, STEPS = 3e-4, 150


def run_with(add: Add, arm: str, mix: str, rate: float, seed: int, steps: int = STEPS) -> dict[str, Any]:
    """A run of the policy that the arm's name begins with, with this added, as a line of results."""
    plain = train.train

    def train_with(attach: Callable[[Any], object], **settings: Any) -> train.Run:
        def attach_both(trainer: Any) -> None:
            add(trainer, seed)
            attach(trainer)

        return plain(attach_both, **settings)

    with patch.object(train, "train", train_with):
        return run.run((arm.split()[0], mix, rate, seed, steps)) | {"policy": arm}


def main(about: str | None, arms: Mapping[str, Add], argv: Sequence[str] | None = None) -> None:
    """Makes the runs that are not in the results file yet."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", action="append", choices=arms, help="default: all")
    parser.add_argument("--mix", action="append", choices=MIXES, help="default: u_shape and hard_once")
    parser.add_argument("--seed", type=int, action="append", help="default: 100 and 101")
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    done = {run.key(row) for row in run.read(args.out)}
    for mix, seed, arm in itertools.product(
        args.mix or ("u_shape", "hard_once"), args.seed or (100, 101), args.arm or arms
    ):
        if (arm, mix, args.rate, seed, args.steps) not in done:
            line = run_with(arms[arm], arm, mix, args.rate, seed, args.steps)
            with args.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{arm} on {mix}, seed {seed}: {line['expected'][-1]:.3f}, pass@64 {line['pass64'][-1]:.3f}")
