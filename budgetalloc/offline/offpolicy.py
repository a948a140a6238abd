"""Off-policy estimates from groups and prompts that another policy chose. Pure functions of arrays.

The mean over the sub-samples of m <= n rollouts of a logged group of n is an unbiased estimate of any figure of a
group of m (a U-statistic: Hoeffding, Annals of Mathematical Statistics 1948). For prompts that were not logged, the
logged ones are weighted by the inverse of their probability to be logged (Horvitz and Thompson, JASA 1952), or a model
is used, or both: the doubly robust estimate is unbiased if one of the two is correct (Dudik, Langford and Li, arXiv
1103.4601). `budgetalloc.offline.one_step_value` applies them to a policy and a log.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, check_array, shown

__all__ = ["all_within", "doubly_robust", "horvitz_thompson", "mixed_within", "self_normalised"]

_MOST = 100_000  # rollouts of a group: the estimates add up as many terms


def mixed_within(passed_G: ArrayLike, rollouts_G: ArrayLike, counts_G: ArrayLike) -> FloatArray:
    """The unbiased estimate of P(mixed group of m) from s successes in n rollouts: 1 - C(s,m)/C(n,m) - C(n-s,m)/C(n,m).

    Args:
        passed_G: s, from 0 to n.
        rollouts_G: n.
        counts_G: m, at least 0. The three broadcast.

    Returns:
        In [0, 1]; 0 for m of 0 and 1; NaN where m > n, for which a model is needed.

    >>> mixed_within([4, 4, 1, 8, 4], 8, [2, 4, 8, 4, 9]).round(4)
    array([0.5714, 0.9714, 1.    , 0.    ,    nan])
    """
    passed, rollouts, counts = _checked(passed_G, rollouts_G, counts_G)
    mixed = 1.0 - all_within(passed, rollouts, counts) - all_within(rollouts - passed, rollouts, counts)
    return np.where(counts > 1, mixed, np.where(counts > rollouts, np.nan, 0.0))


def all_within(part_G: ArrayLike, rollouts_G: ArrayLike, counts_G: ArrayLike) -> FloatArray:
    """C(k, m) / C(n, m): the chance that m of n rollouts, drawn without replacement, are all among k of them.

    NaN where m > n. For rewards of many values, 1 minus the sum over the values is the chance of unequal rewards.

    >>> all_within([4, 4], 8, [2, 5]).round(4)
    array([0.2143, 0.    ])
    """
    part, rollouts, counts = _checked(part_G, rollouts_G, counts_G)
    chance = np.where(counts > rollouts, np.nan, 1.0)
    for j in range(int(counts[counts <= rollouts].max(initial=0))):
        chance *= np.where(counts > j, np.maximum(part - j, 0.0) / np.maximum(rollouts - j, 1.0), 1.0)
    return chance


def horvitz_thompson(outcomes_P: ArrayLike, propensities_P: ArrayLike) -> float:
    """The sum of the outcomes of all prompts: those logged, each divided by its probability to be logged.

    Unbiased for the true propensities, whatever the outcomes.

    Args:
        outcomes_P: The outcome of each prompt that the policy would give rollouts, NaN where it was not logged.
        propensities_P: The probability that it was logged with enough rollouts for an outcome, in (0, 1].

    Raises:
        InputError: a propensity outside (0, 1], with the share of prompts; shapes that differ.

    >>> horvitz_thompson([0.5, np.nan, 1.0, np.nan], [0.5, 0.5, 0.5, 0.5])
    3.0
    """
    outcomes, propensities = _logged(outcomes_P, propensities_P)
    return float(np.nansum(outcomes / propensities))


def self_normalised(outcomes_P: ArrayLike, propensities_P: ArrayLike) -> float:
    """The weighted mean of the outcomes times the number of prompts (Hajek); NaN where none was logged.

    It is biased in small samples, but consistent, and it has less variance than `horvitz_thompson` if outcomes are
    similar: its weights sum to one, so the estimate does not grow with the number of prompts logged.

    >>> self_normalised([0.5, np.nan, 1.0, 1.0], [0.5, 0.5, 0.5, 0.5])  # 4 (0.5 + 1 + 1) / 3
    3.3333333333333335
    """
    outcomes, propensities = _logged(outcomes_P, propensities_P)
    weights = np.where(np.isnan(outcomes), 0.0, 1.0 / propensities)
    return float(len(outcomes) * np.nansum(outcomes * weights) / weights.sum()) if weights.any() else float("nan")


def doubly_robust(outcomes_P: ArrayLike, propensities_P: ArrayLike, model_P: ArrayLike) -> float:
    """The sum of a model's expectations for all prompts, corrected by the logged outcomes: m + (y - m) / pi.

    It is unbiased if the propensities or the model are correct; a good model reduces the variance. The model must not
    have been trained on the outcomes.

    Args:
        outcomes_P, propensities_P: As in `horvitz_thompson`.
        model_P: The model's expected outcome of each prompt.

    >>> doubly_robust([0.5, np.nan, 1.0, np.nan], [0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.75, 0.75])  # 2.5 + 0 + 0.5
    3.0
    """
    outcomes, propensities = _logged(outcomes_P, propensities_P)
    model = check_array("model_P", model_P, "one number per prompt")
    if model.shape != outcomes.shape or not np.isfinite(model).all():
        raise InputError(
            f"model_P has shape {model.shape} for {outcomes.shape} outcomes: give a finite number for each."
        )
    return float(model.sum() + np.nansum((outcomes - model) / propensities))


def _checked(passed_G: ArrayLike, rollouts_G: ArrayLike, counts_G: ArrayLike) -> list[NDArray[np.float64]]:
    named = {"passed_G": passed_G, "rollouts_G": rollouts_G, "counts_G": counts_G}
    arrays = [check_array(name, given, f"integers from 0 to {_MOST}") for name, given in named.items()]
    for name, array in zip(named, arrays, strict=True):
        if not ((array == np.floor(array)) & (array >= 0) & (array <= _MOST)).all():
            raise InputError(f"{name}={shown(named[name])}: give integers from 0 to {_MOST}.")
    try:
        passed, rollouts, counts = np.broadcast_arrays(*arrays)
    except ValueError as error:
        raise InputError(
            f"The arguments have shapes {[x.shape for x in arrays]}: give one number for each group."
        ) from error
    if (passed > rollouts).any():
        at = int(np.argmax(passed > rollouts))
        raise InputError(
            f"passed_G has {passed.flat[at]:g} successes of {rollouts.flat[at]:g} rollouts: give at most as many "
            "successes as rollouts."
        )
    return [passed, rollouts, counts]


def _logged(outcomes_P: ArrayLike, propensities_P: ArrayLike) -> tuple[FloatArray, FloatArray]:
    outcomes = check_array("outcomes_P", outcomes_P, "one outcome per prompt, NaN where it was not logged")
    propensities = check_array("propensities_P", propensities_P, "one probability a prompt")
    if outcomes.ndim != 1 or outcomes.shape != propensities.shape:
        raise InputError(
            f"outcomes_P has shape {outcomes.shape}, propensities_P {propensities.shape}: give one of each per prompt."
        )
    wrong = ~((propensities > 0) & (propensities <= 1))
    if wrong.any():
        raise InputError(
            f"propensities_P[{int(np.argmax(wrong))}]={propensities[wrong][0]:g}: {wrong.mean():.1%} of the prompts "
            "lie outside (0, 1]. The log has no answer for a prompt that could not be logged: leave such prompts out "
            "and say so, or use a model for them."
        )
    return outcomes, propensities
