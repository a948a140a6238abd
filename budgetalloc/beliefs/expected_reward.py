"""The reward expected of a rollout, in the trainer's units, and the size that GRPO's advantages
would have, from the belief about its success."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.rewards import EQUAL
from budgetalloc.beliefs.state import Stateful, check_state
from budgetalloc.budget import IntArray

GROUP = 8
"""The group size of the GRPO with which advantages are compared, if the trainer has none."""
EPS = 1e-4
"""TRL's guard against a division by zero, so that equal groups give TRL's numbers."""
KEPT = 0.9
"""Share of the sums kept at a step."""
# rollouts that earlier steps count for at most in the line, so that it follows a change at once
_PAST = 16.0
_DOUBT = 0.25  # weight of the slope that is expected before any success
_RAREST = 0.05  # `bernoulli_variance` is constant below this mean, and above 1 minus it
_OF_RESIDUALS = (
    "residual_within",
    "residual_between",
    "residual_pairs",
    "same_residual",
    "compared",
)
_SHRUNK = 4.0  # weight of the pool's variance in a prompt's variance, in rollouts


@dataclass(frozen=True)
class Sums(Stateful):
    """Sums over rollouts of earlier steps with a reward r and a success s, discounted at each
    step."""

    saved = (
        *("n", "s", "r", "ss", "sr", "rr", "graded", "within", "pairs", "alike", "lean"),
        *_OF_RESIDUALS,
    )

    n: float = 0.0  # rollouts
    s: float = 0.0
    r: float = 0.0
    ss: float = 0.0  # of s * s
    sr: float = 0.0
    rr: float = 0.0
    graded: float = 0.0  # rollouts whose success is neither 0 nor 1
    within: float = 0.0  # within / pairs is the variance of success within a prompt (`deviations`)
    pairs: float = 0.0
    alike: float = 0.0  # `share_alike` of the residuals
    lean: float = 0.0  # mean advantages, in units of their root mean square
    residual_within: float = 0.0  # as `within` and `pairs`, of residuals (`Offset`)
    residual_between: float = 0.0
    residual_pairs: float = 0.0
    # rollouts with the same residual as the one before of their prompt, of those that had one
    same_residual: float = 0.0
    compared: float = 0.0

    @classmethod
    def of(cls, success_R: FloatArray, rewards_R: FloatArray) -> "Sums":
        """The sums over these rollouts; the fields from `within` on are 0."""
        sums_61 = _sums_by_group(success_R, rewards_R, np.zeros(len(success_R), dtype=np.int64))
        n, s, r, ss, sr, rr = sums_61.sum(axis=1).tolist()
        graded_R = (success_R > EQUAL) & (success_R < 1 - EQUAL) & ~np.isnan(rewards_R)
        return cls(n, s, r, ss, sr, rr, float(graded_R.sum()))

    def plus(self, added: "Sums", kept: float = 1.0) -> "Sums":
        """A share of these sums and those added; `KEPT` is the share of one step."""
        pairs = zip(vars(self).values(), vars(added).values(), strict=True)
        return Sums(*[kept * a + b for a, b in pairs])

    @property
    def residual_variances(self) -> tuple[float, float]:
        """The variances of residuals within prompts and between them."""
        pairs = max(self.residual_pairs, 1e-300)
        return self.residual_within / pairs, max(self.residual_between / pairs, 0.0)

    def chance_alike(self, group: int) -> float:
        """The chance that the residuals of a group are equal, or less: by the residuals of all
        prompts, and by pairs of one prompt. Both are lower bounds, by Jensen's inequality."""
        if not self.n > 0:
            return 1.0
        of_pairs = self.same_residual / self.compared if self.compared > 0 else 0.0
        return min(max(self.alike / self.n, of_pairs ** (group - 1)), 1.0)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a saved state. States of 0.5.0 hold nothing of residuals."""
        check_state(state)
        super().load_state_dict(dict.fromkeys(_OF_RESIDUALS, 0.0) | state)

    @property
    def mean_success(self) -> float:
        """The mean of s, in [0, 1]; 1/2 without rollouts."""
        return float(min(max(self.s / self.n, 0.0), 1.0)) if self.n > 0 else 0.5


def _sums_by_group(success_R: FloatArray, rewards_R: FloatArray, group_R: IntArray) -> FloatArray:
    """The number of rollouts and the sums of s, r, s*s, s*r and r*r in each group, shape (6, G)."""
    scored_R = ~(np.isnan(success_R) | np.isnan(rewards_R))
    s, r, groups = success_R[scored_R], rewards_R[scored_R], int(group_R.max(initial=-1)) + 1
    columns = (np.ones(len(s)), s, r, s * s, s * r, r * r)
    return np.array([np.bincount(group_R[scored_R], column, groups) for column in columns])


class Line(NamedTuple):
    """The expected reward of a rollout as a line in its success, and the variance around it."""

    start_R: FloatArray  # the expected reward at success 0; NaN without any evidence
    slope_R: FloatArray  # its rise from success 0 to success 1
    around_R: FloatArray  # the variance of the reward around the line

    def at(self, success_R: FloatArray) -> FloatArray:
        """The expected reward at these successes."""
        return np.asarray(self.start_R + self.slope_R * success_R)

    def deviation(self, variance_R: FloatArray) -> FloatArray:
        """The standard deviation of rewards, given the variance of success around its
        expectation."""
        only_R = np.abs(self.slope_R) * np.sqrt(variance_R)
        whole_R = np.sqrt(self.slope_R**2 * variance_R + self.around_R)
        return np.where(self.around_R > 0, whole_R, only_R)


def reward_line(
    success_R: FloatArray,
    rewards_R: FloatArray,
    group_R: IntArray,
    earlier: Sums,
    jump: float = 1.0,
) -> Line:
    """A line of reward against success, by ridge regression over earlier rollouts and the step's
    other groups. What it expects is therefore independent of the rollout's own reward.

    The slope is shrunk to `jump`, the rise that is expected before any success, with a weight of
    0.25. This matters only while all rollouts have succeeded, or all have failed.

    >>> success, rewards = np.array([1.0, 0.0, 1.0, 0.0]), np.array([1.0, 0.2, 1.0, 0.2])
    >>> line = reward_line(success, rewards, np.array([0, 0, 1, 1]), Sums(), jump=0.8)
    >>> line.start_R.round(2), line.slope_R.round(2), line.around_R.round(2)
    (array([0.2, 0.2, 0.2, 0.2]), array([0.8, 0.8, 0.8, 0.8]), array([0., 0., 0., 0.]))
    """
    own_6G = _sums_by_group(success_R, rewards_R, group_R)
    past_6 = np.array([earlier.n, earlier.s, earlier.r, earlier.ss, earlier.sr, earlier.rr])
    past_6 *= min(1.0, _PAST / earlier.n) if earlier.n > 0 else 1.0
    rest_6G = (past_6 + own_6G.sum(axis=1))[:, None] - own_6G
    n, s, r, ss, sr, rr = np.where(rest_6G[0] > 1e-9, rest_6G, np.nan)
    squares_s, products, squares_r = ss - s * s / n, sr - s * r / n, rr - r * r / n
    slope_G = (products + _DOUBT * jump) / (np.maximum(squares_s, 0.0) + _DOUBT)
    around_G = (squares_r - 2 * slope_G * products + slope_G**2 * squares_s) / n
    around_G = np.maximum(around_G, 0.0)  # below 0 by rounding
    return Line(((r - slope_G * s) / n)[group_R], slope_G[group_R], around_G[group_R])


class Offset(NamedTuple):
    """The residual that is expected of each rollout's prompt. A residual is a reward minus that of
    the line at its success, such as a penalty on length."""

    offset_R: FloatArray
    around_R: FloatArray  # the variance of the residual around it, if prompts differ much
    sums: dict[str, float]  # of the step, as fields of `Sums`

    @classmethod
    def of(
        cls,
        residual_R: FloatArray,
        group_R: IntArray,
        round_R: IntArray,
        before_R2: FloatArray,
        around_R: FloatArray,
        earlier: Sums,
    ) -> "Offset":
        """The best linear prediction from the n other residuals of the prompt, in earlier steps and
        this one: their sum times b / (w + n b). The variance w of residuals within prompts is
        estimated from how far they are from the mean of the others, and the variance b between
        prompts from the covariance with that mean.

        Args:
            residual_R: The residuals, NaN for none.
            group_R, round_R: As in `rollouts.Rollouts`.
            before_R2: Number and sum of the prompt's residuals in earlier steps.
            around_R: The variance of all residuals. The result has it too, unless residuals vary
                more between prompts than within them.
            earlier: Sums of earlier steps.

        >>> residual_R, before_R2 = np.array([0.5, 0.3, -0.4, -0.4]), np.tile([0.0, 0.0], (4, 1))
        >>> about = np.array([0, 0, 1, 1]), np.zeros(4, dtype=int), before_R2
        >>> Offset.of(residual_R, *about, np.full(4, 0.17), Sums()).offset_R.round(3)
        array([ 0.282,  0.47 , -0.376, -0.376])
        """
        scored_R, known_R = ~np.isnan(residual_R), np.nan_to_num(residual_R)
        n_R = before_R2[:, 0] + sum_until(scored_R, group_R, round_R) - scored_R
        sum_R = before_R2[:, 1] + sum_until(known_R, group_R, round_R) - known_R
        known = Known(n_R, sum_R, sum_R)
        within, pairs = deviations(residual_R, known)
        rows = np.flatnonzero((n_R >= 1) & scored_R)
        mean_K = sum_R[rows] / n_R[rows]
        between = (
            float(np.sum((residual_R[rows] - residual_R[rows].mean()) * mean_K)) if pairs else 0.0
        )
        sums = {"residual_within": within, "residual_between": between, "residual_pairs": pairs}
        now = earlier.plus(Sums(**sums), KEPT)
        if not now.residual_pairs > 0:
            return cls(np.zeros(len(n_R)), around_R, sums)
        w, b = now.residual_variances
        mass_R = w + n_R * b
        share_R = np.divide(b, mass_R, out=np.zeros(len(n_R)), where=mass_R > 0)
        own_R = np.where(mass_R > 0, w * (1 + share_R), b)
        return cls(share_R * sum_R, own_R if b > w else around_R, sums)


def sum_until(x_R: ArrayLike, group_R: IntArray, round_R: IntArray) -> FloatArray:
    """For each row, the sum over its group's rows of the same and of earlier rounds."""
    rounds, groups = int(round_R.max(initial=0)) + 1, int(group_R.max(initial=-1)) + 1
    sums_GK = np.bincount(group_R * rounds + round_R, x_R, groups * rounds).reshape(-1, rounds)
    return np.asarray(sums_GK.cumsum(axis=1)[group_R, round_R])


def posterior_mean(
    success_R: FloatArray, group_R: IntArray, belief_R: Beta, round_R: IntArray
) -> FloatArray:
    """The posterior mean of each row's prompt after the other rows of its group, except those of
    later rounds. NaN rows are no evidence.

    >>> belief_R, group_R = Beta([1, 1, 1], [1, 1, 1]), np.array([0, 0, 0])
    >>> posterior_mean(np.array([0.0, 0.0, 1.0]), group_R, belief_R, np.array([0, 0, 1])).round(2)
    array([0.33, 0.33, 0.25])
    """
    scored_R = ~np.isnan(success_R)
    known_R = np.where(scored_R, success_R, 0.0)
    mass_R = belief_R.mass + (sum_until(scored_R, group_R, round_R) - scored_R)
    return np.asarray((belief_R.alpha_P + sum_until(known_R, group_R, round_R) - known_R) / mass_R)


def bernoulli_variance(mean_R: FloatArray) -> FloatArray:
    """m (1 - m) for each mean m, clipped to [0.05, 0.95], shape (R,).

    Advantages are divided by its root. Without the limit, one success at m = 0.001 would weigh as
    much as 30 at 1/2.
    """
    m_R = np.clip(mean_R, _RAREST, 1 - _RAREST)
    return np.asarray(m_R * (1 - m_R))


class Known(NamedTuple):
    """The evidence about each rollout's prompt: its earlier rollouts and the other rollouts of this
    step."""

    n_R: FloatArray  # number of rollouts, discounted like the belief
    sum_R: FloatArray  # of their successes s
    squares_R: FloatArray  # of s * s

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
        graded_R = (1 - belief_R.spread_P) * a * b / (a + b)  # the sum of s (1 - s)
        n_R = np.maximum(a + b - (prior[0] + prior[1]), 0.0)
        sum_R = np.maximum(a - prior[0], 0.0)
        scored_R = (~np.isnan(success_R)).astype(np.float64)
        s_R = np.nan_to_num(success_R)
        own_3R = np.array([scored_R, s_R, s_R**2])
        others_3R = np.array([np.bincount(group_R, x_R)[group_R] for x_R in own_3R]) - own_3R
        return cls(*(np.array([n_R, sum_R, np.maximum(sum_R - graded_R, 0.0)]) + others_3R))


def deviations(success_R: FloatArray, known: Known) -> tuple[float, float]:
    """The sum of squared deviations of successes from the mean of their own prompt, and the number
    of rollouts in it.

    The mean is that of the prompt's n other rollouts. Each square is multiplied by n / (n + 1),
    because its expectation is then the variance within the prompt. Rollouts with n < 1 are left
    out.
    """
    rows = np.flatnonzero((known.n_R >= 1) & ~np.isnan(success_R))
    n_K = known.n_R[rows]
    away_K = success_R[rows] - known.sum_R[rows] / n_K
    if len(rows) > 1:
        away_K -= away_K.mean()  # what all prompts share is a change, and no variance within them
    return float(np.sum(away_K**2 * n_K / (n_K + 1))), float(len(rows))


def pool_variances(sums: Sums) -> tuple[float, float]:
    """The variance of success within prompts and between them."""
    total = max(sums.ss / sums.n - (sums.s / sums.n) ** 2, 0.0) if sums.n > 0 else 0.0
    within = min(sums.within / sums.pairs, total) if sums.pairs > 0 else total
    return within, max(total - within, 0.0)


def prior_share(sums: Sums, mass: float) -> float:
    """The share of a prior's mass that suits graded successes, at most 1. It is 1 for successes of
    0 and 1.

    A prior of mass k weighs as much as k rollouts. The best mass is w / b, with w and b the
    variances within and between prompts. With a larger mass, the baseline of a prompt with nearly
    constant rewards stays near the pool's mean for many visits.
    """
    if not (sums.graded > 0 and sums.pairs > 0):
        return 1.0
    within, between = pool_variances(sums)
    return min(max(within / (between * mass), 1e-6), 1.0) if between > 0 else 1.0


def variances(
    mean_R: FloatArray, mass_R: FloatArray, known: Known, sums: Sums
) -> tuple[FloatArray, FloatArray]:
    """The variance of each success within its prompt, and that of its baseline's error, shape (R,)
    each. `sums` are over earlier steps and this one.

    If all successes are 0 and 1, their sum is m (1 - m), and E[p (1 - p)] of it lies within the
    prompt; m and the mass are those of the belief. Otherwise the variance w within a prompt is
    learned, and shrunk to the pool's with the weight of four rollouts. The share of the pool's that
    belongs to successes of 0 and 1 is proportional to m (1 - m). The variance of the error is then
    w b / (w + n b), with b the variance between prompts and n the prompt's rollouts.
    """
    binary_R = bernoulli_variance(mean_R)
    if not sums.graded > 0:
        return binary_R * mass_R / (mass_R + 1), binary_R / (mass_R + 1)
    within, between = pool_variances(sums)
    graded = sums.graded / sums.n
    pool_R = within * (graded + (1 - graded) * binary_R / binary_R.mean())
    freedom_R = np.maximum(known.n_R - 1, 0.0)
    squares_R = known.squares_R - known.sum_R**2 / np.maximum(known.n_R, 1e-9)
    squares_R = np.where(freedom_R > 0, np.maximum(squares_R, 0.0), 0.0)
    own_R = (squares_R + _SHRUNK * pool_R) / (freedom_R + _SHRUNK)
    error_R = own_R * between / np.maximum(own_R + known.n_R * between, 1e-300)
    own_R = np.minimum(own_R, 0.25)  # the largest variance of numbers in [0, 1]
    return own_R, np.minimum(error_R, 0.25 - own_R)


def chance_equal(variance: float, draws: int = GROUP) -> float:
    """The chance that draws of 0 and 1 with variance p (1-p) are equal, p^n + (1-p)^n. It is convex
    in the variance.

    >>> chance_equal(0.25), round(chance_equal(0.01), 3)
    (0.0078125, 0.922)
    """
    rare = (1 - np.sqrt(max(1 - 4 * variance, 0.0))) / 2
    return float(rare**draws + (1 - rare) ** draws)


def share_alike(values_R: ArrayLike, draws: int = GROUP) -> float:
    """The chance that draws from these values are equal; 1 without any value. NaN is none.

    >>> round(share_alike([0.2, 0.2, 0.2, 0.0]), 4)  # 0.75^8 + 0.25^8
    0.1001
    """
    values = np.asarray(values_R, dtype=np.float64)
    values = values[~np.isnan(values)]
    counts = np.unique(np.round(values, 6), return_counts=True)[1]
    return float(np.sum((counts / values.size) ** draws)) if values.size else 1.0


def grpo_square(
    belief_R: Beta, known: Known, graded: float, alike: float, group: int = GROUP
) -> FloatArray:
    """The expected mean squared advantage of GRPO on each rollout's prompt, in groups of n, shape
    (R,).

    It is (n - 1) / n in a mixed group and 0 in a zero-variance group: all rollouts succeed or all
    fail, and the rest of their rewards is equal too, with the chance `alike`. A group with a graded
    success is taken to have variance; `graded` is their share in the pool.

    >>> one = Known(np.ones(1), np.zeros(1), np.zeros(1))
    >>> grpo_square(Beta([1e6], [1e6]), one, 0.0, 1.0).round(3)  # 7/8 (1 - 2 / 256)
    array([0.868])
    """
    plain = (1 - graded) ** group  # none of n is graded
    some_graded_R = known.sum_R - known.squares_R > EQUAL
    same_R = (belief_R.all_pass([group]) + belief_R.all_fail([group]))[:, 0]
    # for vague beliefs, the first estimate is too high and the second too low
    mean_R = belief_R.mean
    same_R = (same_R + mean_R**group + (1 - mean_R) ** group) / 2
    same_R = np.where(some_graded_R, plain, np.where(known.n_R > 0, same_R, plain * same_R))
    return np.asarray((group - 1) / group * (1 - alike * same_R))
