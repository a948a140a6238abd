"""Reward functions that became constant, from the scores of a log."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.rewards import EQUAL

__all__ = ["constant_scores"]

_CONSTANT = 10  # steps in a row with one score only


def constant_scores(step_R: ArrayLike, scores: Mapping[str, ArrayLike]) -> list[str]:
    """A line for each reward function that became constant: a verifier that died, or prompts that
    are all solved.

    A function became constant if every score of its last 10 steps or more is the same, and at least
    half of its steps before had another score. A penalty that is rarely incurred is therefore left
    out.

    Args:
        step_R: The step of each rollout.
        scores: The score of each rollout by the name of the reward function, NaN for none.

    >>> step_R = np.arange(30)
    >>> constant_scores(step_R, {"accuracy": step_R % 2, "format": np.where(step_R < 15, step_R % 2, 0.5)})
    ['The reward function format varied, and is 0.5 for every rollout since step 15: check what computes it.']
    """
    lines = []
    for name, given_R in scores.items():
        scores_R = np.asarray(given_R, dtype=np.float64)
        known_R = ~np.isnan(scores_R)
        step_S, at_R = np.unique(np.asarray(step_R)[known_R], return_inverse=True)
        if not len(step_S):
            continue
        value = scores_R[known_R][at_R.argmax()]  # of the last step
        other_S = np.bincount(at_R, np.abs(scores_R[known_R] - value) > EQUAL) > 0
        start = int(np.flatnonzero(other_S).max(initial=-1)) + 1
        if len(step_S) - start >= _CONSTANT and 0 < start <= 2 * other_S.sum():
            lines.append(
                f"The reward function {name} varied, and is {value:g} for every rollout since step "
                f"{step_S[start]}: "
                "check what computes it."
            )
    return lines
