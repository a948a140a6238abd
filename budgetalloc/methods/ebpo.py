"""EBPO: the group's mean, shrunk to the mean of the run."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.policies.composition import uniform
from budgetalloc.policies.interface import Needs, Outcome
from budgetalloc.policies.policy import Policy

__all__ = ["Moments", "ebpo", "shrunk"]


class Moments(NamedTuple):
    """Number, mean, and sum of squared deviations of the values so far (Welford's algorithm)."""

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


def shrunk(mean_G: FloatArray, n_G: FloatArray, rewards: Moments, means: Moments) -> FloatArray:
    """EBPO's baseline of each group of mean `mean_G` and size `n_G`, shape (G,).

    (1 - S) mean + S mu with S = (s2 / n) / (s2 / n + t2), where mu and s2 are mean and variance of
    all `rewards` of the run, and t2 is the variance of all its group `means`.
    """
    noise_G = rewards.variance / np.maximum(n_G, 1)
    total_G = noise_G + means.variance
    share_G = np.where(total_G > 0, noise_G / np.where(total_G > 0, total_G, 1.0), 0.0)
    return np.asarray((1 - share_G) * mean_G + share_G * rewards.mean)


def ebpo(*, seed: int = 0) -> Policy:
    """Equal groups, whose baseline is their mean shrunk to the mean of the run (EBPO, arXiv
    2602.05165, Algorithm 1).

    V = (1 - S) mean + S mu with S = (s2 / G) / (s2 / G + t2), where mu and s2 are mean and variance
    of all successes of the run, this step included, and t2 is the variance of its group means
    (`shrunk`). Nothing is discounted. Advantages r - V are centred over the batch and divided by
    its standard deviation, so that groups of equal rewards have a signal too. Like a group's mean,
    the baseline contains the rollout's own reward. The paper's sampling of prompts by topic, half
    of its gain, is not included.

    Args:
        seed: Seeds the ties.

    >>> from budgetalloc import Budget
    >>> policy = ebpo()
    >>> step = policy.begin(["a", "b"], Budget(rollouts=4))
    >>> step.expected_success(["a", "a", "b", "b"], [0, 0, 0, 1]).round(3)  # S = 1/8 / (1/8 + 1/8): half of 1/4 each
    array([0.125, 0.125, 0.375, 0.375])
    """

    def moments(numbers: dict[str, float], kind: str) -> Moments:
        return Moments(*(numbers[f"{kind}_{name}"] for name in Moments._fields))

    def learn(memory: Memory, visit: Visit) -> None:
        n, total, squared = (
            float(x_V.sum()) for x_V in (visit.scored_V, visit.successes_V, visit.graded_V)
        )
        mean = total / max(n, 1)
        seen = Moments(n, mean, max(total - squared - n * mean**2, 0.0))  # u^2 = u - u (1-u)
        for kind, step in (("rewards", seen), ("means", Moments.of(visit.mean_V))):
            updated = moments(memory.numbers, kind).plus(step)
            memory.numbers |= {f"{kind}_{name}": value for name, value in updated._asdict().items()}

    def rescale(memory: Memory, scale: float, shift: float) -> None:
        for kind in ("rewards", "means"):
            if memory.numbers[f"{kind}_n"]:
                memory.numbers[f"{kind}_mean"] = min(
                    max(scale * memory.numbers[f"{kind}_mean"] + shift, 0.0), 1.0
                )
            memory.numbers[f"{kind}_squares"] *= scale**2

    def expect(outcome: Outcome) -> FloatArray:
        numbers, success_R = dict(outcome.numbers), outcome.success_R
        rewards = moments(numbers, "rewards").plus(Moments.of(success_R[~np.isnan(success_R)]))
        means = moments(numbers, "means").plus(Moments.of(outcome.mean_G[outcome.scored_G > 0]))
        return shrunk(outcome.mean_G, outcome.scored_G, rewards, means)[outcome.group_R]

    start = {f"{kind}_{name}": 0.0 for kind in ("rewards", "means") for name in Moments._fields}
    return replace(
        uniform(seed=seed),
        name=f"ebpo(seed={seed})",
        needs=Needs(baseline="policy", scale="whiten"),
        memory=Memory({}, learn, start, rescale=rescale),
        expect=expect,
    )
