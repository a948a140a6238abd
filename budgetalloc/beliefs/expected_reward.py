"""The expected reward of a rollout, in the trainer's units, from its expected success."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL
from budgetalloc.beliefs.state import Stateful
from budgetalloc.budget import IntArray

__all__ = ["Line", "Sums", "reward_line"]

_KEPT = 0.9  # share of the sums kept at a step
# rollouts that earlier steps count for at most in the line, so that it follows a change at once
_PAST = 16.0
_DOUBT = 0.25  # weight of the slope that is expected before any success


@dataclass(frozen=True)
class Sums(Stateful):
    """Sums over rollouts of earlier steps with a reward r and a success s, discounted at each step.

    Args:
        n: Number of rollouts.
        s, r, ss, sr, rr: Sums of s, r, s*s, s*r and r*r.
        graded: Number of rollouts whose success is neither 0 nor 1.
        within, pairs: The sum of squared deviations of s from the mean of its own prompt, and the
            number of rollouts in it (`variance.deviations`). within / pairs is the variance of
            success within a prompt.
        alike: The chance that the part of the reward not explained by success is equal in 8
            rollouts (`variance.share_alike`), summed over rollouts.
        lean: The mean advantage in units of its root mean square (`policies.batch_advantages`),
            summed over rollouts.
    """

    saved = ("n", "s", "r", "ss", "sr", "rr", "graded", "within", "pairs", "alike", "lean")

    n: Any = 0.0
    s: Any = 0.0
    r: Any = 0.0
    ss: Any = 0.0
    sr: Any = 0.0
    rr: Any = 0.0
    graded: Any = 0.0
    within: Any = 0.0
    pairs: Any = 0.0
    alike: Any = 0.0
    lean: Any = 0.0

    @classmethod
    def of(
        cls, success_R: FloatArray, rewards_R: FloatArray, group_R: IntArray, groups: int
    ) -> "Sums":
        """The sums of each group over r and s, shape (groups,). The fields from `within` on are
        0."""
        scored_R = ~(np.isnan(success_R) | np.isnan(rewards_R))
        s, r, group = success_R[scored_R], rewards_R[scored_R], group_R[scored_R]
        graded = (s > EQUAL) & (s < 1 - EQUAL)
        columns = (np.ones(len(s)), s, r, s * s, s * r, r * r, graded)
        return cls(*(np.bincount(group, weights=column, minlength=groups) for column in columns))

    def plus(self, success_R: FloatArray, rewards_R: FloatArray) -> "Sums":
        """The sums after adding the rewards and successes of a step."""
        added = Sums.of(success_R, rewards_R, np.zeros(len(rewards_R), dtype=np.int64), 1)
        return self.with_sums(Sums(*(float(np.sum(x)) for x in vars(added).values())))

    def with_sums(self, added: "Sums") -> "Sums":
        """The sums after adding those of a step."""
        return Sums(
            *(a + b for a, b in zip(vars(self).values(), vars(added).values(), strict=True))
        )

    def faded(self) -> "Sums":
        """The sums, discounted by one step."""
        return Sums(*(_KEPT * x for x in vars(self).values()))

    @property
    def mean_success(self) -> float:
        """The mean of s, in [0, 1]; 1/2 without rollouts."""
        return float(min(max(self.s / self.n, 0.0), 1.0)) if self.n > 0 else 0.5

    @property
    def var_success(self) -> float:
        """The variance of s over all rollouts of all prompts; 0 without rollouts."""
        return max(float(self.ss / self.n - (self.s / self.n) ** 2), 0.0) if self.n > 0 else 0.0

    @classmethod
    def from_state(cls, state: Any) -> "Sums":
        """The sums from the result of `state_dict`. Raises `StateError`."""
        sums = cls()
        sums.load_state_dict(state)
        return sums


@dataclass(frozen=True, eq=False)
class Line:
    """The expected reward of a rollout as a line in its success, and the variance around it.

    Args:
        start_R: The expected reward at success 0, NaN without any evidence, shape (R,).
        slope_R: Its rise from success 0 to success 1, shape (R,).
        around_R: The variance of the reward around the line, shape (R,).
    """

    start_R: FloatArray
    slope_R: FloatArray
    around_R: FloatArray

    @classmethod
    def exact(cls, low: float, high: float, rows: int) -> "Line":
        """The line if success is the reward, mapped from the range (low, high) to [0, 1].

        >>> Line.exact(-1.0, 3.0, 2).at(np.array([0.5, 1.0]))
        array([1., 3.])
        """
        return cls(np.full(rows, low), np.full(rows, high - low), np.zeros(rows))

    def at(self, success_R: FloatArray) -> FloatArray:
        """The expected reward at these successes."""
        return np.asarray(self.start_R + self.slope_R * success_R)

    def deviation(self, variance_R: FloatArray) -> FloatArray:
        """The standard deviation of rewards, given the variance of success around its
        expectation."""
        only_R = np.abs(self.slope_R) * np.sqrt(variance_R)
        return np.where(
            self.around_R > 0, np.sqrt(self.slope_R**2 * variance_R + self.around_R), only_R
        )


def reward_line(
    success_R: FloatArray,
    rewards_R: FloatArray,
    group_R: IntArray,
    earlier: Sums,
    jump: float = 1.0,
) -> Line:
    """A line of reward against success, by ridge regression over earlier rollouts and the step's
    other groups.

    A rollout's own group is left out, which keeps the expectation independent of the rollout's
    reward. The slope is shrunk to `jump` with a weight of 0.25. This matters only while all
    rollouts have succeeded, or all have failed.

    Args:
        success_R, rewards_R: Success and reward of each rollout, NaN for none, shape (R,).
        group_R: Its group, from 0 on, shape (R,).
        earlier: The sums over earlier steps.
        jump: The expected rise of the reward from failure to success, before any success.

    >>> success, rewards = np.array([1.0, 0.0, 1.0, 0.0]), np.array([1.0, 0.2, 1.0, 0.2])
    >>> line = reward_line(success, rewards, np.array([0, 0, 1, 1]), Sums(), jump=0.8)
    >>> line.start_R.round(2), line.slope_R.round(2), line.around_R.round(2)
    (array([0.2, 0.2, 0.2, 0.2]), array([0.8, 0.8, 0.8, 0.8]), array([0., 0., 0., 0.]))
    >>> reward_line(np.zeros(2), np.zeros(2), np.arange(2), Sums(), jump=0.8).slope_R  # no success yet
    array([0.8, 0.8])
    """
    groups = int(group_R.max()) + 1 if len(group_R) else 0
    own = Sums.of(success_R, rewards_R, group_R, groups)
    names = ("n", "s", "r", "ss", "sr", "rr")
    kept = min(1.0, _PAST / earlier.n) if earlier.n > 0 else 1.0
    rest = [
        kept * getattr(earlier, name) + getattr(own, name).sum() - getattr(own, name)
        for name in names
    ]
    n, s, r, ss, sr, rr = (np.where(rest[0] > 1e-9, x, np.nan) for x in rest)
    squares_s, products, squares_r = ss - s * s / n, sr - s * r / n, rr - r * r / n
    slope_G = (products + _DOUBT * jump) / (np.maximum(squares_s, 0.0) + _DOUBT)
    around_G = (squares_r - 2 * slope_G * products + slope_G**2 * squares_s) / n
    around_G = np.maximum(around_G, 0.0)  # below 0 by rounding
    return Line(((r - slope_G * s) / n)[group_R], slope_G[group_R], around_G[group_R])
