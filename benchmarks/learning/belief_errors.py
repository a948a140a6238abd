"""The error of beliefs against the exact success rates of a training run: first visits, returning prompts, lag.

    python benchmarks/learning/belief_errors.py --mix u_shape --mix many_wrong [--seed 100]

A run of `sampled(groups=2)` is trained once for each mix. The exact rate of every prompt before each step is kept in
`recorded/`, which is not in the repository. Then every estimator goes through these rates: at each step 256 rollouts
are drawn as `sampled` draws single ones, by the estimator's own beliefs, and their outcomes by the exact rates.
Learning does not react to the draws. Printed are, over the rollouts:

- first visits, returning: the mean squared error of the belief before the step against the exact rate;
- lag: the exact rate less the belief, over returning prompts whose rate has risen by 0.2 in the last 20 steps.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import budgetalloc as ba
from budgetalloc import policies
from budgetalloc.beliefs.estimator import Estimator

RECORDED = Path(__file__).with_name("recorded")
RATES = {"many_wrong": 4.5e-4, "hard_wrong": 4.5e-4, "growing": 2e-4}  # those of `sampled`; of other mixes 3e-4
ROLLOUTS, BACK, ROSE = 256, 20, 0.2
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """The exact success rates of the prompts before each step, shape (steps, P), and the prompts' texts."""

    rate_TP: Floats
    texts: list[str]


def record(mix: str, seed: int, steps: int = 150) -> World:
    """The rates of a training run of `sampled(groups=2)`, read from `recorded/` if it was trained before."""
    path = RECORDED / f"{mix}-{seed}-{steps}.npz"
    if path.exists():
        with np.load(path) as saved:
            return World(saved["rate_TP"], saved["texts"].tolist())
    from mixes import MIXES
    from oracle import Exact
    from train import train
    from transformers import TrainerCallback

    from budgetalloc.trl import AdaptiveGRPOCallback

    task, rates = MIXES[mix].task(seed), []
    rows = task["rows"]
    ids = [int(row["prompt_id"]) for row in rows]

    class Record(TrainerCallback):  # type: ignore[misc]
        def __init__(self, exact: Exact) -> None:
            self.exact = exact

        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            known = self.exact.rates(ids)
            rates.append([known[x] for x in ids])

    def attach(trainer: Any) -> None:
        trainer.add_callback(AdaptiveGRPOCallback(trainer, policies.sampled(groups=2, seed=seed)))
        trainer.add_callback(Record(Exact(trainer, MIXES[mix], rows, seed)))

    train(
        attach,
        steps=steps,
        max_rollouts=steps * ROLLOUTS,
        eval_every=steps,
        prompts=ROLLOUTS // 8,
        generations=8,
        learning_rate=RATES.get(mix, 3e-4),
        seed=seed,
        **task,
        threads=1,
        progress=False,
    )
    world = World(np.array(rates), [row["prompt"] for row in rows])
    RECORDED.mkdir(exist_ok=True)
    np.savez_compressed(path, rate_TP=world.rate_TP, texts=np.array(world.texts))
    return world


def estimators(world: World) -> dict[str, Callable[[], Estimator]]:
    """The rows of the table: each estimator's name, and how it is made."""
    text = ba.Features.of_texts(list(range(len(world.texts))), world.texts)
    return {
        "sampled": lambda: ba.BetaEstimator(prior=(0.3, 0.3), idle=0.98),
        "VADE's": lambda: ba.BetaEstimator(discount=0.2, idle=0.999),
        "tracking": ba.TrackingEstimator,
        "tracking, text": lambda: ba.TrackingEstimator(text),
    }


def errors(estimator: Estimator, world: World, seed: int = 0) -> tuple[float, float, float]:
    """The mean squared errors on first visits and on returning prompts, and the lag; NaN where there are none."""
    policy = ba.policies.sampled(seed=seed, estimator=estimator)
    ids, rng = list(range(len(world.texts))), np.random.default_rng(seed)
    squares: dict[bool, list[Floats]] = {True: [], False: []}
    behind: list[Floats] = []
    for t, rate_P in enumerate(world.rate_TP):
        belief_P, cold_P = policy.belief(ids).mean, policy.cold(ids)
        counts_P = policy.allocate(ids, ba.Budget(ROLLOUTS, floor=0, min_group=1))
        drawn_R = np.repeat(ids, counts_P)
        for first in (True, False):
            at = drawn_R[cold_P[drawn_R] == first]
            squares[first].append((rate_P[at] - belief_P[at]) ** 2)
        rising_P = ~cold_P & (rate_P - world.rate_TP[max(t - BACK, 0)] >= ROSE)
        at = drawn_R[rising_P[drawn_R]]
        behind.append(rate_P[at] - belief_P[at])
        policy.observe(drawn_R.tolist(), (rng.random(len(drawn_R)) < rate_P[drawn_R]).astype(float))
    found = [np.concatenate(part) for part in (squares[True], squares[False], behind)]
    first_visits, returning, lag = (float(part.mean()) if len(part) else float("nan") for part in found)
    return first_visits, returning, lag


def lines(worlds: dict[str, World]) -> Iterator[str]:
    """The lines of the table."""
    yield "| mix | estimator | first visits | returning | lag |"
    yield "|---|---|---|---|---|"
    for mix, world in worlds.items():
        for name, make in estimators(world).items():
            yield f"| `{mix}` | {name} | " + " | ".join(f"{x:.3f}" for x in errors(make(), world)) + " |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mix", action="append", required=True, help="of pools of at most 4,096 prompts")
    parser.add_argument("--seed", type=int, default=100)
    args = parser.parse_args(arguments)
    print("\n".join(lines({mix: record(mix, args.seed) for mix in args.mix})))


if __name__ == "__main__":
    main()
