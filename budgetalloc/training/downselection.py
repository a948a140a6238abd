"""Selects the rollouts to train on, for policies that generate more than they train on."""

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, UnsupportedError
from budgetalloc.policies import Policy, Step
from budgetalloc.policies.rollouts import Rollouts

__all__ = ["check_kept_rows", "check_trains_at_once", "rows_to_train_on"]


def rows_to_train_on(
    policy: Policy, batch: Rollouts, wanted: int, rewards_R: FloatArray | None = None
) -> IntArray:
    """The indices of the rollouts to train on, selected by the policy's `keep`; all if it has no
    `keep`.

    Args:
        policy: The policy that decided.
        batch: All rollouts of the step.
        wanted: Rollouts that the trainer trains on.
        rewards_R: Total rewards that replace the batch's own.
    """
    if policy.keep is None or len(batch) <= wanted:
        return np.arange(len(batch))
    rewards_R = batch.rewards_R if rewards_R is None else rewards_R
    rows = policy.keep(batch.ids_R, rewards_R, wanted, batch.scores_RF, batch.success_R)
    return check_kept_rows(rows, len(batch), wanted, policy)


def check_trains_at_once(policy: Policy, step: Step, generate: int) -> None:
    """Raises `UnsupportedError` if the step has several rounds, or rollouts that are not trained
    on."""
    if step.in_rounds() or generate > 1:
        why = (
            "decides in rounds" if step.in_rounds() else "generates more rollouts than it trains on"
        )
        raise UnsupportedError(
            f"{policy} {why}; this trainer trains at once on all that it generates."
        )


def check_kept_rows(kept_R: ArrayLike, generated: int, wanted: int, policy: object) -> IntArray:
    """The rows that a policy's `keep` selected; raises `InputError` unless they are valid and
    `wanted` many. A row may occur several times.

    >>> check_kept_rows([0, 2], 3, 2, "pods()")
    array([0, 2])
    """
    rows = np.asarray(kept_R)
    if rows.shape != (wanted,) or rows.dtype.kind not in "iu":
        what = (
            f"{rows.tolist()!r}"
            if rows.size <= 8
            else f"an array of shape {rows.shape}, type {rows.dtype}"
        )
        raise InputError(
            f"keep= of {policy} returned {what}: return the indices of {wanted} rollouts of the "
            f"{generated} that were "
            "generated."
        )
    if wanted and not (rows.min() >= 0 and rows.max() < generated):
        raise InputError(
            f"keep= of {policy} returned indices from {rows.min()} to {rows.max()}: return indices "
            "from 0 to "
            f"{generated - 1}."
        )
    return rows
