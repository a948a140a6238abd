"""Published methods that generate more than they train on: equal counts, then a rule of `downselect`.

A step generates `generate` times what it trains on, all of it counted, and all of it observed. The trainer's advantages
are taken over all that was generated; where a paper takes them over the rows kept, its docstring says so. Nothing is
saved in generation, only in the update.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from budgetalloc.advantages import group_advantages
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_choice, check_integer, check_number
from budgetalloc.policies import downselect
from budgetalloc.policies.base import Policy
from budgetalloc.policies.compose import uniform
from budgetalloc.policies.decision import Keep, Needs


def pods(*, generate: int = 4, seed: int = 0) -> Policy:
    """Trains on the rows of each group whose rewards vary most (PODS, arXiv 2504.13818).

    The released code takes the advantages over the rows kept; here they are taken over the whole group.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. The default is ours.
        seed: Of ties.

    >>> policy = pods(generate=2)
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 0, 0]), 4)
    array([0, 3, 4, 6])
    """

    def keep(ids_R: Sequence[Id], rewards_R: FloatArray, rows: int, scores_RF: FloatArray | None = None) -> IntArray:
        return downselect.max_variance(ids_R, rewards_R, rows)

    return _more("pods", generate, keep, seed)


def d3s(*, generate: int = 4, seed: int = 0) -> Policy:
    """Trains on the rows of the whole batch whose advantages vary most (D3S, arXiv 2509.22115, cross-group rule).

    Advantages are normalised inside each group over all its rollouts and not again. Groups of equal rewards are
    dropped, rare successes and rare failures kept. The paper also drops tokens and relaxes both shares in the course
    of training (`downselect.d3s_schedule`), which a batch of fixed size does not allow: neither is part of this.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. The default is ours.
        seed: Of ties.

    >>> policy = d3s(generate=2)
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 1, 1]), 4)
    array([0, 1, 2, 3])
    """

    def keep(ids_R: Sequence[Id], rewards_R: FloatArray, rows: int, scores_RF: FloatArray | None = None) -> IntArray:
        return downselect.max_variance(ids_R, _advantages(ids_R, rewards_R), rows, across=True)

    return _more("d3s", generate, keep, seed)


def cppo(*, generate: int = 4, seed: int = 0) -> Policy:
    """Trains on the rows of each group with the largest |advantage| (CPPO, arXiv 2503.22342).

    A pruning rate P is `generate = 1 / (1 - P)`. The paper's dynamic completion allocation, which fills the room that
    pruning leaves on a device with further prompts, is not part of this: the batch that is trained on has a fixed size.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. 4 is P = 75 %.
        seed: Of ties.

    >>> policy = cppo(generate=4)
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 0, 1]), 2)
    array([3, 6])
    """

    def keep(ids_R: Sequence[Id], rewards_R: FloatArray, rows: int, scores_RF: FloatArray | None = None) -> IntArray:
        return downselect.cppo(ids_R, _advantages(ids_R, rewards_R), rows)

    return _more("cppo", generate, keep, seed)


def shuffle_r1(*, generate: int = 2, draws: int = 8, seed: int = 0) -> Policy:
    """Pairs the best with the worst of each group, then draws pairs again by |advantage| (Shuffle-R1, 2508.05612).

    Of 2N rollouts a prompt N are kept as pairs; `draws` draws without replacement, together of as many pairs, make the
    batch: a pair may come up to `draws` times or never, and pairs of advantage 0 only where too few others are left.
    The draws depend on the seed and on the ids and rewards of the step.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. 2 is the paper's alpha = 0.5.
        draws: S, at least 1.
        seed: Of the draws and ties.

    >>> policy = shuffle_r1(generate=2, draws=2)  # b has no signal: the pair of a comes twice
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 1, 1]), 4)
    array([1, 1, 3, 3])
    """
    check_integer("draws", draws, 1)

    def keep(ids_R: Sequence[Id], rewards_R: FloatArray, rows: int, scores_RF: FloatArray | None = None) -> IntArray:
        advantages_R = _advantages(ids_R, rewards_R)
        pairs_J2 = downselect.extreme_pairs(ids_R, advantages_R, rows)
        rest = np.zeros(0, dtype=np.int64)
        if 2 * len(pairs_J2) < rows:  # an odd row, or groups without a pair
            rest = np.setdiff1d(downselect.pairwise_extremes(ids_R, advantages_R, rows), pairs_J2)
        if not len(pairs_J2):
            return rest
        weights_J = np.abs(advantages_R[pairs_J2]).sum(axis=1)
        rng = _rng(seed, ids_R, rewards_R)
        drawn = downselect.weighted_resample(weights_J, len(pairs_J2), draws=draws, rng=rng)
        return np.sort(np.r_[pairs_J2[drawn].ravel(), rest])

    return _more("shuffle_r1", generate, keep, seed, f", draws={draws}")


def roc(
    *,
    generate: int = 2,
    penalty: int | None = None,
    choose: Literal["lowest", "drawn"] = "lowest",
    seed: int = 0,
) -> Policy:
    """Keeps each group's share of successes, and of them the cleanest (GRPO-RoC of rStar2-Agent, arXiv 2508.20722).

    A success is a total reward above 0. A reward function may return the penalty: give it weight 0, so that it does
    not enter the reward. The released code keeps the successes of lowest penalty and the first failures; the paper is
    quoted as drawing both (`choose="drawn"`; we have not verified its text). The code then rejects groups of equal
    rewards, which here have advantage 0.

    Args:
        generate: Rollouts generated for each one trained on, at least 2; 32 for 16 in the paper.
        penalty: Which reward function returns the penalty, counted from 0; None is no penalty.
        choose: "lowest", the released rule; "drawn", failures uniformly and successes with chances inverse to their
            penalty. The draws depend on the seed and on the ids and rewards of the step.
        seed: Of the draws and ties.

    >>> policy = roc(generate=2, penalty=1)
    >>> scores_RF = np.array([[0, 0.0], [1, 0.5], [1, 0.1], [0, 0.0], [1, 0.9], [1, 0.2], [0, 0.0], [0, 0.0]])
    >>> policy.keep(["a"] * 8, scores_RF[:, 0], 4, scores_RF)
    array([0, 2, 3, 5])
    """
    check_choice("choose", choose, ("lowest", "drawn"))
    if penalty is not None:
        check_integer("penalty", penalty, 0)

    def keep(ids_R: Sequence[Id], rewards_R: FloatArray, rows: int, scores_RF: FloatArray | None = None) -> IntArray:
        penalties_R = None if penalty is None else _column(scores_RF, penalty)
        rng = _rng(seed, ids_R, rewards_R) if choose == "drawn" else None
        return downselect.resample_on_correct(ids_R, rewards_R, rows, penalties_R, rng=rng)

    return _more("roc", generate, keep, seed, f", penalty={penalty}, choose={choose!r}")


def keep_mixed(*, generate: int = 2, seed: int = 0) -> Policy:
    """Trains on groups of unequal rewards first: DAPO's filter (arXiv 2503.14476) in one round, without resampling.

    Where there are too few such rows the others fill the batch, with advantage 0. `dapo` resamples until it is full.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. The default is ours.
        seed: Of ties.

    >>> policy = keep_mixed(generate=2)
    >>> policy.keep(["a"] * 2 + ["b"] * 2, np.array([1.0, 1, 0, 1]), 2)
    array([2, 3])
    """
    return _more("keep_mixed", generate, downselect.mixed_first, seed)


def top_p(*, generate: int = 2, share: float = 0.9, seed: int = 0) -> Policy:
    """Trains on the groups that hold `share` of all reward variance: SNR-aware filter (RAGEN-2, arXiv 2604.06268).

    The batch has a fixed size. Too many rows are cut from the kept groups of least variance, too few are filled up
    from the dropped groups of least variance: as a rule equal rewards, hence advantage 0.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. The default is ours.
        share: p in (0, 1]. The default is ours.
        seed: Of ties.

    >>> policy = top_p(generate=2, share=0.5)
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 0, 0]), 4)
    array([4, 5, 6, 7])
    """
    share = check_number("share", share, 0, 1, without=(0,))

    def keep(ids_R: Sequence[Id], rewards_R: FloatArray, rows: int, scores_RF: FloatArray | None = None) -> IntArray:
        return downselect.top_p_variance(ids_R, rewards_R, share, rows)

    return _more("top_p", generate, keep, seed, f", share={share}")


def _more(name: str, generate: int, keep: Callable[..., IntArray], seed: int, settings: str = "") -> Policy:
    """Uniform counts of a budget that is `generate` times what is trained on."""
    check_integer("generate", generate, 2)
    kept: Keep = keep
    needs = Needs(baseline="group", generate=generate)
    name = f"{name}(generate={generate}{settings}, seed={seed})"
    return replace(uniform(seed=seed), name=name, needs=needs, keep=kept)


def _advantages(ids_R: Sequence[Id], rewards_R: FloatArray) -> FloatArray:
    """Advantages normalised inside each group, NaN without a reward."""
    return np.where(np.isnan(rewards_R), np.nan, group_advantages(rewards_R, ids_R, "group", "group"))


def _rng(seed: int, ids_R: Sequence[Id], rewards_R: FloatArray) -> np.random.Generator:
    """Seeded by what the step showed, so that all processes and every repetition draw the same."""
    shown = repr(list(ids_R)).encode() + np.ascontiguousarray(rewards_R, dtype=np.float64).tobytes()
    return np.random.default_rng([seed, zlib.crc32(shown)])


def _column(scores_RF: FloatArray | None, at: int) -> FloatArray:
    if scores_RF is None or at >= scores_RF.shape[1]:
        there = "none was passed" if scores_RF is None else f"there are {scores_RF.shape[1]}, counted from 0"
        raise InputError(f"penalty={at}: of the columns scores_RF of the reward functions {there}. Use penalty=None.")
    return np.asarray(scores_RF[:, at])
