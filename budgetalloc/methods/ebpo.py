"""EBPO: the group's mean, shrunk to the mean of the run."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.methods.table import method
from budgetalloc.policies import Needs, Policy, uniform
from budgetalloc.policies.interface import Outcome


class Moments(NamedTuple):
    """Number, mean, and sum of squared deviations of values (Welford's algorithm)."""

    n: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: FloatArray) -> "Moments":
        """The moments of these values."""
        n = len(values)
        return cls(float(n), float(values.mean()), float(values.var() * n)) if n else cls()

    def plus(self, other: "Moments") -> "Moments":
        """The moments of the values of both."""
        n, away = self.n + other.n, other.mean - self.mean
        if not other.n:
            return self
        squares = self.squares + other.squares + away**2 * self.n * other.n / n
        return Moments(n, self.mean + away * other.n / n, squares)

    @property
    def variance(self) -> float:
        """The variance over n - 1; 0 for fewer than two values."""
        return self.squares / (self.n - 1) if self.n > 1 else 0.0


def _moments(numbers: Mapping[str, float], kind: str) -> Moments:
    return Moments(*(numbers[f"{kind}_{name}"] for name in Moments._fields))


@method("which baseline", "paper's formulas")
def ebpo(*, seed: int = 0) -> Policy:
    """EBPO (arXiv 2602.05165, Algorithm 1): (1 - S) group mean + S run mean, S = (s2 / n) / (s2 / n
    + t2), then whitened.

    Without the paper's order of the prompts by topic, which is half of its gain. s2 is the variance
    of all successes of the run, this step included, t2 that of its group means.

    >>> from budgetalloc import Budget
    >>> step = ebpo().begin(["a", "b"], Budget(rollouts=4))  # S = 1/8 / (1/8 + 1/8)
    >>> step.expected_success(["a", "a", "b", "b"], [0, 0, 0, 1]).round(3)  # half of 1/4 each
    array([0.125, 0.125, 0.375, 0.375])
    """

    def learn(memory: Memory, visit: Visit) -> None:
        n, total = float(visit.scored_V.sum()), float(visit.successes_V.sum())
        mean = total / max(n, 1)
        squares = total - float(visit.graded_V.sum()) - n * mean**2  # u^2 = u - u (1-u)
        seen = Moments(n, mean, max(squares, 0.0))
        for kind, step in (("rewards", seen), ("means", Moments.of(visit.mean_V))):
            updated = _moments(memory.numbers, kind).plus(step)._asdict()
            memory.numbers |= {f"{kind}_{name}": value for name, value in updated.items()}

    def expect(outcome: Outcome) -> FloatArray:
        scored_R, mean_G, n_G = ~np.isnan(outcome.success_R), outcome.mean_G, outcome.scored_G
        rewards = _moments(outcome.numbers, "rewards").plus(Moments.of(outcome.success_R[scored_R]))
        means = _moments(outcome.numbers, "means").plus(Moments.of(mean_G[n_G > 0]))
        noise_G = rewards.variance / np.maximum(n_G, 1)
        total_G = noise_G + means.variance
        share_G = np.where(total_G > 0, noise_G / np.where(total_G > 0, total_G, 1.0), 0.0)
        return np.asarray((1 - share_G) * mean_G + share_G * rewards.mean)[outcome.group_R]

    start = {f"{kind}_{name}": 0.0 for kind in ("rewards", "means") for name in Moments._fields}
    return replace(
        uniform(),
        needs=Needs(baseline="policy", scale="whiten"),
        memory=Memory({}, learn, start),
        expect=expect,
    )
