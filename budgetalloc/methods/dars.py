"""DARS: a pilot, then more rollouts for prompts that passed less than half of it."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import (
    InputError,
    check_array,
    check_choice,
    check_flag,
    check_integer,
    check_number,
)
from budgetalloc.policies.interface import Needs, Rounds, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.spending import Spending
from budgetalloc.solvers.proportional import largest_remainder

__all__ = ["Variant", "dars", "dars_counts"]

Variant = Literal["ET", "HW"]


def dars_counts(
    successes_P: ArrayLike, group: int, variant: Variant, most: int | None = None, std: bool = False
) -> IntArray:
    """Rollouts of each prompt, pilot included, that lift its group's sum of |advantage| to DARS's
    target.

    With a = successes / group (1 / (2 group) for no success), the sum is 2 group a (1-a). The
    target is the sum at a = 1/2 ("ET", equal treatment), or 2 (1-a) times it ("HW", hardness
    weighted). The total is therefore group / (4 a (1-a)) or group / (2 a), rounded up, and `group`
    for a >= 1/2 (arXiv 2508.13755 and its released code).

    Args:
        successes_P: Sum of the pilot's rewards, in [0, group].
        group: Rollouts of the pilot, N.
        variant: "ET" or "HW".
        most: N_max, at least `group`; None is no limit.
        std: Advantages divided by the group's standard deviation: the sum is then 2 group sqrt(a
            (1-a)).

    >>> dars_counts([0, 1, 2, 3, 4], 8, "ET", most=32), dars_counts([0, 1, 2, 3, 4], 8, "HW", most=64)
    (array([32, 19, 11,  9,  8]), array([64, 32, 16, 11,  8]))
    """
    check_integer("group", group, 1)
    check_choice("variant", variant, ("ET", "HW"))
    check_flag("std", std)
    successes = check_array("successes_P", successes_P, f"sums of rewards from 0 to group={group}")
    if not ((successes >= 0) & (successes <= group)).all():
        raise InputError(
            f"successes_P={successes_P!r}: give sums of rewards from 0 to group={group}."
        )
    totals_P = _deepened(successes / group, np.full(successes.shape, group), variant, std)
    return totals_P if most is None else np.minimum(totals_P, check_integer("most", most, group))


def _deepened(rate_P: FloatArray, pilot_P: IntArray, variant: Variant, std: bool) -> IntArray:
    # at 1/2 every rule gives the pilot itself
    a = np.minimum(np.where(rate_P <= 1e-6, 0.5 / pilot_P, rate_P), 0.5)
    if variant == "ET":
        factor = 1 / (2 * np.sqrt(a * (1 - a))) if std else 1 / (4 * a * (1 - a))
    else:
        factor = np.sqrt((1 - a) / a) if std else 1 / (2 * a)
    return np.asarray(np.ceil(pilot_P * factor - 1e-9).astype(np.int64))


def dars(
    *,
    group: int = 8,
    variant: Variant = "ET",
    most: int | None = None,
    std: bool = False,
    share: float = 0.625,
    seed: int = 0,
) -> Policy:
    """A pilot of `group` rollouts, then more for every prompt that passed less than half of it
    (arXiv 2508.13755).

    The second round fills prompts up to `dars_counts`. The released code adds these rollouts to the
    step's; here they come out of the budget, which is spent exactly. Pilots take `share` of the
    budget. If the second round wants more than the rest, all extra counts are scaled down by one
    factor. Unused rollouts start further prompts with a pilot, then go to all prompts evenly. With
    a floor every prompt has a pilot as large as `share` allows, and its size replaces `group` in
    the rule.

    The group's mean is biased, because the number of rollouts depends on the first rewards. The
    posterior mean before the step, `baseline=policy.belief(ids_R).mean`, is unbiased. For graded
    success a is its mean, whatever its variance. The released code drops merged groups of equal
    rewards; here a group baseline gives them advantage 0.

    Args:
        group: Rollouts of a pilot, N: 8 for Qwen, 16 for Llama.
        variant: "ET" or "HW", as in `dars_counts`.
        most: N_max, at least `group`. None is the released scripts' 32 for ET and 64 for HW, or
            `group` if larger.
        std: As in `dars_counts`.
        share: Share of the budget spent on pilots, in (0, 1); our default. 0.625 is 8 of the 12.8
            rollouts that ET uses for a prompt on average with Qwen2.5-Math-7B.
        seed: Seeds the batch and the ties.

    >>> from budgetalloc import Budget
    >>> step = dars(group=4, share=0.5, seed=0).begin(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    >>> step.request()
    array([4, 4, 0, 0])
    >>> step.observe(["a"] * 4 + ["b"] * 4, [0, 0, 1, 0, 0, 1, 1, 0])
    >>> step.request()  # a needs 4 / (4 * 1/4 * 3/4) = 5.3, b no more; the rest starts others
    array([2, 0, 4, 2])
    """
    check_integer("group", group, 1)
    check_choice("variant", variant, ("ET", "HW"))
    check_flag("std", std)
    top = (
        max(group, 32 if variant == "ET" else 64)
        if most is None
        else check_integer("most", most, group)
    )
    check_number("share", share, 0, 1, without=(0, 1))

    def decide(view: View) -> Rounds:
        budget, prompts = view.budget, len(view.belief_P)
        spending = Spending(budget, prompts)
        size, pilots = group, max(1, int(share * spending.left / group + 1e-9))
        if budget.fewest:
            pilots = prompts
            size = min(
                group, max(int(share * spending.left / prompts + 1e-9), budget.smallest_group)
            )
            size = max(size // budget.quantum * budget.quantum, budget.smallest_group)
        spending.give_each(np.arange(min(pilots, prompts)), size)
        had_P = spending.counts_P.copy()
        tally = yield had_P
        rate_P = np.where(
            tally.scored_P > 0, tally.successes_P / np.maximum(tally.scored_P, 1), 1.0
        )
        totals_P = np.minimum(
            _deepened(rate_P, np.maximum(had_P, 1), variant, std), min(top, budget.largest_group)
        )
        wanted_P = np.where(had_P > 0, np.maximum(totals_P - had_P, 0), 0)
        short = np.flatnonzero(wanted_P)
        if wanted_P.sum() > spending.left:
            units = spending.left // budget.quantum
            wanted_P[short] = budget.quantum * largest_remainder(
                wanted_P[short] / 1.0, units, 0, units
            )
        spending.give_each(short, wanted_P[short])
        spending.give_each(np.flatnonzero(spending.counts_P == 0), group)
        while spending.left:
            each = max(budget.quantum, spending.left // prompts)
            spending.give_each(np.argsort(spending.counts_P, kind="stable"), each)
        yield spending.counts_P - had_P

    name = f"dars(group={group}, variant={variant!r}, most={top}, std={std}, share={share}, seed={seed})"
    return Policy(name, decide, BetaEstimator(), seed, Needs(candidates=2, baseline="group"))
