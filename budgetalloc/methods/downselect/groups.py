"""Shared parts of the rules: rows by prompt, and a fixed number of rows divided among groups."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.ids import check_ids, factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import as_rewards
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, shown

__all__ = ["check_rows", "first_of_groups", "scored_first", "share_rows", "turn"]


def check_rows(
    ids_R: Sequence[Hashable], values_R: ArrayLike, rows: int, name: str = "rewards_R"
) -> tuple[IntArray, FloatArray]:
    """The group of each row and its value; raises `InputError` unless `rows` of them can be
    kept."""
    ids = check_ids(ids_R, "ids_R")
    values = as_rewards(values_R, len(ids), name)
    if (
        isinstance(rows, bool)
        or not isinstance(rows, (int, np.integer))
        or not 1 <= rows <= len(ids)
    ):
        raise InputError(
            f"rows={shown(rows)}: there are {len(ids)} rollouts to choose from. Use 1 to "
            f"{len(ids)}."
        )
    _, group_R = factorize(ids)
    return group_R, values


def turn(labels_R: IntArray) -> IntArray:
    """The number of earlier rows with the same label, for each row.

    >>> turn(np.array([5, 7, 5, 5]))
    array([0, 0, 1, 2])
    """
    order = np.argsort(labels_R, kind="stable")
    ordered = labels_R[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)])
    turn_R = np.empty(len(labels_R), dtype=np.int64)
    turn_R[order] = np.arange(len(labels_R)) - np.repeat(
        starts, np.diff(np.r_[starts, len(labels_R)])
    )
    return turn_R


def scored_first(values_R: FloatArray, rows: int) -> tuple[IntArray, IntArray]:
    """The rows that have a value, and the first rows without one (NaN) that complete them to
    `rows`.

    >>> scored_first(np.array([np.nan, 1.0, np.nan, 0.0]), rows=3)
    (array([1, 3]), array([0]))
    """
    scored = np.flatnonzero(~np.isnan(values_R))
    return scored, np.flatnonzero(np.isnan(values_R))[: max(rows - len(scored), 0)]


def share_rows(sizes_G: IntArray, rows: int) -> IntArray:
    """`rows` divided among groups in proportion to their sizes, by largest remainder; ties go to
    the first group.

    >>> share_rows(np.array([8, 8, 4]), rows=11)
    array([5, 4, 2])
    """
    total = max(int(sizes_G.sum()), 1)
    share_G, left_G = np.divmod(rows * sizes_G, total)
    share_G[np.argsort(-left_G, kind="stable")[: rows - int(share_G.sum())]] += 1
    return np.asarray(share_G)


def first_of_groups(order: IntArray, group_R: IntArray, keep_G: IntArray) -> IntArray:
    """The first `keep_G` rows of each group, from rows sorted by group.

    >>> first_of_groups(np.array([3, 1, 0, 2]), np.array([1, 0, 1, 0]), np.array([1, 2]))
    array([3, 0, 2])
    """
    return np.asarray(order[turn(group_R[order]) < keep_G[group_R[order]]])
