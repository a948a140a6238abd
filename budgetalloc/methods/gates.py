"""Gates: prompts of medium success rate pass, other prompts with a small probability."""

from collections.abc import Callable
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, check_array
from budgetalloc.methods.rules import by_chance
from budgetalloc.methods.table import Between, Count, Share, method, policy
from budgetalloc.policies import Policy, View

Predict = Annotated[
    Callable[[View], ArrayLike], "of a View that returns one rate for each of its prompts"
]


@method("which prompts", "ours", of_rates=True)
def gate(
    *,
    group: Count = 8,
    lo: Annotated[float, Between(0, 1, without=(1,))] = 0.1,
    hi: Share = 0.9,
    predict: Predict | None = None,
    explore: Share = 0.05,
    discount: float = 0.9,
    idle: float = 1.0,
    seed: int = 0,
) -> Policy:
    """Gives groups to random prompts whose success rate, by your own predictor or by the beliefs,
    is within bounds. Use it to skip prompts that are expected to be always solved or always failed.

    Formula: a group each to random prompts with lo < p < hi, p predicted or the posterior mean;
    others pass with the probability `explore`.

    Takes any predictor of success rates. For graded success the rate is the mean: a prompt that
    always earns 0.5 passes, although it has no gradient.

    Args:
        predict: Returns the rates from a view; NaN passes. If it depends on other state that
            changes, a resumed run differs.
        explore: With 0, a prompt outside the bounds may never be rolled out again.

    >>> from budgetalloc import Budget
    >>> policy, ids = gate(seed=0), ["solved", "half", "failed", "new"]
    >>> policy.observe([x for x in ids[:3] for _ in range(8)], [1] * 8 + [0, 1] * 4 + [0] * 8)
    >>> policy.allocate(ids, Budget(rollouts=16, floor=0))
    array([0, 8, 0, 8])
    """
    if not lo < hi:
        raise InputError(f"hi={hi}: use a number in ({lo:g}, 1].", argument="hi")

    def chance(view: View) -> FloatArray:
        if predict is None:
            rate_P = np.where(view.cold_P, np.nan, view.belief_P.mean)
        else:
            rate_P = check_array("predict(view)", predict(view), "one rate for each prompt")
        if rate_P.shape != (len(view.ids_P),):
            raise InputError(
                "predict", f"gave shape {rate_P.shape}: give one rate for each prompt."
            )
        return np.where(np.isnan(rate_P) | ((lo < rate_P) & (rate_P < hi)), 1.0, explore)

    return policy(by_chance(chance, group), discount=discount, idle=idle, candidates="all")


@method("which prompts", "a description", of_rates=True)
def masa(
    *, group: Count = 16, predict: Predict | None = None, explore: Share = 0.05, seed: int = 0
) -> Policy:
    """Skips prompts of which the model itself predicts that it will always or never solve them. It
    is meant to save the rollouts of groups that would have no gradient.

    Formula: 0 < p < 1 for the p that the model predicts.

    Source: MASA (arXiv 2510.03259). Compared with a description only. The released code has no
    gate. `explore` and `group` are our defaults.

    Without predictions, the posterior mean must be in (0.1, 0.9), which are our bounds. See `gate`,
    also for graded success.

    >>> from budgetalloc import Budget
    >>> policy = masa(group=8, predict=lambda view: [x / 2 for x in view.ids_P], seed=0)
    >>> policy.allocate([0, 1, 2], Budget(rollouts=8, floor=0))
    array([0, 8, 0])
    """
    lo, hi = (0.1, 0.9) if predict is None else (0.0, 1.0)
    return gate(group=group, lo=lo, hi=hi, predict=predict, explore=explore)
