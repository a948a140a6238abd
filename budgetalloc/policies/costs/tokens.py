"""Limits on response length: per rollout, per prompt, and over training."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.ids import check_ids
from budgetalloc.beliefs.rewards import as_rewards
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_array, check_integer, check_list, check_number

__all__ = ["budget_partition", "curriculum_budget", "length_caps"]


def budget_partition(n: int, budgets: Sequence[int]) -> IntArray:
    """Token limit of each of a prompt's n rollouts: one subgroup for each budget (HBPO, arXiv 2507.15844).

    Subgroups have equal sizes; a remainder goes to the first ones. The paper's budgets lie between 512 and 2,560.

    Args:
        n: Rollouts, at least one for each budget and at most a million.
        budgets: Tokens of each subgroup, at least 1.

    >>> budget_partition(8, [512, 1024, 2048, 2560])
    array([ 512,  512, 1024, 1024, 2048, 2048, 2560, 2560])
    """
    given = check_list("budgets", budgets, "the tokens of each subgroup, such as [512, 1024]")
    if not given:
        raise InputError("budgets is empty: give at least one, such as [512, 1024].")
    tokens = np.array([check_integer("budgets", budget, 1) for budget in given], dtype=np.int64)
    n = check_integer("n", n, len(tokens), 10**6)
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

    The paper derives a task's longest trajectory from its past successes but does not give the rule, and the released
    code has none. The rule and its defaults are ours. A `factor` near 1 cuts later successes, and the limit then
    tightens from visit to visit.

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
    threshold = check_number("threshold", threshold, -math.inf, math.inf)
    wins: dict[Any, list[float]] = {}
    for name, length, reward in zip(names_R, lengths, rewards, strict=True):
        if reward > threshold:
            wins.setdefault(name, []).append(length)
    limit_of = {
        name: int(np.clip(np.ceil(factor * np.quantile(own, quantile)), 1, longest))
        for name, own in wins.items()
        if len(own) >= least
    }
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
