"""Published rules that divide a prompt's rollouts between fresh ones and branches of a tree.

`budgetalloc.trl.experimental.trees.Trees` follows them.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, check_array, check_integer, check_number, check_type

__all__ = ["LATR_COUNTDOWN", "LATR_MATH", "aepo_branch_probability", "aepo_split", "latr_split"]

LATR_COUNTDOWN = {0: 1.0, 10: 0.75, 20: 0.5, 80: 0.25, 200: 0.0}  # schedules of LATR's released scripts
LATR_MATH = {0: 1.0, 100: 0.75, 200: 0.5, 300: 0.25}


def aepo_split(k: int, entropy_root: float, entropy_tool: float, *, beta: float = 1.0) -> tuple[int, int]:
    """Rollouts from scratch and branches: m = k sigmoid(beta (H_root - H_tool)) and k - m (AEPO, arXiv 2510.14545).

    m is rounded to the nearest integer and is at least 1. We did not find the paper's beta; 1 is a guess.

    Args:
        k: Rollouts of the prompt.
        entropy_root: Mean entropy at the question, at least 0.
        entropy_tool: Mean entropy after tool calls, at least 0.
        beta: Sharpness, at least 0.

    >>> aepo_split(16, 1.0, 1.0), aepo_split(16, 2.0, 0.5), aepo_split(16, 0.0, 9.0)
    ((8, 8), (13, 3), (1, 15))
    """
    k, beta = check_integer("k", k, 1), check_number("beta", beta, 0, math.inf)
    root = check_number("entropy_root", entropy_root, 0, math.inf)
    tool = check_number("entropy_tool", entropy_tool, 0, math.inf)
    scratch = max(1, math.floor(k * (1 + math.tanh(beta * (root - tool) / 2)) / 2 + 0.5))  # a sigmoid without overflow
    return scratch, k - scratch


def aepo_branch_probability(
    entropy_change: ArrayLike, consecutive: ArrayLike, *, alpha: float = 0.5, gamma: float = 0.2, penalty: float = 0.25
) -> FloatArray:
    """Probability of a branch at a tool step, (alpha + gamma dH) (1 - penalty l) (AEPO, arXiv 2510.14545).

    The second factor limits branches that follow each other on one trajectory. Each factor is clipped to [0, 1]. We
    did not find the paper's penalty; 0.25 is a guess. alpha and gamma are those of the predecessor's code (ARPO).

    Args:
        entropy_change: dH at the step, any shape, finite.
        consecutive: l, branches in a row on the trajectory, at least 0, broadcast against `entropy_change`.
        alpha: In [0, 1].
        gamma: At least 0.
        penalty: At least 0.

    >>> aepo_branch_probability([0.5, 0.5, 0.5, -1.0], [0, 1, 4, 0])
    array([0.6 , 0.45, 0.  , 0.3 ])
    """
    alpha, gamma = check_number("alpha", alpha, 0, 1), check_number("gamma", gamma, 0, math.inf)
    penalty = check_number("penalty", penalty, 0, math.inf)
    change = check_array("entropy_change", entropy_change, "a number for each tool step")
    row = check_array("consecutive", consecutive, "a number of branches for each tool step")
    try:
        np.broadcast_shapes(change.shape, row.shape)
    except ValueError as error:
        raise InputError(
            f"consecutive has shape {row.shape}, entropy_change {change.shape}: give one number a tool step."
        ) from error
    if not np.isfinite(change).all() or not (np.isfinite(row) & (row >= 0)).all():
        raise InputError("entropy_change, consecutive: give finite numbers, and at least 0 in consecutive.")
    return np.asarray(np.clip(alpha + gamma * change, 0, 1) * np.clip(1 - penalty * row, 0, 1))


def latr_split(rollouts: int, step: int, schedule: Mapping[int, float] = LATR_COUNTDOWN) -> tuple[int, int]:
    """Tree rollouts and independent samples of a step (LATR); the tree's share is rounded to the nearest rollout.

    Args:
        rollouts: Rollouts of the step.
        step: From 0.
        schedule: The first step of each phase, one of them 0, and its share of tree rollouts, such as `LATR_MATH`.

    >>> [latr_split(8, step) for step in (0, 10, 80, 200)], latr_split(8, 500, LATR_MATH)
    ([(8, 0), (6, 2), (2, 6), (0, 8)], (2, 6))
    """
    rollouts, step = check_integer("rollouts", rollouts, 1), check_integer("step", step, 0)
    check_type("schedule", schedule, Mapping, "a mapping from steps to shares, such as LATR_MATH")
    shares = {check_integer("schedule", at, 0): check_number("schedule", x, 0, 1) for at, x in schedule.items()}
    if 0 not in shares:
        raise InputError(f"schedule={dict(schedule)!r} has no share for step 0: add {{0: 1.0}}.")
    tree = math.floor(rollouts * shares[max(at for at in shares if at <= step)] + 0.5)
    return tree, rollouts - tree
