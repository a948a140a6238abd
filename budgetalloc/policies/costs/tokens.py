"""Budgets in tokens: limits on response length, schedules of these limits over training, and the cost of truncation.

All functions are pure; rewards that depend on length belong to the trainer.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.ids import check_ids, factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import as_rewards
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_array, check_choice, check_integer, check_list, check_number, shown

_MOST_ENTRIES = 10**6  # of an answer that has one entry for each unit of an argument


def budget_partition(n: int, budgets: Sequence[int]) -> IntArray:
    """Token limit of each of a prompt's n rollouts: one subgroup for each budget (HBPO, arXiv 2507.15844).

    Subgroups have equal sizes; a remainder goes to the first ones. The paper's budgets lie between 512 and 2,560.

    Args:
        n: Rollouts, at least one for each budget.
        budgets: Tokens of each subgroup, at least 1.

    >>> budget_partition(8, [512, 1024, 2048, 2560])
    array([ 512,  512, 1024, 1024, 2048, 2048, 2560, 2560])
    """
    given = check_list("budgets", budgets, "the tokens of each subgroup, such as [512, 1024]")
    if not given:
        raise InputError("budgets is empty: give at least one, such as [512, 1024].")
    tokens = np.array([check_integer("budgets", budget, 1) for budget in given], dtype=np.int64)
    n = check_integer("n", n, len(tokens), _MOST_ENTRIES)
    return tokens[np.sort(np.arange(n) % len(tokens))]


def length_caps(
    ids_P: Iterable[Any],
    ids_R: Iterable[Any],
    lengths_R: ArrayLike,
    rewards_R: ArrayLike,
    *,
    longest: int,
    factor: float = 1.5,
    quantile: float = 0.9,
    least: int = 4,
    threshold: float = 0.5,
) -> IntArray:
    """Token limit of each prompt: `factor` times a quantile of the lengths of its past successes (DART, 2509.23866).

    The paper sets a task's longest trajectory from its past successes but does not give the rule, and the released
    code has none: the rule and its defaults are not the paper's. A limit near the quantile (`factor` near 1) cuts later
    successes and so tightens from visit to visit.

    Args:
        ids_P: Prompts to decide about, shape (P,).
        ids_R: The prompt of each past rollout, shape (R,).
        lengths_R: Its tokens or steps, shape (R,).
        rewards_R: Its reward, shape (R,); NaN is no reward.
        longest: Upper limit of all prompts, and the limit of a prompt with fewer than `least` successes.
        factor: Above 0.
        quantile: In [0, 1], interpolated linearly.
        least: Successes needed, at least 1.
        threshold: A success is a reward above this.

    Returns:
        Limits from 1 to `longest`, rounded up, shape (P,).

    >>> length_caps(["a", "b"], ["a", "a", "a", "b"], [100, 200, 900, 500], [1, 1, 0, 0], longest=1000, least=2)
    array([ 285, 1000])
    """
    names_P, names_R = check_ids(ids_P, "ids_P"), check_ids(ids_R, "ids_R")
    rewards = as_rewards(rewards_R, len(names_R))
    lengths = check_array("lengths_R", lengths_R, "one length a rollout")
    if lengths.shape != rewards.shape or not (np.isfinite(lengths) & (lengths >= 0)).all():
        raise InputError(f"lengths_R has shape {lengths.shape}: give {len(names_R)} finite lengths of at least 0.")
    longest, least = check_integer("longest", longest, 1), check_integer("least", least, 1)
    factor = check_number("factor", factor, 0, math.inf, without=(0,))
    quantile = check_number("quantile", quantile, 0, 1)
    success_R = rewards > check_number("threshold", threshold, -math.inf, math.inf)
    names, group_R = factorize(names_R)
    limit_of = {}
    order = np.flatnonzero(success_R)[np.argsort(group_R[success_R], kind="stable")]
    wins_G = np.bincount(group_R[success_R], minlength=len(names))
    for name, rows in zip(names, np.split(order, np.cumsum(wins_G)[:-1]), strict=True) if names else ():
        if len(rows) >= least:
            limit_of[name] = int(np.clip(np.ceil(factor * np.quantile(lengths[rows], quantile)), 1, longest))
    return np.array([limit_of.get(name, longest) for name in names_P], dtype=np.int64)


def curriculum_budget(step: int, *, first: int = 256, decay: float = 0.7, every: float = 150, last: int = 1) -> int:
    """Token limit at a step, max(last, first * decay^floor(step / every)), rounded down (Train Long, Think Short).

    The defaults are those of the paper's main runs, over 600 steps. Its step-wise form, `first` to `last` in k changes
    over T steps, is `decay=(last / first) ** (1 / k)` with `every=T / (k + 1)`.

    Args:
        step: From 0.
        first: Tokens at the start, at least 1.
        decay: Factor at each change, in (0, 1].
        every: Steps between changes. The paper reports 75 and 150 best; 300 did much worse on MATH500.
        last: Fewest tokens, at least 1.

    >>> [curriculum_budget(step) for step in (0, 149, 150, 300, 450, 599)]
    [256, 256, 179, 125, 87, 87]
    """
    first, last = check_integer("first", first, 1), check_integer("last", last, 1)
    decay = check_number("decay", decay, 0, 1, without=(0,))
    changes = math.floor(check_integer("step", step, 0) / check_number("every", every, 0, math.inf, without=(0,)))
    return max(last, math.floor(first * decay**changes * (1 + 1e-12)))  # keeps whole numbers whole


def elastic_split(longest: int = 2048, *, solution: int = 1024) -> tuple[int, int]:
    """Token limits of the thinking, which is truncated, and of the solution, whose share is reserved.

    Elastic Reasoning trains with 1,024 + 1,024 tokens.

    >>> elastic_split(3072)
    (2048, 1024)
    """
    solution = check_integer("solution", solution, 1)
    return check_integer("longest", longest, solution) - solution, solution


def anytime_budgets(longest: int = 8000, k: int = 4) -> IntArray:
    """Token counts at which one reasoning is truncated: longest * j / k for j = 1..k, rounded down (AnytimeReasoner).

    >>> anytime_budgets(8000, 4)
    array([2000, 4000, 6000, 8000])
    """
    k = check_integer("k", k, 1, _MOST_ENTRIES)
    return check_integer("longest", longest, k) * np.arange(1, k + 1, dtype=np.int64) // k


def anytime_prior(budgets_K: ArrayLike, prior: str = "uniform") -> FloatArray:
    """Probability of each budget: "uniform", "linear" (proportional to the budget) or "base" (the largest only).

    >>> anytime_prior([2000, 4000, 6000, 8000], "linear")
    array([0.1, 0.2, 0.3, 0.4])
    """
    check_choice("prior", prior, ("uniform", "linear", "base"))
    budgets = check_array("budgets_K", budgets_K, "ascending budgets above 0")
    ascending = budgets.ndim == 1 and budgets.size and (np.diff(budgets, prepend=0) > 0).all()
    if not ascending or not np.isfinite(budgets).all():
        raise InputError(
            f"budgets_K={shown(budgets_K)}: give ascending budgets above 0, such as anytime_budgets(8000, 4)."
        )
    if prior == "base":
        return np.where(np.arange(budgets.size) == budgets.size - 1, 1.0, 0.0)
    weights = budgets if prior == "linear" else np.ones_like(budgets)
    return np.asarray(weights / weights.sum())


def anytime_returns(rewards_K: ArrayLike, budgets_K: ArrayLike, prior: str = "uniform") -> FloatArray:
    """Return of each segment's tokens: the sum of P_j r_j over its own and all later truncations (AnytimeReasoner).

    No baseline is subtracted; the method takes one from the same prefix or group.

    Args:
        rewards_K: Mean reward of the answers at each truncation, shape (..., K), finite.
        budgets_K: Where the truncations are, shape (K,).
        prior: As in `anytime_prior`.

    Returns:
        Returns, shape (..., K).

    >>> anytime_returns([0, 1, 0.5, 1], anytime_budgets(8000, 4))
    array([0.625, 0.625, 0.375, 0.25 ])
    >>> anytime_returns([0, 1, 0.5, 1], anytime_budgets(8000, 4), "base")  # plain GRPO on the whole response
    array([1., 1., 1., 1.])
    """
    weights = anytime_prior(budgets_K, prior)
    rewards = check_array("rewards_K", rewards_K, "a mean reward at each truncation")
    if rewards.ndim == 0 or rewards.shape[-1] != weights.size or not np.isfinite(rewards).all():
        raise InputError(
            f"rewards_K has shape {rewards.shape}: give a finite reward for each of {weights.size} budgets."
        )
    return np.flip(np.cumsum(np.flip(rewards * weights, axis=-1), axis=-1), axis=-1)


def anytime_cost(longest: int = 8000, k: int = 4, *, summaries: int = 4, summary_tokens: int) -> int:
    """Most tokens of one reasoning: the chain, and `summaries` short answers at each of k truncations.

    >>> anytime_cost(8000, 4, summaries=4, summary_tokens=128)
    10048
    """
    longest, k = check_integer("longest", longest, 1), check_integer("k", k, 1)
    return longest + k * check_integer("summaries", summaries, 1) * check_integer("summary_tokens", summary_tokens, 1)


def over_provision(rollouts: int, factor: float = 2.0) -> int:
    """Rollouts to start so that the first `rollouts` to finish can be taken, rounded up (APRIL).

    APRIL starts 64 rollouts for 32, aborts the rest and resumes the aborted ones first in the next round. Discarding
    them would favour short responses: with lognormal lengths of sigma 0.7, the first half has 0.48 of the mean length.

    >>> over_provision(32)
    64
    """
    rollouts = check_integer("rollouts", rollouts, 1)
    return math.ceil(rollouts * check_number("factor", factor, 1, math.inf) * (1 - 1e-12))


def speculative_saved(log_ratio_T: ArrayLike, *, bias: float = -0.5, scale: float = 1.0) -> float:
    """Expected tokens of an old response that are accepted as a draft and so not generated again (SPEC-RL).

    Token t is accepted with probability exp(min(0, scale * (log_ratio_t - bias))), and the draft is cut at the first
    rejection. The draft costs one forward pass of the new policy.

    Args:
        log_ratio_T: Log-probability of each token under the new policy less that under the old one, shape (T,).
        bias: The released code's default is a lenience of e^0.5; 0 with scale 1 is exact speculative sampling.
        scale: Above 0; the default of 1 is not the paper's.

    >>> speculative_saved([0.0, -0.5, -2.0])  # 1 + 1 + e^-1.5
    2.22313016014843
    """
    ratios = check_array("log_ratio_T", log_ratio_T, "a number for each token of one response")
    if ratios.ndim != 1 or np.isnan(ratios).any():
        raise InputError(f"log_ratio_T has shape {ratios.shape}: give a number for each token of one response.")
    scale = check_number("scale", scale, 0, math.inf, without=(0,))
    bias = check_number("bias", bias, -math.inf, math.inf)
    return float(np.exp(np.cumsum(np.minimum(0.0, scale * (ratios - bias)))).sum())
