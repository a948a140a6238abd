"""The skill chains of a public peer, as a world for our policies: every arm at its own best learning rate.

    python benchmarks/peer/skill_chain.py [--chains 3] [--jobs 2]        # some minutes on one core

Written anew from the description of `frontier_rl` (linjiw/curriculum-maxrl on GitHub). Three chains have twelve skills
each, and a skill is a softmax over ten actions, of which one is right. Task l of a chain is solved if its first l
skills act right, and the reward is 1 then. At the start the first task of a chain passes one time in ten, the twelfth
one time in 10^12. A run is 400 steps of 128 rollouts, with exact gradients of the log-probabilities.
"""

import argparse
import itertools
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import softmax

import budgetalloc as ba
from budgetalloc import policies
from budgetalloc.offline.intervals import interval
from budgetalloc.offline.parallel import in_parallel

LEVELS, ACTIONS, STEPS, ROLLOUTS = 12, 10, 400, 128
RATES = [2.0**power for power in range(2, 16)]
TUNING, SEEDS = range(100, 103), range(10)
ALONE: dict[str, Any] = {"min_group": 1, "fallback": False}
ARMS: dict[str, Any] = {
    **{f"groups of {size}": (size, "group") for size in (2, 4, 8, 16)},
    "groups of 16, MaxRL": (16, "maxrl"),
    "`adaptive()`, as it attaches": (lambda seed: ba.adaptive(seed=seed), {"min_group": 1}),
    "`adaptive()`, `fallback=False`": (lambda seed: ba.adaptive(seed=seed), ALONE),
    "`adaptive(rounds=3)`, `fallback=False`": (lambda seed: ba.adaptive(rounds=3, seed=seed), ALONE),
    "`sampled(groups=2)`, `fallback=False`": (lambda seed: policies.sampled(groups=2, seed=seed), ALONE),
}


class Chains:
    """The model: logits of each skill, shape (chains * LEVELS, ACTIONS). Action 0 is right."""

    def __init__(self, chains: int, seed: int) -> None:
        self.logits = np.zeros((chains * LEVELS, ACTIONS))
        self.rng = np.random.default_rng(seed)
        chain_T, self.level_T = np.divmod(np.arange(chains * LEVELS), LEVELS)
        self.first_T = chain_T * LEVELS

    def roll_out(self, tasks_R: Any) -> tuple[Any, Any]:
        """The actions of each rollout, shape (R, LEVELS), and its reward, which ignores skills beyond the task's."""
        skills_RL = self.first_T[tasks_R][:, None] + np.arange(LEVELS)
        edges_RLA = softmax(self.logits, axis=1).cumsum(axis=1)[skills_RL]
        draws_RL = self.rng.random(skills_RL.shape)
        actions_RL = (draws_RL[..., None] > edges_RLA[..., :-1]).sum(axis=2)
        needed_RL = np.arange(LEVELS) <= self.level_T[tasks_R][:, None]
        return actions_RL, ((actions_RL == 0) | ~needed_RL).all(axis=1).astype(float)

    def learn(self, tasks_R: Any, actions_RL: Any, advantages_R: Any, rate: float) -> None:
        """One step along the mean over rollouts of advantage times gradient of the log-probability."""
        gradient, chance = np.zeros_like(self.logits), softmax(self.logits, axis=1)
        for level in range(LEVELS):
            rows = np.flatnonzero(self.level_T[tasks_R] >= level)
            skills, weights = self.first_T[tasks_R[rows]] + level, advantages_R[rows]
            np.add.at(gradient, (skills, actions_RL[rows, level]), weights)
            np.subtract.at(gradient, skills, weights[:, None] * chance[skills])
        self.logits += rate * gradient / len(tasks_R)

    def success(self) -> Any:
        """The exact probability of solving each task, shape (T,)."""
        return softmax(self.logits, axis=1)[:, 0].reshape(-1, LEVELS).cumprod(axis=1).ravel()


def run(chains: int, arm: str, rate: float, seed: int) -> tuple[float, float, float]:
    """Mean success over tasks and steps, success at the end, and pass@16 at the end."""
    made, options = ARMS[arm]
    model, curve, tasks = Chains(chains, seed), [], chains * LEVELS
    session = None if isinstance(made, int) else ba.Session(made(seed), ["reward"], pool=list(range(tasks)), **options)
    for _ in range(STEPS):
        if session is None:  # tasks drawn at random, as the peer does
            tasks_R = np.repeat(model.rng.integers(0, tasks, ROLLOUTS // made), made)
            actions_RL, rewards_R = model.roll_out(tasks_R)
            groups = np.repeat(np.arange(ROLLOUTS // made), made).tolist()
            advantages_R = ba.group_advantages(rewards_R, groups, "group", options)
        else:
            session.begin([], rollouts=ROLLOUTS, group=8)
            parts = []
            while ids := session.request():
                actions_RL, rewards_R = model.roll_out(np.array(ids))
                session.observe(ids, rewards_R, lengths_R=[1] * len(ids))
                parts.append((np.array(ids), actions_RL))
            tasks_R, actions_RL = (np.concatenate(each) for each in zip(*parts, strict=True))
            advantages_R = session.end().advantages_R
        model.learn(tasks_R, actions_RL, advantages_R, rate)
        curve.append(model.success().mean())
    return float(np.mean(curve)), curve[-1], float((1 - (1 - model.success()) ** 16).mean())


def runs(jobs: list[tuple[int, str, float, int]], workers: int) -> list[tuple[float, float, float]]:
    """The figures of these runs, in their order."""
    return list(in_parallel(lambda given, at: run(*given[at]), jobs, len(jobs), workers))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chains", type=int, default=3, help="the peer has 3, and 36 tasks")
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args(argv)
    logging.getLogger("budgetalloc").setLevel(logging.ERROR)  # that the pool is small is the point of some arms
    print("| arm | rate | mean | end | pass@16 | mean minus the best groups' |")
    print("|---|---|---|---|---|---|")
    found: dict[str, tuple[float, Any]] = {}
    for arm in ARMS:
        jobs = [(args.chains, arm, rate, seed) for rate, seed in itertools.product(RATES, TUNING)]
        tuned = np.array([mean for mean, _, _ in runs(jobs, args.jobs)]).reshape(len(RATES), -1).mean(1)
        rate = RATES[int(tuned.argmax())]
        found[arm] = rate, np.array(runs([(args.chains, arm, rate, seed) for seed in SEEDS], args.jobs))
    best = max((of for arm, (_, of) in found.items() if arm.startswith("groups")), key=lambda of: of[:, 0].mean())
    for arm, (rate, of) in found.items():
        apart_S = of[:, 0] - best[:, 0]
        low, high = interval(apart_S)
        edge = " (edge)" if rate in (RATES[0], RATES[-1]) else ""
        figures = " | ".join(f"{x:.3f}" for x in of.mean(0))
        print(f"| {arm} | {rate:g}{edge} | {figures} | {apart_S.mean():+.3f} ({low:.3f} to {high:.3f}) |")


if __name__ == "__main__":
    main()
