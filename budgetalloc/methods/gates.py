"""Gates: prompts of medium success rate pass, other prompts with a small probability."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_array, check_function, check_integer, check_number
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.ranking import ranked

__all__ = ["Predict", "gate", "pass_or_explore", "predictor_name"]

Predict = Callable[[View], ArrayLike]
"""Predicted success rates of a view's prompts, shape (P,); NaN where nothing is known."""


def gate(
    *,
    group: int = 8,
    lo: float = 0.1,
    hi: float = 0.9,
    predict: Predict | None = None,
    explore: float = 0.05,
    discount: float = 0.9,
    idle: float = 1.0,
    seed: int = 0,
) -> Policy:
    """Rolls out prompts whose predicted success rate lies between `lo` and `hi`, in groups of equal
    size.

    A prompt outside the bounds passes with probability `explore`: changes of its rate are noticed.
    As many of the passing prompts as fit into the budget are chosen at random. If too few pass,
    other prompts are added at random, and the budget is spent exactly. The rule and its defaults
    are ours.

    The rule is about rates, not variance. For graded success the rate is the mean: a prompt that
    always earns 0.5 passes, although it has no gradient. `vade` and `cures` leave it out.

    Args:
        group: Rollouts of a chosen prompt, at least 1.
        lo, hi: Bounds of the rates that pass, both excluded; lo in [0, 1), hi in (lo, 1].
        predict: Returns the rates from a view; NaN passes. The default is the mean of the belief,
            with NaN for prompts never seen. If it depends on other state that changes, a resumed
            run differs.
        explore: Probability that a prompt outside the bounds passes, in [0, 1]. With 0, it may
            never be rolled out again.
        discount, idle: As in `BetaEstimator`.
        seed: Seeds the draws.

    >>> from budgetalloc import Budget
    >>> policy = gate(seed=0)
    >>> policy.observe(["solved"] * 8 + ["half"] * 8 + ["failed"] * 8, [1] * 8 + [0, 1] * 4 + [0] * 8)
    >>> policy.allocate(["solved", "half", "failed", "new"], Budget(rollouts=16, floor=0))
    array([0, 8, 0, 8])
    """
    if predict is not None:
        check_function(
            "predict", predict, "of a View that returns one rate for each of its prompts"
        )
    check_number("lo", lo, 0, 1, without=(1,))
    check_number("hi", hi, lo, 1, without=(lo,))

    def passes(view: View) -> NDArray[np.bool_]:
        if predict is None:
            rate_P = np.where(view.cold_P, math.nan, view.belief_P.mean)
        else:
            rate_P = check_array("predict(view)", predict(view), "one rate for each prompt")
        if rate_P.shape != (len(view.ids_P),):
            raise InputError(
                f"predict={predictor_name(predict)} gave shape {rate_P.shape}: give one rate for "
                "each prompt."
            )
        return np.asarray(np.isnan(rate_P) | ((lo < rate_P) & (rate_P < hi)))

    settings = (
        f"group={group}, lo={lo}, hi={hi}, predict={predictor_name(predict)}, explore={explore}"
    )
    name = f"gate({settings}, discount={discount}, idle={idle}, seed={seed})"
    estimator, needs = (
        BetaEstimator(discount=discount, idle=idle),
        Needs(candidates="all", baseline="group"),
    )
    return Policy(name, pass_or_explore(passes, group, explore), estimator, seed, needs)


def pass_or_explore(
    passes: Callable[[View], NDArray[np.bool_]], group: int, explore: float
) -> Callable[[View], IntArray]:
    """The rule that takes prompts that pass or are explored in random order, and then the
    others."""
    check_integer("group", group, 1)
    check_number("explore", explore, 0, 1)

    def decide(view: View) -> IntArray:
        explore_draw_P, order_draw_P = view.rng.random((2, len(view.ids_P)))
        return ranked(
            (passes(view) | (explore_draw_P < explore)) + order_draw_P + 1e-12, group, view
        )

    return decide


def predictor_name(predict: Predict | None) -> str | None:
    return None if predict is None else getattr(predict, "__name__", repr(predict))
