"""Reads the evidence of all prompts from a saved state, and checks every entry."""

from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import check_ids
from budgetalloc.beliefs.state import check_state
from budgetalloc.errors import StateError, check_array, check_integer, shown

__all__ = ["read_evidence"]


def read_evidence(state: dict[str, Any], expected: int) -> dict[str, Any]:
    """The entries of a state, by their keys, as new arrays. Raises `StateError` if one is missing or inconsistent.

    Args:
        state: The result of `BetaEstimator.state_dict()`.
        expected: The version that the state must have.
    """
    check_state(state)
    missing = {"version", "step", "ids", "evidence", "graded", "last", "earned", "met"} - set(state)
    if missing:
        raise StateError(f"The state lacks {sorted(missing)}: it was not written by BetaEstimator.state_dict().")
    version = _plain(state["version"])
    if not isinstance(version, int) or version != expected:
        raise StateError(
            f"The state has version {shown(version)}, this budgetalloc reads version {expected}: "
            "load it with the version of budgetalloc that wrote it."
        )
    try:
        ids = check_ids(state["ids"], "state['ids']")
        evidence = check_array("evidence", state["evidence"], "successes and failures").reshape(-1, 2)
        graded = check_array("graded", state["graded"], "one number a prompt").reshape(-1)
        last = np.array(state["last"])
        if last.size and last.dtype.kind not in "iu":
            raise TypeError(f"last={shown(state['last'])} is not a list of steps")
        last = last.astype(np.int64).reshape(-1)
        step, count = (check_integer(name, _plain(state[name]), 0) for name in ("step", "met"))
        first = check_array("earned", state["earned"], "successes and rollouts").reshape(2)
    except (TypeError, ValueError, OverflowError) as error:  # InputError is a ValueError
        raise StateError(f"The state does not hold ids, evidence, visits and a step: it is damaged. {error}") from error
    if not len(set(ids)) == len(ids) == len(evidence) == len(last) == len(graded):
        raise StateError(
            f"The state holds {len(ids)} ids ({len(set(ids))} distinct), evidence for {len(evidence)} and visits "
            f"for {len(last)} prompts: it is damaged."
        )
    if not (np.isfinite(evidence).all() and (evidence >= 0).all()):
        raise StateError("The state's evidence is negative or not finite: it is damaged.")
    if not ((graded >= 0) & (graded <= evidence.min(axis=1) + 1e-6)).all():  # u(1-u) is at most u, and 1 - u
        raise StateError("The state's graded successes do not fit its evidence: it is damaged.")
    if (last < 0).any() or (last > step).any():
        raise StateError(f"The state is of step {step} and has visits outside steps 0 to {step}: it is damaged.")
    if not (0 <= count <= len(ids) and 0 <= first[0] <= first[1] < np.inf):
        raise StateError(f"The state's first visits, {first} of {count} prompts, are out of range: it is damaged.")
    arrays = {"evidence": evidence, "graded": graded, "last": last}
    return arrays | {"ids": ids, "step": step, "met": count, "earned": tuple(first.tolist())}


def _plain(value: Any) -> Any:
    """The entry of a zero-dimensional array, as which an .npz file may store a number."""
    return value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
