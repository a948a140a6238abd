"""Off-policy estimates from groups and prompts that another policy chose. Pure functions of arrays.

The mean over the sub-samples of m <= n rollouts of a logged group of n is an unbiased estimate of any figure of a
group of m (a U-statistic: Hoeffding, Annals of Mathematical Statistics 1948). Prompts that were not logged are
represented by those that were, weighted by the inverse of the probability to be logged (Horvitz and Thompson, JASA
1952), or by a model, or by both: the doubly robust estimate is unbiased if one of the two is correct (Dudik, Langford
and Li, arXiv 1103.4601). `budgetalloc.offline.one_step_value` applies them to a policy and a log.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, check_array, check_function, shown

_MOST = 100_000  # rollouts of a group: the estimates add up as many terms
Statistic = Callable[[FloatArray, FloatArray], ArrayLike]
"""(successes_G, rollouts_G) -> a figure of each group, such as 0 < successes < rollouts."""


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


def mean_within(statistic: Statistic, passed_G: ArrayLike, rollouts_G: ArrayLike, counts_G: ArrayLike) -> FloatArray:
    """The unbiased estimate of the mean of any figure of a group of m, from s successes in n rollouts.

    The mean over all sub-samples: the sum over k of statistic(k, m) C(s,k) C(n-s,m-k) / C(n,m). NaN where m > n.

    >>> hit = lambda passed_G, rollouts_G: passed_G > 0  # pass@m: the estimate of arXiv 2107.03374
    >>> mean_within(hit, [1, 3], 8, 4).round(4)
    array([0.5   , 0.9286])
    """
    check_function("statistic", statistic, "(successes_G, rollouts_G) -> a figure of each group")
    passed, rollouts, counts = _checked(passed_G, rollouts_G, counts_G)
    known = counts <= rollouts
    drawn = np.where(known, counts, 0.0)
    total = np.zeros(drawn.shape)
    for k in range(int(drawn.max(initial=0)) + 1):
        figure = check_array(
            "statistic", statistic(np.full(drawn.shape, float(k)), drawn), "a function that gives numbers"
        )
        if figure.shape not in ((), drawn.shape):
            raise InputError(f"statistic gave shape {figure.shape} for {drawn.shape} groups: give one number each.")
        total += np.where(k <= drawn, _hypergeometric(k, rollouts, passed, drawn) * figure, 0.0)
    return np.where(known, total, np.nan)


def mixed_variance(rates_G: ArrayLike, rollouts_G: ArrayLike, counts_G: ArrayLike) -> FloatArray:
    """The variance of `mixed_within` at a success rate p, for n logged rollouts and a group of m.

    Hoeffding's formula: the sum over c = 1 to m of C(m,c) C(n-m,m-c) / C(n,m) times the variance that c common
    rollouts explain, p^(2m-c) + q^(2m-c) - (p^m + q^m)^2. At m = n it is the variance of one observation, v (1 - v).

    Args:
        rates_G: p, in [0, 1].
        rollouts_G, counts_G: n and m, as in `mixed_within`. The three broadcast.

    >>> mixed_variance(0.5, [4, 8, 8, 8], [4, 4, 2, 8]).round(4)
    array([0.1094, 0.0203, 0.0089, 0.0078])
    """
    rate = check_array("rates_G", rates_G, "success rates in [0, 1]")
    if not ((rate >= 0) & (rate <= 1)).all():
        raise InputError(f"rates_G={shown(rates_G)}: a success rate lies in [0, 1].")
    _, rollouts, counts = _checked(0, rollouts_G, counts_G)
    rate, rollouts, counts = _broadcast(rate, rollouts, counts)
    known = (counts <= rollouts) & (counts > 1)
    n, m, total = np.where(known, rollouts, 2.0), np.where(known, counts, 2.0), np.zeros(rate.shape)
    for c in range(1, int(m.max(initial=0)) + 1):
        left = np.maximum(2 * m - c, 0.0)
        variance = rate**left + (1 - rate) ** left - (rate**m + (1 - rate) ** m) ** 2
        total += _hypergeometric(c, n, m, m) * variance
    return np.where(counts > rollouts, np.nan, np.where(known, total, 0.0))


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

    It is biased in small samples, consistent, and has less variance than `horvitz_thompson` if outcomes are similar:
    its weights sum to one, so that the estimate does not grow with the number of prompts logged.

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
    model = check_array("model_P", model_P, "one number a prompt")
    if model.shape != outcomes.shape or not np.isfinite(model).all():
        raise InputError(
            f"model_P has shape {model.shape} for {outcomes.shape} outcomes: give a finite number for each."
        )
    return float(model.sum() + np.nansum((outcomes - model) / propensities))


def _hypergeometric(k: int, whole: FloatArray, part: FloatArray, drawn: FloatArray) -> FloatArray:
    """The chance that of `drawn` out of `whole`, without replacement, exactly k are among `part`."""
    from scipy.special import gammaln  # deferred: importing budgetalloc loads no scipy

    fits = (k <= part) & (k <= drawn) & (drawn - k <= whole - part)
    whole, part, drawn = (np.where(fits, x, float(k)) for x in (whole, part, drawn))

    def ways(of: FloatArray, chosen: FloatArray | float) -> FloatArray:
        return np.asarray(gammaln(of + 1) - gammaln(chosen + 1) - gammaln(of - chosen + 1))

    return np.where(fits, np.exp(ways(part, k) + ways(whole - part, drawn - k) - ways(whole, drawn)), 0.0)


def _checked(passed_G: ArrayLike, rollouts_G: ArrayLike, counts_G: ArrayLike) -> list[NDArray[np.float64]]:
    named = {"passed_G": passed_G, "rollouts_G": rollouts_G, "counts_G": counts_G}
    arrays = [check_array(name, given, f"integers from 0 to {_MOST}") for name, given in named.items()]
    for name, array in zip(named, arrays, strict=True):
        if not ((array == np.floor(array)) & (array >= 0) & (array <= _MOST)).all():
            raise InputError(f"{name}={shown(named[name])}: give integers from 0 to {_MOST}.")
    passed, rollouts, counts = _broadcast(*arrays)
    if (passed > rollouts).any():
        at = int(np.argmax(passed > rollouts))
        raise InputError(
            f"passed_G has {passed.flat[at]:g} successes of {rollouts.flat[at]:g} rollouts: give at most as many "
            "successes as rollouts."
        )
    return [passed, rollouts, counts]


def _broadcast(*arrays: FloatArray) -> list[FloatArray]:
    try:
        return list(np.broadcast_arrays(*arrays))
    except ValueError as error:
        raise InputError(
            f"The arguments have shapes {[x.shape for x in arrays]}: give one number for each group."
        ) from error


def _logged(outcomes_P: ArrayLike, propensities_P: ArrayLike) -> tuple[FloatArray, FloatArray]:
    outcomes = check_array("outcomes_P", outcomes_P, "one outcome a prompt, NaN where it was not logged")
    propensities = check_array("propensities_P", propensities_P, "one probability a prompt")
    if outcomes.ndim != 1 or outcomes.shape != propensities.shape:
        raise InputError(
            f"outcomes_P has shape {outcomes.shape}, propensities_P {propensities.shape}: give one of each a prompt."
        )
    wrong = ~((propensities > 0) & (propensities <= 1))
    if wrong.any():
        raise InputError(
            f"propensities_P[{int(np.argmax(wrong))}]={propensities[wrong][0]:g}: {wrong.mean():.1%} of the prompts "
            "lie outside (0, 1]. The log has no answer for a prompt that could not be logged: leave such prompts out "
            "and say so, or use a model for them."
        )
    return outcomes, propensities
