"""The expected reward of a rollout, in the trainer's units, from its expected success."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.rewards import EQUAL
from budgetalloc.beliefs.state import Stateful
from budgetalloc.budget import IntArray

KEPT = 0.9
"""Share of the sums kept at a step."""
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
            number of rollouts in it (`deviations`). within / pairs is the variance of
            success within a prompt.
        alike: The chance that the part of the reward not explained by success is equal in 8
            rollouts (`share_alike`), summed over rollouts.
        lean: The mean advantage in units of its root mean square (`policies.batch_advantages`),
            summed over rollouts.
    """

    saved = ("n", "s", "r", "ss", "sr", "rr", "graded", "within", "pairs", "alike", "lean")

    n: float = 0.0
    s: float = 0.0
    r: float = 0.0
    ss: float = 0.0
    sr: float = 0.0
    rr: float = 0.0
    graded: float = 0.0
    within: float = 0.0
    pairs: float = 0.0
    alike: float = 0.0
    lean: float = 0.0

    @classmethod
    def of(cls, success_R: FloatArray, rewards_R: FloatArray) -> "Sums":
        """The sums over these rollouts; the fields from `within` on are 0."""
        scored_R = ~(np.isnan(success_R) | np.isnan(rewards_R))
        s, r = success_R[scored_R], rewards_R[scored_R]
        graded, group = (s > EQUAL) & (s < 1 - EQUAL), np.zeros(len(s), dtype=np.int64)
        columns = (np.ones(len(s)), s, r, s * s, s * r, r * r, graded)
        return cls(*[float(np.bincount(group, column, 1)[0]) for column in columns])

    def plus(self, added: "Sums", kept: float = 1.0) -> "Sums":
        """A share of these sums and those added; `KEPT` is the share of one step."""
        pairs = zip(vars(self).values(), vars(added).values(), strict=True)
        return Sums(*[kept * a + b for a, b in pairs])

    @property
    def mean_success(self) -> float:
        """The mean of s, in [0, 1]; 1/2 without rollouts."""
        return float(min(max(self.s / self.n, 0.0), 1.0)) if self.n > 0 else 0.5


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

    Success and reward of each rollout are NaN for none. `earlier` are sums over earlier steps, and
    `jump` is the expected rise of the reward from failure to success, before any success.

    >>> success, rewards = np.array([1.0, 0.0, 1.0, 0.0]), np.array([1.0, 0.2, 1.0, 0.2])
    >>> line = reward_line(success, rewards, np.array([0, 0, 1, 1]), Sums(), jump=0.8)
    >>> line.start_R.round(2), line.slope_R.round(2), line.around_R.round(2)
    (array([0.2, 0.2, 0.2, 0.2]), array([0.8, 0.8, 0.8, 0.8]), array([0., 0., 0., 0.]))
    >>> # no success yet
    >>> reward_line(np.zeros(2), np.zeros(2), np.arange(2), Sums(), jump=0.8).slope_R
    array([0.8, 0.8])
    """
    groups = int(group_R.max()) + 1 if len(group_R) else 0
    scored_R = ~(np.isnan(success_R) | np.isnan(rewards_R))
    s, r, group = success_R[scored_R], rewards_R[scored_R], group_R[scored_R]
    columns = (np.ones(len(s)), s, r, s * s, s * r, r * r)
    own = [np.bincount(group, column, groups) for column in columns]
    past = (earlier.n, earlier.s, earlier.r, earlier.ss, earlier.sr, earlier.rr)
    kept = min(1.0, _PAST / earlier.n) if earlier.n > 0 else 1.0
    rest = [kept * x + sum_G.sum() - sum_G for x, sum_G in zip(past, own, strict=True)]
    n, s, r, ss, sr, rr = (np.where(rest[0] > 1e-9, x, np.nan) for x in rest)
    squares_s, products, squares_r = ss - s * s / n, sr - s * r / n, rr - r * r / n
    slope_G = (products + _DOUBT * jump) / (np.maximum(squares_s, 0.0) + _DOUBT)
    around_G = (squares_r - 2 * slope_G * products + slope_G**2 * squares_s) / n
    around_G = np.maximum(around_G, 0.0)  # below 0 by rounding
    return Line(((r - slope_G * s) / n)[group_R], slope_G[group_R], around_G[group_R])


GROUP = 8
"""The group size of the GRPO with which advantages are compared."""
_RAREST = 0.05  # `bernoulli_variance` is constant below this mean, and above 1 minus it
_SHRUNK = 4.0  # weight of the pool's variance in a prompt's variance, in rollouts


def bernoulli_variance(mean_R: FloatArray) -> FloatArray:
    """m (1 - m) for each mean m, clipped to [0.05, 0.95], shape (R,).

    Advantages are divided by its root. Without the limit, one success at m = 0.001 would weigh as
    much as 30 at 1/2.

    >>> bernoulli_variance(np.array([0.5, 0.01])).round(4)
    array([0.25  , 0.0475])
    """
    m_R = np.clip(mean_R, _RAREST, 1 - _RAREST)
    return np.asarray(m_R * (1 - m_R))


@dataclass(frozen=True, eq=False)
class Known:
    """The evidence about each rollout's prompt: its earlier rollouts and the other rollouts of this
    step.

    Args:
        n_R: Number of rollouts, discounted like the belief, shape (R,).
        sum_R, squares_R: Sums of their successes s and of s*s, shape (R,).
    """

    n_R: FloatArray
    sum_R: FloatArray
    squares_R: FloatArray

    @classmethod
    def of(
        cls,
        success_R: FloatArray,
        group_R: IntArray,
        belief_R: Beta,
        prior: tuple[float | FloatArray, float | FloatArray],
    ) -> "Known":
        """The evidence in the successes of this step (NaN for none) and in the beliefs before it,
        without their prior.

        >>> known = Known.of(np.array([0.5, 1.0]), np.zeros(2, dtype=int),
        ...     Beta([1.3, 1.3], [0.3, 0.3]), (0.3, 0.3))
        >>> known.n_R, known.sum_R  # one success before the step, and the other rollout
        (array([2., 2.]), array([2. , 1.5]))
        """
        a, b = belief_R.alpha_P, belief_R.beta_P
        # the sum of s (1 - s) over the earlier rollouts
        graded_R = (1 - belief_R.spread_P) * a * b / (a + b)
        scored_R = ~np.isnan(success_R)
        s_R = np.where(scored_R, success_R, 0.0)

        def others(x_R: FloatArray) -> FloatArray:
            return np.asarray(np.bincount(group_R, weights=x_R)[group_R] - x_R) if len(x_R) else x_R

        past_R = np.maximum(a - prior[0], 0.0)
        return cls(
            n_R=np.maximum(a + b - (prior[0] + prior[1]), 0.0)
            + others(scored_R.astype(np.float64)),
            sum_R=past_R + others(s_R),
            squares_R=np.maximum(past_R - graded_R, 0.0) + others(s_R * s_R),
        )


def deviations(success_R: FloatArray, known: Known) -> tuple[float, float]:
    """The sum of squared deviations of successes from the mean of their own prompt, and the number
    of rollouts in it.

    The mean is that of the prompt's n other rollouts. Each square is multiplied by n / (n + 1),
    because its expectation is then the variance within the prompt. Rollouts with n < 1 are left
    out.

    >>> success_R, group_R = np.array([0.2, 0.4, 0.9]), np.array([0, 0, 1])
    >>> known = Known.of(success_R, group_R, Beta(np.full(3, 0.3), np.full(3, 0.3)), (0.3, 0.3))
    >>> squares, rollouts = deviations(success_R, known)
    >>> round(squares / rollouts, 3)  # the variance of 0.2 and 0.4, with n - 1
    0.02
    """
    rows = np.flatnonzero((known.n_R >= 1) & ~np.isnan(success_R))
    n_K = known.n_R[rows]
    away_K = success_R[rows] - known.sum_R[rows] / n_K
    if len(rows) > 1:
        away_K -= away_K.mean()  # what all prompts share is a change, and no variance within them
    return float(np.sum(away_K**2 * n_K / (n_K + 1))), float(len(rows))


def graded_variances(
    known: Known, within_R: FloatArray, between: float
) -> tuple[FloatArray, FloatArray]:
    """The variance of each graded success within its prompt, and that of its baseline's error,
    shape (R,) each.

    The variance w within the prompt is shrunk to the pool's with the weight of four rollouts. The
    error of the baseline is added: w b / (w + n b), with b the variance between prompts and n the
    prompt's rollouts. `within_R` is the pool's variance within such a prompt.

    >>> none = Known(np.zeros(1), np.zeros(1), np.zeros(1))
    >>> graded_variances(none, np.array([0.01]), 0.04)  # a first visit
    (array([0.01]), array([0.04]))
    """
    squares_R = known.squares_R - known.sum_R**2 / np.maximum(known.n_R, 1e-9)
    freedom_R = np.maximum(known.n_R - 1, 0.0)
    squares_R = np.where(freedom_R > 0, np.maximum(squares_R, 0.0), 0.0)
    own_R = (squares_R + _SHRUNK * within_R) / (freedom_R + _SHRUNK)
    error_R = own_R * between / np.maximum(own_R + known.n_R * between, 1e-300)
    own_R = np.minimum(own_R, 0.25)  # the largest variance of numbers in [0, 1]
    return np.asarray(own_R), np.asarray(np.minimum(error_R, 0.25 - own_R))


def variances(
    mean_R: FloatArray, mass_R: FloatArray, known: Known, sums: Sums
) -> tuple[FloatArray, FloatArray]:
    """The variance of each success within its prompt, and that of its baseline's error, shape (R,)
    each.

    If all successes are 0 and 1, their sum is m (1 - m), and E[p (1 - p)] of it lies within the
    prompt. Otherwise they are learned (`graded_variances`). The share of the pool's variance that
    belongs to successes of 0 and 1 is then proportional to m (1 - m). `mean_R` and `mass_R` are m
    and the mass of the belief about each rollout, and `sums` are over earlier steps and this one.
    """
    binary_R = bernoulli_variance(mean_R)
    if not sums.graded > 0:
        return binary_R * mass_R / (mass_R + 1), binary_R / (mass_R + 1)
    within, between = pool_variances(sums)
    graded = float(sums.graded / sums.n)
    return graded_variances(
        known, within * (graded + (1 - graded) * binary_R / binary_R.mean()), between
    )


def pool_variances(sums: Sums) -> tuple[float, float]:
    """The variance of success within prompts and between them.

    >>> pool_variances(Sums(n=4.0, s=2.0, ss=1.5, within=0.02, pairs=2.0))  # total: 1.5/4 - (2/4)^2
    (0.01, 0.115)
    """
    total = max(sums.ss / sums.n - (sums.s / sums.n) ** 2, 0.0) if sums.n > 0 else 0.0
    within = min(float(sums.within / sums.pairs), total) if sums.pairs > 0 else total
    return within, max(total - within, 0.0)


def prior_share(sums: Sums, mass: float) -> float:
    """The share of a prior's mass that suits graded successes, at most 1. It is 1 for successes of
    0 and 1.

    A prior of mass k weighs as much as k rollouts. The best mass is k = w / b, with w and b the
    variances within and between prompts. With a larger mass, the baseline of a prompt with nearly
    constant rewards stays near the pool's mean for many visits.

    >>> # 0.01/0.115/0.6
    >>> prior_share(Sums(n=4.0, s=2.0, ss=1.5, graded=1.0, within=0.02, pairs=2.0),
    ...     0.6).__round__(3)
    0.145
    """
    if not (sums.graded > 0 and sums.pairs > 0):
        return 1.0
    within, between = pool_variances(sums)
    return min(max(within / (between * mass), 1e-6), 1.0) if between > 0 else 1.0


def share_alike(values_R: ArrayLike) -> float:
    """The chance that 8 draws from these values are equal; 1 without any value.

    >>> round(share_alike([0.2, 0.2, 0.2, 0.0]), 4)  # 0.75^8 + 0.25^8
    0.1001
    """
    values = np.asarray(values_R, dtype=np.float64)
    values = values[~np.isnan(values)]
    if not values.size:
        return 1.0
    counts = np.unique(np.round(values, 6), return_counts=True)[1]
    return float(np.sum((counts / values.size) ** GROUP))


def grpo_square(belief_R: Beta, known: Known, graded: float, alike: float) -> FloatArray:
    """The expected mean squared advantage of GRPO on each rollout's prompt, in groups of 8, shape
    (R,).

    It is 7/8 in a mixed group and 0 in a zero-variance group. A group has no variance if all
    rollouts succeed or all fail, and the rest of their rewards is equal too.

    Args:
        belief_R, known: The belief and the evidence about the prompt.
        graded: Share of graded successes in the pool. A group with a graded success is taken to
            have variance.
        alike: The chance that the rest of the reward, which success does not explain, is equal in 8
            rollouts.

    >>> one = Known(np.ones(1), np.zeros(1), np.zeros(1))
    >>> grpo_square(Beta([1e6], [1e6]), one, 0.0, 1.0).round(3)  # 7/8 (1 - 2 / 256)
    array([0.868])
    """
    plain = (1 - graded) ** GROUP  # none of 8 is graded
    some_graded_R = known.sum_R - known.squares_R > EQUAL
    same_R = (belief_R.all_pass([GROUP]) + belief_R.all_fail([GROUP]))[:, 0]
    # for vague beliefs, the first estimate is too high and the second too low
    mean_R = belief_R.mean
    same_R = (same_R + mean_R**GROUP + (1 - mean_R) ** GROUP) / 2
    same_R = np.where(some_graded_R, plain, np.where(known.n_R > 0, same_R, plain * same_R))
    return np.asarray((GROUP - 1) / GROUP * (1 - alike * same_R))
