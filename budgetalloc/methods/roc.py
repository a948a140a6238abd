"""Resample on correct: each group's share of successes, chosen by lowest penalty."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_choice, check_integer
from budgetalloc.methods.downselect.resampling import resample_on_correct
from budgetalloc.methods.oversampling import generate_and_keep, rng_of_step
from budgetalloc.policies.policy import Policy

__all__ = ["roc"]


def roc(
    *,
    generate: int = 2,
    penalty: int | None = None,
    choose: Literal["lowest", "drawn"] = "lowest",
    seed: int = 0,
) -> Policy:
    """Keeps each group's share of successes, by lowest penalty (GRPO-RoC of rStar2-Agent, arXiv
    2508.20722).

    A rollout counts as a success if its success is above 0. A reward function may return the
    penalty: give it weight 0 to keep it out of the reward. The released code keeps the successes of
    lowest penalty and the first failures. The paper is quoted as drawing both (`choose="drawn"`);
    its text was not verified. The code then rejects groups of equal rewards; here they have
    advantage 0.

    Args:
        generate: Rollouts generated for each one trained on, at least 2; 32 for 16 in the paper.
        penalty: Which reward function returns the penalty, counted from 0; None is no penalty.
        choose: "lowest", the released rule; "drawn", failures uniformly and successes with chances
            inverse to their penalty. The draws depend on the seed and on the step's ids and
            rewards.
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
        rng = rng_of_step(seed, ids_R, rewards_R) if choose == "drawn" else None
        return resample_on_correct(
            ids_R, rewards_R, rows, penalties_R, success_R=success_R, rng=rng
        )

    return generate_and_keep("roc", generate, keep, seed, f", penalty={penalty}, choose={choose!r}")


def _column(scores_RF: FloatArray | None, at: int) -> FloatArray:
    if scores_RF is None or at >= scores_RF.shape[1]:
        there = (
            "none was passed"
            if scores_RF is None
            else f"there are {scores_RF.shape[1]}, counted from 0"
        )
        raise InputError(
            f"penalty={at}: of the columns scores_RF of the reward functions {there}. Use "
            "penalty=None."
        )
    return np.asarray(scores_RF[:, at])
