"""EBPO: the group's mean, shrunk to the mean of the run."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.methods.table import method
from budgetalloc.policies import Needs, Policy, View, uniform


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

    def learn(memory: Memory, seen: ByPrompt) -> None:
        n, total = float(seen.n_P.sum()), float(seen.successes_P.sum())
        mean = total / max(n, 1)
        squares = total - float(seen.graded_P.sum()) - n * mean**2  # u^2 = u - u (1-u)
        rewards = Moments(n, mean, max(squares, 0.0))
        for kind, step in (("rewards", rewards), ("means", Moments.of(seen.mean_P))):
            updated = _moments(memory.numbers, kind).plus(step)._asdict()
            memory.numbers |= {f"{kind}_{name}": value for name, value in updated.items()}

    def expect(view: View, seen: ByPrompt) -> FloatArray:
        scored_R, mean_P, n_P = ~np.isnan(seen.success_R), seen.mean_P, seen.n_P
        rewards = _moments(view.numbers, "rewards").plus(Moments.of(seen.success_R[scored_R]))
        means = _moments(view.numbers, "means").plus(Moments.of(mean_P[n_P > 0]))
        noise_P = rewards.variance / np.maximum(n_P, 1)
        total_P = noise_P + means.variance
        share_P = np.where(total_P > 0, noise_P / np.where(total_P > 0, total_P, 1.0), 0.0)
        return np.asarray((1 - share_P) * mean_P + share_P * rewards.mean)[seen.prompt_R]

    start = {f"{kind}_{name}": 0.0 for kind in ("rewards", "means") for name in Moments._fields}
    return replace(
        uniform(),
        needs=Needs(baseline="policy", scale="whiten"),
        memory=Memory({}, learn, start),
        expect=expect,
    )
