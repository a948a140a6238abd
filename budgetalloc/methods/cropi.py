"""CROPI: prompts chosen by scores of your own, such as the influence of their gradients."""

from collections.abc import Callable
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, check_array
from budgetalloc.methods.rules import by_chance
from budgetalloc.methods.table import Count, Share, method, policy
from budgetalloc.policies import Policy, View
from budgetalloc.solvers.interface import largest

Score = Annotated[
    Callable[[View], ArrayLike],
    "of a View that returns a score for each of its prompts, or a row of scores",
]


@method("which prompts", "released code", starves=True, of_rates=True)
def cropi(
    *, score: Score | None = None, ratio: Share = 0.22, group: Count = 8, seed: int = 0
) -> Policy:
    """Gives groups to random prompts among those with the highest scores, which you compute. Use it
    where something outside the rewards says which prompts are worth training on.

    Formula: a group each to random prompts of the `ratio` with the highest score; by default p
    (1-p).

    Source: CROPI (arXiv 2510.26491). Compared with the released code, which writes the selected
    prompts to a file. A score there is the cosine of a prompt's gradient and that of a validation
    set; the gradients are yours to compute.

    Scores of shape (P, V), one for each of V validation sets, are merged as there: a prompt gets
    the sum of 1 / rank over the sets in which it is among the `ratio` with the highest score. A
    prompt whose score is NaN, such as one without a gradient, comes last. Without `score`, it is
    that of the belief's mean, which the code calls difficulty. What the selected prompts cannot
    take of the budget goes to others.

    Args:
        score: Higher is better. It may change between steps; if it depends on other state that
            changes, a resumed run differs.
        ratio: The share of the prompts that is selected, at least one of them.

    >>> from budgetalloc import Budget
    >>> influence = {"a": 0.1, "b": 0.7, "c": float("nan"), "d": 0.4}
    >>> policy = cropi(score=lambda view: [influence[x] for x in view.ids_P], ratio=0.5)
    >>> policy.allocate(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    array([0, 8, 0, 8])
    """

    def selected(view: View) -> FloatArray:
        prompts = len(view.ids_P)
        if score is None:
            score_PV = view.belief_P.mean * (1.0 - view.belief_P.mean)
        else:
            score_PV = check_array("score(view)", score(view), "one score for each prompt")
        if score_PV.shape[:1] != (prompts,) or score_PV.ndim > 2 or not score_PV.size:
            raise InputError(
                "score",
                f"gave shape {score_PV.shape} for {prompts} prompts: give one score for each, or a "
                "row of them.",
            )
        number = max(int(ratio * prompts), 1)
        selected_P = np.zeros(prompts)
        selected_P[largest(merged(score_PV.reshape(prompts, -1), number), number)] = 1.0
        return selected_P

    return policy(by_chance(selected, group), candidates="all")


def merged(score_PV: FloatArray, number: int) -> FloatArray:
    """One score for each prompt: its only one, or the sum of 1 / rank over the columns in which it
    is among the `number` highest.

    >>> merged(np.array([[0.9, 0.2], [0.5, 0.3], [0.1, 0.1]]), 2)
    array([1.5, 1.5, 0. ])
    """
    score_PV = np.where(np.isnan(score_PV), -np.inf, score_PV)
    if score_PV.shape[1] == 1:
        return score_PV[:, 0]
    order_PV = np.argsort(-score_PV, axis=0, kind="stable")[:number]
    sum_P = np.zeros(len(score_PV))
    np.add.at(sum_P, order_PV, 1.0 / np.arange(1, len(order_PV) + 1)[:, None])
    return sum_P
