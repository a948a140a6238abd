"""Methods that generate more rollouts than they train on: equal counts, then a rule of `downselect`.

All generated rollouts count against the budget and are observed, and advantages are computed over all of them. If a
paper computes them over the kept rows, the method's docstring says so. These methods save updates, not generation.
"""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_choice, check_integer, check_number
from budgetalloc.policies.advantages import group_advantages
from budgetalloc.policies.composition import uniform
from budgetalloc.policies.downselect.pairs import extreme_pairs, pairwise_extremes, weighted_resample
from budgetalloc.policies.downselect.resampling import resample_on_correct
from budgetalloc.policies.downselect.rules import largest_advantages, mixed_first, top_p_variance
from budgetalloc.policies.downselect.variance import max_variance
from budgetalloc.policies.interface import Keep, Needs
from budgetalloc.policies.policy import Policy

__all__ = ["cppo", "d3s", "keep_mixed", "pods", "roc", "shuffle_r1", "top_p"]


def _generate_and_keep(name: str, generate: int, keep: Keep, seed: int, settings: str = "") -> Policy:
    """A policy with uniform counts that generates `generate` times the rollouts that it trains on."""
    check_integer("generate", generate, 2)
    name = f"{name}(generate={generate}{settings}, seed={seed})"
    return replace(uniform(seed=seed), name=name, needs=Needs(baseline="group", generate=generate), keep=keep)


def _scaled_advantages(ids_R: Sequence[Id], rewards_R: FloatArray) -> FloatArray:
    """Advantages normalised within each group, NaN without a reward."""
    return np.where(np.isnan(rewards_R), np.nan, group_advantages(rewards_R, ids_R, "group", "group"))


def _rng_of_step(seed: int, ids_R: Sequence[Id], rewards_R: FloatArray) -> np.random.Generator:
    """A generator seeded by the step's ids and rewards: all processes and repetitions draw the same."""
    shown = repr(list(ids_R)).encode() + np.ascontiguousarray(rewards_R, dtype=np.float64).tobytes()
    return np.random.default_rng([seed, zlib.crc32(shown)])


def pods(*, generate: int = 4, seed: int = 0) -> Policy:
    """Trains on the rows of each group whose rewards vary most (PODS, arXiv 2504.13818).

    The released code computes advantages over the rows kept; here they are computed over the whole group.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. The default is our choice.
        seed: Seeds the ties.

    >>> import numpy as np
    >>> policy = pods(generate=2)
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 0, 0]), 4)
    array([0, 3, 4, 6])
    """
    return _generate_and_keep("pods", generate, lambda ids, rewards, rows, *_: max_variance(ids, rewards, rows), seed)


def d3s(*, generate: int = 4, seed: int = 0) -> Policy:
    """Trains on the rows of the whole batch whose advantages vary most (D3S, arXiv 2509.22115, cross-group rule).

    Advantages are normalized once, within each group over all its rollouts. Groups of equal rewards are dropped; rare
    successes and rare failures are kept. The paper also drops tokens and relaxes both shares during training
    (`downselect.d3s_schedule`). Neither is included, because the batch has a fixed size.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. The default is our choice.
        seed: Seeds the ties.

    >>> import numpy as np
    >>> policy = d3s(generate=2)
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 1, 1]), 4)
    array([0, 1, 2, 3])
    """
    return _generate_and_keep(
        "d3s",
        generate,
        lambda ids, rewards, rows, *_: max_variance(ids, _scaled_advantages(ids, rewards), rows, across=True),
        seed,
    )


def cppo(*, generate: int = 4, seed: int = 0) -> Policy:
    """Trains on the rows of each group with the largest |advantage| (CPPO, arXiv 2503.22342).

    A pruning rate P is `generate = 1 / (1 - P)`. The paper also fills the freed memory of a device with further
    prompts. That is not included, because the batch that is trained on has a fixed size.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. 4 is P = 75 %.
        seed: Seeds the ties.

    >>> import numpy as np
    >>> policy = cppo(generate=4)
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 0, 1]), 2)
    array([3, 6])
    """
    return _generate_and_keep(
        "cppo",
        generate,
        lambda ids, rewards, rows, *_: largest_advantages(ids, _scaled_advantages(ids, rewards), rows),
        seed,
    )


def shuffle_r1(*, generate: int = 2, draws: int = 8, seed: int = 0) -> Policy:
    """Pairs the best with the worst of each group, then draws pairs again by |advantage| (Shuffle-R1, 2508.05612).

    Of 2N rollouts of a prompt, N are kept as pairs. The batch consists of `draws` equal draws of pairs, each without
    replacement. A pair therefore appears 0 to `draws` times. Pairs of advantage 0 are drawn only if too few other pairs
    are left. The draws depend on the seed and on the step's ids and rewards.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. 2 is the paper's alpha = 0.5.
        draws: S, at least 1.
        seed: Seeds the draws and the ties.

    >>> policy = shuffle_r1(generate=2, draws=2)  # b has no signal: the pair of a comes twice
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 1, 1]), 4)
    array([1, 1, 3, 3])
    """
    check_integer("draws", draws, 1, 1024)

    def keep(ids_R: Sequence[Id], rewards_R: FloatArray, rows: int, *_: object) -> IntArray:
        advantages_R = _scaled_advantages(ids_R, rewards_R)
        pairs_J2 = extreme_pairs(ids_R, advantages_R, rows)
        rest = np.zeros(0, dtype=np.int64)
        if 2 * len(pairs_J2) < rows:  # an odd row, or groups without a pair
            rest = np.setdiff1d(pairwise_extremes(ids_R, advantages_R, rows), pairs_J2)
        if not len(pairs_J2):
            return rest
        weights_J = np.abs(advantages_R[pairs_J2]).sum(axis=1)
        rng = _rng_of_step(seed, ids_R, rewards_R)
        drawn = weighted_resample(weights_J, len(pairs_J2), draws=draws, rng=rng)
        return np.sort(np.r_[pairs_J2[drawn].ravel(), rest])

    return _generate_and_keep("shuffle_r1", generate, keep, seed, f", draws={draws}")


def roc(
    *,
    generate: int = 2,
    penalty: int | None = None,
    choose: Literal["lowest", "drawn"] = "lowest",
    seed: int = 0,
) -> Policy:
    """Keeps each group's share of successes, by lowest penalty (GRPO-RoC of rStar2-Agent, arXiv 2508.20722).

    A rollout counts as a success if its success is above 0. A reward function may return the penalty: give it weight 0
    to keep it out of the reward. The released code keeps the successes of lowest penalty and the first failures. The
    paper is quoted as drawing both (`choose="drawn"`); its text was not verified. The code then rejects groups of equal
    rewards; here they have advantage 0.

    Args:
        generate: Rollouts generated for each one trained on, at least 2; 32 for 16 in the paper.
        penalty: Which reward function returns the penalty, counted from 0; None is no penalty.
        choose: "lowest", the released rule; "drawn", failures uniformly and successes with chances inverse to their
            penalty. The draws depend on the seed and on the step's ids and rewards.
        seed: Seeds the draws and the ties.

    >>> policy = roc(generate=2, penalty=1)
    >>> scores_RF = np.array([[0, 0.0], [1, 0.5], [1, 0.1], [0, 0.0], [1, 0.9], [1, 0.2], [0, 0.0], [0, 0.0]])
    >>> policy.keep(["a"] * 8, scores_RF[:, 0], 4, scores_RF)
    array([0, 2, 3, 5])
    """
    check_choice("choose", choose, ("lowest", "drawn"))
    if penalty is not None:
        check_integer("penalty", penalty, 0)

    def keep(
        ids_R: Sequence[Id],
        rewards_R: FloatArray,
        rows: int,
        scores_RF: FloatArray | None = None,
        success_R: FloatArray | None = None,
    ) -> IntArray:
        penalties_R = None if penalty is None else _column(scores_RF, penalty)
        rng = _rng_of_step(seed, ids_R, rewards_R) if choose == "drawn" else None
        return resample_on_correct(ids_R, rewards_R, rows, penalties_R, success_R=success_R, rng=rng)

    return _generate_and_keep("roc", generate, keep, seed, f", penalty={penalty}, choose={choose!r}")


def _column(scores_RF: FloatArray | None, at: int) -> FloatArray:
    if scores_RF is None or at >= scores_RF.shape[1]:
        there = "none was passed" if scores_RF is None else f"there are {scores_RF.shape[1]}, counted from 0"
        raise InputError(f"penalty={at}: of the columns scores_RF of the reward functions {there}. Use penalty=None.")
    return np.asarray(scores_RF[:, at])


def keep_mixed(*, generate: int = 2, seed: int = 0) -> Policy:
    """Trains on mixed groups first: DAPO's filter (arXiv 2503.14476) in one round, without resampling.

    If there are too few such rows, other rows fill the batch, with advantage 0. Use `dapo` to resample instead.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. The default is our choice.
        seed: Seeds the ties.

    >>> import numpy as np
    >>> policy = keep_mixed(generate=2)
    >>> policy.keep(["a"] * 2 + ["b"] * 2, np.array([1.0, 1, 0, 1]), 2)
    array([2, 3])
    """
    return _generate_and_keep("keep_mixed", generate, mixed_first, seed)


def top_p(*, generate: int = 2, share: float = 0.9, seed: int = 0) -> Policy:
    """Trains on the groups that hold `share` of all reward variance: SNR-aware filter (RAGEN-2, arXiv 2604.06268).

    The batch has a fixed size. Surplus rows are cut from the kept groups of least variance. Missing rows come from the
    dropped groups of least variance, whose rewards are usually equal, so that their advantage is 0.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. The default is our choice.
        share: p in (0, 1]. The default is our choice.
        seed: Seeds the ties.

    >>> import numpy as np
    >>> policy = top_p(generate=2, share=0.5)
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 0, 0]), 4)
    array([4, 5, 6, 7])
    """
    share = check_number("share", share, 0, 1, without=(0,))

    return _generate_and_keep(
        "top_p",
        generate,
        lambda ids, rewards, rows, *_: top_p_variance(ids, rewards, share, rows),
        seed,
        f", share={share}",
    )
