"""Published rules that divide a prompt's rollouts between fresh ones and branches of a tree."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, check_integer, check_number

__all__ = [
    "LATR_COUNTDOWN",
    "LATR_MATH",
    "aepo_branch_probability",
    "aepo_split",
    "checked_schedule",
    "latr_split",
]

# schedules of LATR's released scripts
LATR_COUNTDOWN = {0: 1.0, 10: 0.75, 20: 0.5, 80: 0.25, 200: 0.0}
LATR_MATH = {0: 1.0, 100: 0.75, 200: 0.5, 300: 0.25}


def aepo_split(k: int, entropy_root: float, entropy_tool: float) -> tuple[int, int]:
    """Rollouts from scratch and branches: m = k sigmoid(H_root - H_tool) and k - m (AEPO, arXiv
    2510.14545).

    m is rounded to the nearest integer and is at least 1. We did not find the paper's factor of the
    difference; 1 is a guess.

    Args:
        k: Rollouts of the prompt, at least 1.
        entropy_root: Mean entropy at the question.
        entropy_tool: Mean entropy after tool calls.

    >>> aepo_split(16, 1.0, 1.0), aepo_split(16, 2.0, 0.5), aepo_split(16, 0.0, 9.0)
    ((8, 8), (13, 3), (1, 15))
    """
    sigmoid = (1 + math.tanh((entropy_root - entropy_tool) / 2)) / 2  # without overflow
    scratch = max(1, math.floor(k * sigmoid + 0.5))
    return scratch, k - scratch


def aepo_branch_probability(entropy_change: ArrayLike, consecutive: ArrayLike) -> FloatArray:
    """Probability of a branch at a tool step, (1/2 + dH/5) (1 - l/4) (AEPO, arXiv 2510.14545).

    The second factor limits branches that follow each other on one trajectory. Each factor is
    clipped to [0, 1]. We did not find the paper's penalty; 1/4 is a guess. 1/2 and 1/5 are those of
    the predecessor's code (ARPO).

    Args:
        entropy_change: dH at the step, any shape.
        consecutive: l, branches in a row on the trajectory, broadcast against `entropy_change`.

    >>> aepo_branch_probability([0.5, 0.5, 0.5, -1.0], [0, 1, 4, 0])
    array([0.6 , 0.45, 0.  , 0.3 ])
    """
    by_entropy = np.clip(0.5 + 0.2 * np.asarray(entropy_change, dtype=np.float64), 0, 1)
    return np.asarray(by_entropy * np.clip(1 - 0.25 * np.asarray(consecutive), 0, 1))


def checked_schedule(schedule: Mapping[int, float]) -> dict[int, float]:
    """The schedule of `Trees(roots=)`; raises `InputError` if it is wrong.

    >>> checked_schedule({10: 0.5})
    Traceback (most recent call last):
    budgetalloc.errors.InputError: roots={10: 0.5} has no share for step 0: add {0: 1.0}.
    """
    shares = {
        check_integer("roots", at, 0): check_number("roots", share, 0, 1)
        for at, share in schedule.items()
    }
    if 0 not in shares:
        raise InputError(f"roots={dict(schedule)!r} has no share for step 0: add {{0: 1.0}}.")
    return shares


def latr_split(rollouts: int, step: int, schedule: Mapping[int, float]) -> tuple[int, int]:
    """Tree rollouts and independent samples (LATR, arXiv 2510.24302); the tree's share is rounded
    to the nearest.

    Args:
        rollouts: Rollouts of the prompt.
        step: From 0.
        schedule: The first step of each phase, one of them 0, and its share of tree rollouts, such
            as `LATR_MATH`.

    >>> [latr_split(8, step, LATR_COUNTDOWN) for step in (0, 10, 80, 200)], latr_split(8, 500, LATR_MATH)
    ([(8, 0), (6, 2), (2, 6), (0, 8)], (2, 6))
    """
    tree = math.floor(rollouts * schedule[max(at for at in schedule if at <= step)] + 0.5)
    return tree, rollouts - tree
