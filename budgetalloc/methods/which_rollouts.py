"""Methods that generate more rollouts than they train on: uniform counts, then a rule of
`downselect`.

All generated rollouts count against the budget and are observed, and advantages are computed over
all of them. The methods save updates, not generation.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError
from budgetalloc.methods import downselect
from budgetalloc.methods.table import AboveZero, Between, method
from budgetalloc.policies import Needs, Policy, uniform
from budgetalloc.policies.group_advantages import group_advantages
from budgetalloc.policies.interface import Keep

Generate = Annotated[int, Between(2)]


def generate_and_keep(generate: int, keep: Keep) -> Policy:
    """Uniform counts, of `generate` times the rollouts that are trained on."""
    return replace(uniform(), needs=Needs(baseline="group", generate=generate), keep=keep)


def _scaled_advantages(ids_R: Sequence[Id], rewards_R: FloatArray) -> FloatArray:
    """Advantages normalised within each group, NaN without a reward."""
    advantages_R = group_advantages(rewards_R, ids_R, "group", "group")
    return np.where(np.isnan(rewards_R), np.nan, advantages_R)


@dataclass(frozen=True)
class _Resampled:
    """What Shuffle-R1 keeps. `Policy` gives it its seed."""

    draws: int
    seed: int = 0

    def __call__(
        self, ids_R: Sequence[Id], rewards_R: FloatArray, rows: int, *_: object
    ) -> IntArray:
        advantages_R = _scaled_advantages(ids_R, rewards_R)
        pairs_J2 = downselect.extreme_pairs(ids_R, advantages_R, rows)
        rest = np.zeros(0, dtype=np.int64)
        if 2 * len(pairs_J2) < rows:  # an odd row, or groups without a pair
            every = downselect.pairwise_extremes(ids_R, advantages_R, rows)
            rest = np.setdiff1d(every, pairs_J2)
        if not len(pairs_J2):
            return rest
        weights_J = np.abs(advantages_R[pairs_J2]).sum(axis=1)
        # seeded by the step's ids and rewards: all processes and repetitions draw the same
        rewards = np.ascontiguousarray(rewards_R, dtype=np.float64)
        step = zlib.crc32(repr(list(ids_R)).encode() + rewards.tobytes())
        rng = np.random.default_rng([self.seed, step])
        drawn = downselect.weighted_resample(weights_J, len(pairs_J2), draws=self.draws, rng=rng)
        return np.sort(np.r_[pairs_J2[drawn].ravel(), rest])


@method("which rollouts", "released code")
def pods(*, generate: Generate = 4, seed: int = 0) -> Policy:
    """Keeps of each group the rewards that differ most, the lowest and the highest, and trains on
    these. It saves the time of updates, not of generation.

    Formula: of each group the m rewards of largest variance: the j lowest and the m - j highest.

    Source: PODS (arXiv 2504.13818). Compared with the released code, where advantages are over the
    rows kept. Here they are over all generated rollouts. `generate` is our default.

    >>> rewards_R = np.array([0.0, 0, 0, 1, 1, 1, 0, 0])
    >>> pods(generate=2).keep(["a"] * 4 + ["b"] * 4, rewards_R, 4)
    array([0, 3, 4, 6])
    """
    return generate_and_keep(
        generate, lambda ids, rewards, rows, *_: downselect.max_variance(ids, rewards, rows)
    )


@method("which rollouts", "a description")
def d3s(*, generate: Generate = 4, seed: int = 0) -> Policy:
    """Keeps the rollouts of the whole batch whose advantages differ most, and trains on these. It
    saves the time of updates, not of generation.

    Formula: of the whole batch the rows of largest variance of (r - mean) / std of their group.

    Source: D3S (arXiv 2509.22115). Compared with a description only. The token level and the
    relaxation of the share during training are left out. `generate` is our default.

    >>> rewards_R = np.array([0.0, 0, 0, 1, 1, 1, 1, 1])
    >>> d3s(generate=2).keep(["a"] * 4 + ["b"] * 4, rewards_R, 4)
    array([0, 1, 2, 3])
    """
    return generate_and_keep(
        generate,
        lambda ids, rewards, rows, *_: downselect.max_variance(
            ids, _scaled_advantages(ids, rewards), rows, across=True
        ),
    )


@method("which rollouts", "released code")
def cppo(*, generate: Generate = 4, seed: int = 0) -> Policy:
    """Keeps of each group the rollouts with the largest advantages, positive or negative, and
    trains on these. It saves the time of updates, not of generation.

    Formula: of each group the rows of largest |(r - mean) / std|.

    Source: CPPO (arXiv 2503.22342). Compared with the released code. The released verl recipe
    prunes the whole batch at once. The paper also fills the freed memory of a device with further
    prompts.

    A pruning rate P is `generate = 1 / (1 - P)`.

    >>> rewards_R = np.array([0.0, 0, 0, 1, 1, 1, 0, 1])
    >>> cppo(generate=4).keep(["a"] * 4 + ["b"] * 4, rewards_R, 2)
    array([3, 6])
    """
    return generate_and_keep(
        generate,
        lambda ids, rewards, rows, *_: downselect.largest_advantages(
            ids, _scaled_advantages(ids, rewards), rows
        ),
    )


@method("which rollouts", "paper's formulas")
def keep_mixed(*, generate: Generate = 2, seed: int = 0) -> Policy:
    """Generates more rollouts than it trains on and keeps the groups with unequal rewards first. It
    does in one round, without resampling, what `dapo` does in several.

    Formula: groups of unequal rewards first.

    Source: DAPO's filter (arXiv 2503.14476). Compared with the paper's formulas. `generate` is our
    default.

    >>> keep_mixed(generate=2).keep(["a"] * 2 + ["b"] * 2, np.array([1.0, 1, 0, 1]), 2)
    array([2, 3])
    """
    return generate_and_keep(generate, downselect.mixed_first)


@method("which rollouts", "released code")
def top_p(*, generate: Generate = 2, share: AboveZero = 0.9, seed: int = 0) -> Policy:
    """Trains on the groups whose rewards vary most, as few as hold a given share of all variance.
    It is meant to keep groups with little signal out of the update.

    Formula: the fewest groups whose reward variances add up to a share p of all.

    Source: RAGEN-2 (arXiv 2604.06268). Compared with the released code, which adds up standard
    deviations instead and stops 0.01 before the share. p and `generate` are our defaults.

    Groups of least variance fill the batch.

    >>> rewards_R = np.array([0.0, 0, 0, 1, 1, 1, 0, 0])
    >>> top_p(generate=2, share=0.5).keep(["a"] * 4 + ["b"] * 4, rewards_R, 4)
    array([4, 5, 6, 7])
    """
    return generate_and_keep(
        generate,
        lambda ids, rewards, rows, *_: downselect.top_p_variance(ids, rewards, share, rows),
    )


@method("which rollouts", "released code")
def shuffle_r1(
    *, generate: Generate = 2, draws: Annotated[int, Between(1, 1024)] = 8, seed: int = 0
) -> Policy:
    """Pairs the highest with the lowest advantages of a group, and trains more often on pairs with
    large advantages. It is meant for groups in which most advantages are near 0.

    Formula: pairs (k-th largest, k-th smallest advantage), then 8 draws without replacement by |A1|
    + |A2|.

    Source: Shuffle-R1 (arXiv 2508.05612). Compared with the released code. Too few positive weights
    are no error here.

    A rollout may be trained on several times. The draws depend on the seed and on the step's ids
    and rewards.

    >>> rewards_R = np.array([0.0, 0, 0, 1, 1, 1, 1, 1])  # b has no signal: a's pair comes twice
    >>> shuffle_r1(generate=2, draws=2).keep(["a"] * 4 + ["b"] * 4, rewards_R, 4)
    array([1, 1, 3, 3])
    """

    return generate_and_keep(generate, _Resampled(draws))


@method("which rollouts", "released code")
def roc(
    *, generate: Generate = 2, penalty: Annotated[int, Between(0)] | None = None, seed: int = 0
) -> Policy:
    """Keeps the successes with the lowest penalty, such as for failed calls of tools, and the first
    failures. It is meant for agents, whose right answers may follow from faulty steps.

    Formula: round(m |positive| / n) successes of lowest penalty and the first failures, at least 2
    of each kind.

    Source: GRPO-RoC (arXiv 2508.20722). Compared with the released code, which rejects groups of
    equal rewards beforehand. Here they have advantage 0. The paper keeps 16 of 32.

    Args:
        penalty: Which reward function returns the penalty, counted from 0; give it weight 0 to keep
            it out of the reward. None is no penalty.

    >>> scores_RF = np.array([[0, 1, 1, 0, 1, 1, 0, 0], [0, 0.5, 0.1, 0, 0.9, 0.2, 0, 0]]).T
    >>> roc(generate=2, penalty=1).keep(["a"] * 8, scores_RF[:, 0], 4, scores_RF)
    array([0, 2, 3, 5])
    """

    def keep(
        ids_R: Sequence[Id],
        rewards_R: FloatArray,
        rows: int,
        scores_RF: FloatArray | None = None,
        success_R: FloatArray | None = None,
    ) -> IntArray:
        penalties_R = None
        if penalty is not None:
            functions = 0 if scores_RF is None else scores_RF.shape[1]
            if scores_RF is None or penalty >= functions:
                raise InputError(
                    f"penalty={penalty}: scores_RF has the rewards of {functions} functions, "
                    "counted from 0. Use penalty=None, or one of them.",
                    argument="penalty",
                )
            penalties_R = scores_RF[:, penalty]
        return downselect.resample_on_correct(
            ids_R, rewards_R, rows, penalties_R, success_R=success_R
        )

    return generate_and_keep(generate, keep)
