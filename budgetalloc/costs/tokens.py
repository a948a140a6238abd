"""Budgets in tokens: how long a response may be, how that moves over training, and what schemes that cut it cost.

Pure functions on numbers and arrays. Rewards that depend on length are not here: they are the trainer's.
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
from budgetalloc.errors import InputError, check_choice, check_integer, check_number

PRIORS = ("uniform", "linear", "base")


def budget_partition(n: int, budgets: Sequence[int]) -> IntArray:
    """Most tokens of each of a prompt's n rollouts: equal subgroups, one for each budget (HBPO, arXiv 2507.15844).

    The paper's budgets lie between 512 and 2,560. Where n is no multiple of their number the first subgroups have one
    more, which is ours. The reward by which rollouts learn to keep to their budget is not part of this.

    Args:
        n: Rollouts, at least one for each budget.
        budgets: Tokens of each subgroup, at least 1 each.

    >>> budget_partition(8, [512, 1024, 2048, 2560])
    array([ 512,  512, 1024, 1024, 2048, 2048, 2560, 2560])
    """
    if not budgets:
        raise InputError("budgets is empty: give at least one, such as [512, 1024].")
    tokens = np.array([check_integer("budgets", budget, 1) for budget in budgets], dtype=np.int64)
    n = check_integer("n", n, len(tokens))
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
    """Most tokens of each prompt, `factor` x a quantile of the lengths of its past successes (DART, arXiv 2509.23866).

    The paper sets a task's longest trajectory from the length of past successes. How is not known to us, and the
    released code has no such rule: factor, quantile and the number of successes needed are ours. A cap also cuts
    successes to come: without room above the quantile (`factor` near 1) it tightens from visit to visit.

    Args:
        ids_P: Prompts to decide about, shape (P,).
        ids_R: The prompt of each past rollout, shape (R,).
        lengths_R: Its tokens, or steps, shape (R,).
        rewards_R: Its reward, shape (R,); NaN is no reward.
        longest: Cap of a prompt with fewer than `least` successes, and of all others.
        factor: c, above 0.
        quantile: In [0, 1], interpolated linearly between lengths.
        least: Successes needed, at least 1.
        threshold: A success is a reward above this.

    Returns:
        Caps, rounded up, from 1 to `longest`, shape (P,).

    >>> length_caps(["a", "b"], ["a", "a", "a", "b"], [100, 200, 900, 500], [1, 1, 0, 0], longest=1000, least=2,
    ...             quantile=1.0)
    array([ 300, 1000])
    """
    names_P, names_R = check_ids(ids_P, "ids_P"), check_ids(ids_R, "ids_R")
    rewards = as_rewards(rewards_R, len(names_R))
    lengths = np.asarray(lengths_R, dtype=np.float64)
    if lengths.shape != rewards.shape or not (np.isfinite(lengths) & (lengths >= 0)).all():
        raise InputError(f"lengths_R has shape {lengths.shape}: give {len(names_R)} finite lengths of at least 0.")
    longest, least = check_integer("longest", longest, 1), check_integer("least", least, 1)
    factor = check_number("factor", factor, 0, math.inf, without=(0,))
    quantile = check_number("quantile", quantile, 0, 1)
    check_number("threshold", threshold, -math.inf, math.inf)

    won = np.flatnonzero(rewards > threshold)
    names, group = factorize([*names_P, *(names_R[row] for row in won.tolist())])
    at_P, group = group[: len(names_P)], group[len(names_P) :]
    ordered = lengths[won][np.lexsort((lengths[won], group))]
    wins = np.bincount(group, minlength=len(names))
    first = np.cumsum(wins) - wins
    caps = np.full(len(names), longest, dtype=np.int64)
    enough = np.flatnonzero(wins >= least)
    place = quantile * (wins[enough] - 1)
    below = np.floor(place).astype(np.int64)
    low, high = ordered[first[enough] + below], ordered[first[enough] + np.minimum(below + 1, wins[enough] - 1)]
    caps[enough] = np.clip(np.ceil(factor * (low + (place - below) * (high - low))), 1, longest)
    return caps[at_P]


def curriculum_budget(step: int, *, first: int = 256, decay: float = 0.7, every: int = 150) -> int:
    """Tokens of a response at a step, max(1, first x decay^floor(step / every)) (Train Long, Think Short).

    The defaults are those of the main runs, over 600 steps. Rounded down.

    Args:
        step: From 0.
        first: Tokens at the start.
        decay: Factor at each change, in (0, 1].
        every: Steps between changes. The paper reports 75 and 150 best; 300 did much worse on MATH500.

    >>> [curriculum_budget(step) for step in (0, 149, 150, 300, 450, 599)]
    [256, 256, 179, 125, 87, 87]
    """
    first = check_integer("first", first, 1)
    decay = check_number("decay", decay, 0, 1, without=(0,))
    changes = check_integer("step", step, 0) // check_integer("every", every, 1)
    return _down(first * decay**changes)


def stepwise_budget(step: int, *, first: int = 256, last: int = 87, changes: int = 3, steps: int = 600) -> int:
    """Tokens of a response at a step, from `first` to `last` in equal ratios (Train Long, Think Short).

    After k changes, first x d^k with d = (last / first)^(1 / changes); a change comes every steps / (changes + 1). The
    defaults are ours: they begin and end with the budgets of `curriculum_budget`.

    Args:
        step: From 0; beyond `steps` the last budget stays.
        first: Tokens at the start.
        last: Tokens at the end.
        changes: n, at least 1.
        steps: Length of the run.

    >>> [stepwise_budget(step) for step in (0, 150, 300, 450, 599)]
    [256, 178, 124, 87, 87]
    """
    first, last = check_integer("first", first, 1), check_integer("last", last, 1)
    changes, steps = check_integer("changes", changes, 1), check_integer("steps", steps, 1)
    done = min(changes, check_integer("step", step, 0) * (changes + 1) // steps)
    return _down(first * (last / first) ** (done / changes))


def elastic_split(longest: int = 2048, *, solution: int = 1024) -> tuple[int, int]:
    """Most tokens of the thinking, which is cut there by force, and of the solution (Elastic Reasoning).

    The solution always has its share. Training used 1,024 + 1,024.

    >>> elastic_split(2048)
    (1024, 1024)
    """
    solution = check_integer("solution", solution, 1)
    return check_integer("longest", longest, solution) - solution, solution


def anytime_budgets(longest: int = 8000, k: int = 4) -> IntArray:
    """Where one long reasoning is truncated, longest x j / k for j = 1..k (AnytimeReasoner), rounded down.

    >>> anytime_budgets(8000, 4)
    array([2000, 4000, 6000, 8000])
    """
    k = check_integer("k", k, 1)
    return check_integer("longest", longest, k) * np.arange(1, k + 1, dtype=np.int64) // k


def anytime_prior(budgets_K: ArrayLike, prior: str = "uniform") -> FloatArray:
    """How likely each budget is, summing to 1: "uniform", "linear" (proportional to it) or "base" (the largest only).

    >>> anytime_prior([2000, 4000, 6000, 8000], "linear")
    array([0.1, 0.2, 0.3, 0.4])
    """
    check_choice("prior", prior, PRIORS)
    budgets = np.asarray(budgets_K, dtype=np.float64)
    if (
        budgets.ndim != 1
        or not budgets.size
        or not np.isfinite(budgets).all()
        or (np.diff(budgets, prepend=0) <= 0).any()
    ):
        raise InputError(f"budgets_K={budgets_K!r}: give rising budgets above 0, such as anytime_budgets(8000, 4).")
    if prior == "base":
        return np.where(np.arange(budgets.size) == budgets.size - 1, 1.0, 0.0)
    weights = budgets if prior == "linear" else np.ones_like(budgets)
    return np.asarray(weights / weights.sum())


def anytime_returns(rewards_K: ArrayLike, budgets_K: ArrayLike, prior: str = "uniform") -> FloatArray:
    """Return of the tokens of each segment, the sum over later truncations of P_j r_j (AnytimeReasoner, BRPO).

    Tokens of segment s, which ends at budget b_s, are read by the answers at the truncations j >= s only. The baseline
    that the method subtracts is the caller's: it comes from the same prefix or group.

    Args:
        rewards_K: Mean reward of the answers at each truncation, shape (..., K), finite.
        budgets_K: Where the truncations are, shape (K,).
        prior: As in `anytime_prior`.

    Returns:
        Returns, shape (..., K).

    >>> anytime_returns([0, 1, 0.5, 1], anytime_budgets(8000, 4))
    array([0.625, 0.625, 0.375, 0.25 ])
    >>> anytime_returns([0, 1, 0.5, 1], anytime_budgets(8000, 4), "base")  # plain GRPO on the whole
    array([1., 1., 1., 1.])
    """
    weights = anytime_prior(budgets_K, prior)
    rewards = np.asarray(rewards_K, dtype=np.float64)
    if rewards.ndim == 0 or rewards.shape[-1] != weights.size or not np.isfinite(rewards).all():
        raise InputError(
            f"rewards_K has shape {rewards.shape}: give a finite reward for each of {weights.size} budgets."
        )
    return np.flip(np.cumsum(np.flip(rewards * weights, axis=-1), axis=-1), axis=-1)


def anytime_cost(longest: int = 8000, k: int = 4, *, summaries: int = 4, summary_tokens: int) -> int:
    """Most tokens generated for one reasoning: the chain, and `summaries` short answers at each of k truncations.

    >>> anytime_cost(8000, 4, summaries=4, summary_tokens=128)
    10048
    """
    longest, k = check_integer("longest", longest, 1), check_integer("k", k, 1)
    return longest + k * check_integer("summaries", summaries, 1) * check_integer("summary_tokens", summary_tokens, 1)


def over_provision(rollouts: int, factor: float = 2.0) -> int:
    """Rollouts to start so that the first `rollouts` to finish can be taken (APRIL), rounded up.

    APRIL starts N' > N, aborts what is left when N are complete, and resumes those first in the next round; the
    default factor is that of its example, 64 for 32. `kept_length` measures what that does to lengths.

    >>> over_provision(32)
    64
    """
    rollouts = check_integer("rollouts", rollouts, 1)
    return math.ceil(rollouts * check_number("factor", factor, 1, math.inf) * (1 - 1e-12))


def kept_length(
    lengths: ArrayLike,
    *,
    rollouts: int = 32,
    factor: float = 2.0,
    rounds: int = 200,
    resume: bool = True,
    seed: int = 0,
) -> float:
    """Mean length of the responses kept under over-provision, over the mean of all: below 1 is a bias to short ones.

    A simulation: each round runs `over_provision(rollouts, factor)` responses at one token a tick, and stops when
    `rollouts` are complete. With `resume` the aborted ones go on in the next round, in place of new ones, so that each
    is kept in the end; without, they are lost and the short ones win. A run that resumes is still short of long ones at
    first, as the longest are under way. Lengths are drawn again and again from those given.

    Args:
        lengths: Tokens of past responses, at least 1 each: an empirical distribution.
        rollouts: Kept each round.
        factor: Started over kept, at least 1.
        rounds: Simulated.
        resume: Whether aborted responses go on.
        seed: Of the draws.

    >>> lengths = np.random.default_rng(0).lognormal(6, 0.7, size=2000)  # mean 504, median 394
    >>> [round(kept_length(lengths, factor=factor, resume=False), 2) for factor in (1, 1.25, 2)]
    [1.0, 0.71, 0.49]
    >>> [round(kept_length(lengths, rounds=rounds), 2) for rounds in (4, 400)]  # factor 2, the aborted go on
    [0.79, 0.99]
    """
    given = np.asarray(lengths, dtype=np.float64)
    if given.ndim != 1 or not given.size or not (np.isfinite(given) & (given >= 1)).all():
        raise InputError(f"lengths has shape {given.shape}: give finite lengths of at least 1.")
    started, rounds = over_provision(rollouts, factor), check_integer("rounds", rounds, 1)
    rng = np.random.default_rng(check_integer("seed", seed, 0))
    full, left = np.zeros(0), np.zeros(0)  # of those under way: length, and tokens still to come
    kept = 0.0
    for _ in range(rounds):
        new = rng.choice(given, size=started - full.size)
        full, left = np.concatenate([full, new]), np.concatenate([left, new])
        order = np.argsort(left, kind="stable")
        kept += float(full[order[:rollouts]].sum())
        rest = order[rollouts:] if resume else order[:0]
        full, left = full[rest], left[rest] - left[order[rollouts - 1]]
    return kept / (rounds * rollouts * float(given.mean()))


def speculative_saved(log_ratio_T: ArrayLike, *, bias: float = -0.5, scale: float = 1.0) -> float:
    """Expected tokens of an old response that are accepted as a draft, and so not generated again (SPEC-RL).

    Token t is accepted with probability exp(min(0, scale x (log_ratio_t - bias))); the draft is cut at the first that
    is not. So the expectation is the sum over t of the product of the probabilities up to t. The draft costs one
    forward pass of the new policy.

    Args:
        log_ratio_T: Log-probability of each token under the new policy less that under the old, shape (T,).
        bias: The released code's: -0.5 is a lenience of e^0.5. 0 with scale 1 is exact speculative sampling.
        scale: Above 0; 1 is ours.

    >>> speculative_saved([0.0, -0.5, -2.0])  # the first two always, the third with e^-1.5
    2.22313016014843
    """
    ratios = np.asarray(log_ratio_T, dtype=np.float64)
    if ratios.ndim != 1 or np.isnan(ratios).any():
        raise InputError(f"log_ratio_T has shape {ratios.shape}: give a number for each token of one response.")
    scale = check_number("scale", scale, 0, math.inf, without=(0,))
    bias = check_number("bias", bias, -math.inf, math.inf)
    return float(np.exp(np.cumsum(np.minimum(0.0, scale * (ratios - bias)))).sum())


def _down(tokens: float) -> int:
    """Rounded down, at least 1; a whole number that rounding errors have moved below itself stays whole."""
    return max(1, math.floor(tokens * (1 + 1e-12)))
