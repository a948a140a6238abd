"""The expected reward of a rollout, in the units of the rewards, from its expected success."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import StateError

_KEPT = 0.9  # share of the sums kept at a step
_RAREST = 0.05  # the success at which `bernoulli_variance` is least


@dataclass(frozen=True)
class Sums:
    """Sums over rollouts with a reward r and a success s, faded from step to step.

    Args:
        n: Rollouts.
        s, r, ss, sr, rr: Sums of s, r, s*s, s*r and r*r.
    """

    n: Any = 0.0
    s: Any = 0.0
    r: Any = 0.0
    ss: Any = 0.0
    sr: Any = 0.0
    rr: Any = 0.0

    @classmethod
    def of(cls, success_R: FloatArray, rewards_R: FloatArray, group_R: IntArray, groups: int) -> "Sums":
        """The sums of each group, shape (groups,)."""
        scored_R = ~(np.isnan(success_R) | np.isnan(rewards_R))
        s, r, group = success_R[scored_R], rewards_R[scored_R], group_R[scored_R]
        columns = (np.ones(len(s)), s, r, s * s, s * r, r * r)
        return cls(*(np.bincount(group, weights=column, minlength=groups) for column in columns))

    def plus(self, success_R: FloatArray, rewards_R: FloatArray) -> "Sums":
        """The sums with the rollouts of a step added."""
        added = Sums.of(success_R, rewards_R, np.zeros(len(rewards_R), dtype=np.int64), 1)
        return Sums(*(a + float(b[0]) for a, b in zip(vars(self).values(), vars(added).values(), strict=True)))

    def faded(self) -> "Sums":
        """The sums after the fading of one step."""
        return Sums(*(_KEPT * x for x in vars(self).values()))

    def rescaled(self, scale: float, shift: float) -> "Sums":
        """The sums with scale * s + shift in place of s."""
        return Sums(
            self.n,
            scale * self.s + shift * self.n,
            self.r,
            scale**2 * self.ss + 2 * scale * shift * self.s + shift**2 * self.n,
            scale * self.sr + shift * self.r,
            self.rr,
        )

    @property
    def mean_success(self) -> float:
        """The mean of s; 1/2 where there is none."""
        return float(self.s / self.n) if self.n > 0 else 0.5

    @property
    def spread(self) -> float:
        """The variance of s as a share of m (1 - m), m its mean: 1 where s is 0 or 1, and where there is none.

        >>> Sums().plus(np.array([0.0, 1.0]), np.zeros(2)).spread, Sums().plus(np.array([0.4, 0.6]), np.zeros(2)).spread
        (1.0, 0.04)
        """
        largest = self.s * (1 - self.s / self.n) if self.n > 0 else 0.0
        return round(float(max(1 - (self.s - self.ss) / largest, 0.0)), 12) if largest > 1e-12 else 1.0

    def state_dict(self) -> dict[str, float]:
        """The numbers by name."""
        return {each.name: float(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_state(cls, state: Any) -> "Sums":
        """The sums from the result of `state_dict`; raises `StateError` for anything else."""
        try:
            sums = cls(**{each.name: float(state[each.name]) for each in fields(cls)})
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"The state's sums of rewards are damaged: {error}") from error
        if not np.isfinite(list(vars(sums).values())).all():
            raise StateError("The state's sums of rewards are not finite: it is damaged.")
        return sums


def reward_line(
    success_R: FloatArray, rewards_R: FloatArray, group_R: IntArray, past: Sums
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A line through reward against success, by least squares over past rollouts and the other groups of this step.

    For a total of 0.8 for the answer and 0.2 for the format it gives 0.2 for a failure of correct format. It never
    includes a rollout's own group, so that an expectation made of it is independent of the rollout's reward.

    Args:
        success_R, rewards_R: Success and reward of each rollout, NaN where there was none.
        group_R: Its group, from 0.
        past: The sums over earlier steps, or over whatever else is known.

    Returns:
        For each rollout the reward expected at success 0, its rise to success 1, and the variance around the line; NaN
        where there is nothing past, nor another group.

    >>> success, rewards = np.array([1.0, 0.0, 1.0, 0.0]), np.array([1.0, 0.2, 1.0, 0.2])
    >>> [x.round(2) for x in reward_line(success, rewards, np.array([0, 0, 1, 1]), Sums())]
    [array([0.2, 0.2, 0.2, 0.2]), array([0.8, 0.8, 0.8, 0.8]), array([0., 0., 0., 0.])]
    """
    groups = int(group_R.max()) + 1 if len(group_R) else 0
    own = Sums.of(success_R, rewards_R, group_R, groups)
    rest = [before + each.sum() - each for before, each in zip(vars(past).values(), vars(own).values(), strict=True)]
    n, s, r, ss, sr, rr = (np.where(rest[0] > 1e-9, x, np.nan) for x in rest)
    var_s, cov, var_r = ss / n - (s / n) ** 2, sr / n - s * r / n**2, rr / n - (r / n) ** 2
    slope_G = np.where(var_s > 1e-9, cov / np.maximum(var_s, 1e-9), 0.0)  # 0 where all successes are equal
    offset_G = r / n - slope_G * s / n
    around_G = np.maximum(var_r - slope_G * cov, 0.0)  # not below 0 by rounding
    return offset_G[group_R], slope_G[group_R], around_G[group_R]


def bernoulli_variance(mean_R: FloatArray) -> FloatArray:
    """m (1 - m) of each mean m, and that of 0.05 where m is below 0.05 or above 0.95, shape (R,).

    The standard deviation of a prompt whose success is unexpected: without the limit, one success at an expected 0.001
    would weigh as much as 30 at 1/2. A group of 8 with one success has a variance of 0.125 in GRPO, the least there is.

    >>> bernoulli_variance(np.array([0.5, 0.01])).round(4)
    array([0.25  , 0.0475])
    """
    m_R = np.clip(mean_R, _RAREST, 1 - _RAREST)
    return np.asarray(m_R * (1 - m_R))


def expected_reward(
    mean_R: FloatArray, success_R: FloatArray, rewards_R: FloatArray, group_R: IntArray, earlier: Sums
) -> tuple[FloatArray, FloatArray]:
    """The expected reward of each rollout by `reward_line`, and the standard deviation around it, both shape (R,).

    Args:
        mean_R: The expected success of each rollout.
        success_R, rewards_R, group_R: As in `reward_line`.
        earlier: The sums over earlier steps.

    >>> success, rewards = np.array([1.0, 0.0, 1.0, 0.0]), np.array([1.5, 0.5, 1.5, 0.5])  # accuracy, 0.5 for format
    >>> expected_reward(np.full(4, 0.25), success, rewards, np.array([0, 0, 1, 1]), Sums())[0]
    array([0.75, 0.75, 0.75, 0.75])
    """
    offset_R, slope_R, around_R = reward_line(success_R, rewards_R, group_R, earlier)
    some_R = ~np.isnan(offset_R)
    expected_R = offset_R + slope_R * mean_R
    deviation_R = np.sqrt(slope_R**2 * bernoulli_variance(mean_R) + around_R)
    # In a first step with one prompt there are no other rollouts: the baseline is undefined, and advantages are 0.
    known_R = np.where(np.isnan(rewards_R), 0.0, rewards_R)
    return np.where(some_R, expected_R, known_R), np.where(some_R, deviation_R, 1.0)
