"""DARS: a pilot, then more rollouts for prompts that passed less than half of it."""

from typing import Annotated, Literal

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.methods.table import Between, Count, Inside, method, policy
from budgetalloc.policies import Policy, View
from budgetalloc.policies.interface import Rounds
from budgetalloc.policies.spending import Spending
from budgetalloc.solvers.proportional import largest_remainder

Variant = Literal["ET", "HW"]


def dars_counts(rate_P: FloatArray, pilot_P: IntArray, variant: Variant, std: bool) -> IntArray:
    """Rollouts of each prompt, pilot included, that lift its group's sum of |advantage| to DARS's
    target.

    With a the pilot's mean (1 / (2 pilot) for no success), the sum is 2 n a (1-a). The target is
    the pilot's at a = 1/2 ("ET", equal treatment), or 2 (1-a) times it ("HW", hardness weighted).
    With `std`, advantages are divided by the group's deviation: the sum is 2 n sqrt(a (1-a)).

    >>> dars_counts(np.arange(5) / 8, np.full(5, 8), "ET", std=False)
    array([35, 19, 11,  9,  8])
    """
    # at 1/2 every rule gives the pilot itself
    a = np.minimum(np.where(rate_P <= 1e-6, 0.5 / pilot_P, rate_P), 0.5)
    if variant == "ET":
        factor = 1 / (2 * np.sqrt(a * (1 - a))) if std else 1 / (4 * a * (1 - a))
    else:
        factor = np.sqrt((1 - a) / a) if std else 1 / (2 * a)
    return np.asarray(np.ceil(pilot_P * factor - 1e-9).astype(np.int64))


@method("in rounds", "released code", of_rates=True)
def dars(
    *,
    group: Count = 8,
    variant: Variant = "ET",
    most: Annotated[int, Between("group")] | None = None,
    std: bool = False,
    share: Inside = 0.625,
    seed: int = 0,
) -> Policy:
    """Gives more rollouts to prompts that failed mostly in a pilot. It makes up for GRPO's
    advantages, which add up to less in groups of hard prompts.

    Formula: after a pilot of N with share a < 1/2 of successes, ET: n = N / (4 a (1-a)), HW: n = N
    / (2 a).

    Source: DARS (arXiv 2508.13755). Compared with the released code, which adds the extras to the
    budget and drops merged groups of equal rewards. Here the extras are scaled to the budget.

    The group mean is biased, a baseline from before the step is not. For graded success a is its
    mean.

    Args:
        group: N: 8 for Qwen, 16 for Llama.
        most: N_max. None is the released scripts' 32 for ET and 64 for HW, or `group` if larger.
        std: Whether advantages are divided by the group's standard deviation.
        share: Share of the budget spent on pilots; our default, 8 of the 12.8 rollouts that ET uses
            for a prompt on average with Qwen2.5-Math-7B.

    >>> from budgetalloc import Budget
    >>> policy = dars(group=4, share=0.5, seed=0)
    >>> step = policy.begin(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    >>> step.request()
    array([4, 4, 0, 0])
    >>> step.observe(["a"] * 4 + ["b"] * 4, [0, 0, 1, 0, 0, 1, 1, 0])
    >>> step.request()  # a needs 4 / (4 * 1/4 * 3/4) = 5.3, b no more; the rest starts others
    array([2, 0, 4, 2])
    """
    top = max(group, 32 if variant == "ET" else 64) if most is None else most

    def decide(view: View) -> Rounds:
        budget, prompts = view.budget, len(view.belief_P)
        spending = Spending(budget, prompts)
        size, pilots = group, max(1, int(share * spending.left / group + 1e-9))
        if budget.fewest:
            pilots, low = prompts, budget.smallest_group
            size = min(group, max(int(share * spending.left / prompts + 1e-9), low))
            size = max(size // budget.quantum * budget.quantum, low)
        spending.give_each(np.arange(min(pilots, prompts)), size)
        had_P = spending.counts_P.copy()
        seen = yield had_P
        rate_P = np.where(seen.n_P > 0, seen.mean_P, 1.0)
        totals_P = dars_counts(rate_P, np.maximum(had_P, 1), variant, std)
        totals_P = np.minimum(totals_P, min(top, budget.largest_group))
        wanted_P = np.where(had_P > 0, np.maximum(totals_P - had_P, 0), 0)
        short = np.flatnonzero(wanted_P)
        if wanted_P.sum() > spending.left:
            units = spending.left // budget.quantum
            shares = largest_remainder(wanted_P[short] / 1.0, units, 0, units)
            wanted_P[short] = budget.quantum * shares
        spending.give_each(short, wanted_P[short])
        spending.give_each(np.flatnonzero(spending.counts_P == 0), group)
        while spending.left:
            each = max(budget.quantum, spending.left // prompts)
            spending.give_each(np.argsort(spending.counts_P, kind="stable"), each)
        yield spending.counts_P - had_P

    return policy(decide, candidates=2)
