"""XRPO's rollout planner: rounds for the prompts whose mean reward is least certain."""

from dataclasses import replace
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.posterior import Belief, FloatArray, check_counts
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import check_array, check_choice, check_integer, check_number
from budgetalloc.policies.composition import spend
from budgetalloc.policies.interface import Needs, Rounds, Tally, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.spending import Spending
from budgetalloc.values import Value

__all__ = ["Bonus", "Clock", "deviation", "exploration", "half_width", "xrpo"]

Bonus = Literal["sqrt", "linear"]
Clock = Literal["rollouts", "steps"]


@lru_cache(maxsize=8)
def _half_widths(limit: int, alpha: float) -> FloatArray:
    """t / sqrt(n) for n = 0 ... limit; 0 and 1, which have no interval, count as 2."""
    from scipy.special import stdtrit  # the Student quantile, which is slow to import

    counts_N = np.maximum(np.arange(limit + 1), 2)
    return np.asarray(stdtrit(counts_N - 1.0, 1 - alpha / 2) / np.sqrt(counts_N))


def half_width(counts_N: ArrayLike, *, alpha: float = 0.05) -> FloatArray:
    """The half-width of Student's interval of a mean of n rewards, for a sample deviation of 1,
    shape (N,).

    h(n) / s = t_{1-alpha/2, n-1} / sqrt(n). n = 0 and 1, which have no interval, count as 2.

    Args:
        counts_N: Numbers of rewards.
        alpha: One minus the confidence, in (0, 1).

    >>> half_width([1, 2, 3, 4]).round(3)
    array([8.985, 8.985, 2.484, 1.591])
    """
    counts = check_counts(counts_N)
    check_number("alpha", alpha, 0, 1, without=(0, 1))
    # A table up to a power of two serves all later calls.
    return _half_widths(1 << int(counts.max(initial=2)).bit_length(), alpha)[counts]


def deviation(tally: Tally) -> FloatArray:
    """The sample deviation s of each prompt's successes, shape (P,): s^2 = n / (n-1) r (1-r) if
    they are 0 or 1.

    0 below two rollouts, and for equal rewards.
    """
    n = np.maximum(tally.scored_P, 2)
    return np.where(
        tally.mixed() & (tally.scored_P >= 2), np.sqrt(n / (n - 1) * tally.variance()), 0.0
    )


def exploration(
    counts_N: ArrayLike, total: float, *, weight: float = 0.1, bonus: Bonus = "sqrt"
) -> FloatArray:
    """The bonus of a prompt with n rollouts: weight sqrt(log(1+T) / n) or weight log(1+T) / n; n =
    0 counts as 1."""
    check_number("total", total, 0, np.inf)
    check_number("weight", weight, 0, np.inf)
    check_choice("bonus", bonus, get_args(Bonus))
    share_N = np.log1p(total) / np.maximum(
        check_array("counts_N", counts_N, "counts of rollouts"), 1
    )
    return np.asarray(weight * (np.sqrt(share_N) if bonus == "sqrt" else share_N))


def xrpo(
    *,
    base: int = 4,
    rounds: int = 2,
    alpha: float = 0.05,
    weight: float = 0.1,
    bonus: Bonus = "sqrt",
    clock: Clock = "rollouts",
    share: float = 0.5,
    seed: int = 0,
) -> Policy:
    """A base for every prompt, then rounds for those whose interval one more rollout narrows most:
    XRPO's planner.

    arXiv 2510.06672. The priority of a prompt with n rollouts is h(n) - h(n+1), the fall of the
    half-width of Student's interval of its mean reward (`half_width`, `deviation`), plus a bonus
    for few rollouts (`exploration`). It is largest at a rate of 1/2. For prompts whose rewards are
    all equal it is the bonus alone. Each rollout of a round goes to the highest priority, which
    then falls with n while s stays fixed.

    The rule was read through transcriptions, not in the paper itself. They disagree on the form of
    the bonus and on T, hence `bonus` and `clock`. lambda, the base and the sizes of rounds were not
    found; weight=0.1, base=4 and equal rounds are our defaults. One base and two rounds make the
    paper's three phases. Below a base of 4, the quantile at two rewards (12.7) makes the first
    round equalise counts. In-context seeding is available as `on_all_fail`; sharpening of
    advantages is up to the trainer.

    Args:
        base: Rollouts that start a prompt, at least 2; fewer if the budget is too small.
        rounds: Rounds after the base, at least 1.
        alpha: One minus the confidence of the interval, in (0, 1).
        weight: lambda, the weight of the bonus, at least 0.
        bonus: "sqrt", sqrt(log(1+T) / n), or "linear", log(1+T) / n.
        clock: What T counts: "rollouts" of this step before the round, or training "steps" before
            this one.
        share: Share of the budget for bases, in (0, 1), if the floor is 0; our default.
        seed: Seeds the ties.

    >>> step = xrpo(rounds=1, seed=0).begin(["half", "solved"], Budget(rollouts=16))
    >>> step.request()
    array([4, 4])
    >>> step.observe(["half"] * 4 + ["solved"] * 4, [0, 1, 0, 1, 1, 1, 1, 1]); step.request()
    array([7, 1])
    """
    check_integer("base", base, 2)
    check_integer("rounds", rounds, 1)
    check_number("alpha", alpha, 0, 1, without=(0, 1))
    check_number("weight", weight, 0, np.inf)
    check_choice("bonus", bonus, ("sqrt", "linear"))
    check_choice("clock", clock, ("rollouts", "steps"))
    check_number("share", share, 0, 1, without=(0, 1))

    def decide(view: View) -> Rounds:
        total, budget = view.rollouts_only("xrpo"), view.budget
        counts_P = _bases(view, base, share)
        left, high = total - int(counts_P.sum()), budget.largest_group
        tally = yield counts_P
        started = np.flatnonzero(counts_P)
        for to_come in range(rounds, 0, -1):
            size = -(-left // (budget.quantum * to_come)) * budget.quantum
            if not size:
                return
            spent = view.step if clock == "steps" else total - left
            value = _gain(
                counts_P[started], high, deviation(tally)[started], alpha, spent, weight, bonus
            )
            # The groups are open, so a round's portions have no smallest size.
            extra = replace(view, budget=Budget(size, floor=0, min_group=1, quantum=budget.quantum))
            more_P = np.zeros_like(counts_P)
            more_P[started] = spend(view.belief_P.take(started), value, extra, None)
            counts_P, left = counts_P + more_P, left - size
            tally = yield more_P

    name = (
        f"xrpo(base={base}, rounds={rounds}, alpha={alpha}, weight={weight}, bonus={bonus!r}, "
        f"clock={clock!r}, "
        f"share={share}, seed={seed})"
    )
    return Policy(name, decide, BetaEstimator(), seed, Needs(baseline="group"))


def _bases(view: View, base: int, share: float) -> IntArray:
    """The base of each prompt that starts; enough prompts start to take the whole budget."""
    budget, prompts = view.budget, len(view.belief_P)
    spending = Spending(budget, prompts)
    if budget.fewest:
        spending.give_each(
            np.arange(prompts),
            min(base, spending.left // prompts // budget.quantum * budget.quantum),
        )
        return spending.counts_P
    each = min(
        max(-(-base // budget.quantum) * budget.quantum, budget.smallest_group),
        budget.largest_group,
    )
    starts = max(int(share * spending.left) // each, -(-spending.left // budget.largest_group), 1)
    spending.give_each(np.arange(min(starts, prompts)), base)
    return spending.counts_P


def _gain(
    had_P: IntArray,
    high: int,
    deviation_P: FloatArray,
    alpha: float,
    total: float,
    weight: float,
    bonus: Bonus,
) -> Value:
    """The value of each number of further rollouts: the sum of their priorities."""

    def value(belief: Belief, counts_N: ArrayLike) -> FloatArray:
        more_N = np.asarray(counts_N, dtype=np.int64)
        sizes_N = np.arange(int(had_P.max()) + int(more_N[-1]) + 1)
        width_N = half_width(sizes_N, alpha=alpha)
        # Entry n: the bonuses of rollouts 1 to n, the n-th given at n - 1.
        bonus_N = np.concatenate(
            [[0.0], np.cumsum(exploration(sizes_N[:-1], total, weight=weight, bonus=bonus))]
        )
        after_PN = np.minimum(had_P[:, None] + more_N, high)
        gain_PN = deviation_P[:, None] * (width_N[had_P][:, None] - width_N[after_PN])
        gain_PN += bonus_N[after_PN] - bonus_N[had_P][:, None]
        # Counts beyond the cap get a loss, so that they are never taken.
        return np.asarray(gain_PN - (had_P[:, None] + more_N - after_PN))

    return value
