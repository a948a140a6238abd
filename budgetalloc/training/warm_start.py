"""The success rates of prompts in the records of an earlier run: a ledger, another log, or a file
of beliefs."""

from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.ids import Id, check_ids
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.state import load_state
from budgetalloc.errors import BudgetallocError, InputError, check_array, short_repr
from budgetalloc.logs.ledger import read_log
from budgetalloc.training.belief_checkpoint import STATE_FILE


def read_counts(
    path: Path, prompt_id: str | None = None
) -> tuple[list[Id], FloatArray, FloatArray]:
    """The prompts of a run, their successes and their rollouts. Nothing is unpickled.

    Args:
        path: A ledger or another log (see `ba.Ledger.read`), a file of beliefs (.npz), or a
            checkpoint's folder with such a file. Its rollouts are the discounted ones of the
            beliefs.
        prompt_id: The column of a log that names prompts.

    Raises:
        InputError: there is no such file, it cannot be read, or a success lies outside [0, 1].
    """
    saved = path / STATE_FILE if (path / STATE_FILE).is_file() else path
    if saved.suffix == ".npz":
        try:
            return _counts(load_state(saved)[0])
        except (BudgetallocError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{saved} does not hold beliefs of budgetalloc: give a ledger, another log, or the "
                f"file {STATE_FILE} of a checkpoint."
            ) from error
    estimator = BetaEstimator()  # without discounts: it counts
    frame = read_log(path, prompt=prompt_id).frame
    success_R = frame["success"].to_numpy()
    outside_R = (success_R < 0) | (success_R > 1)
    if outside_R.any():
        raise InputError(
            f"{path} has the success {success_R[outside_R][0]:g}, outside [0, 1]: read it with "
            "ba.Ledger.read(path, reward_range=...) or success=..., and pass "
            "ba.Features.of_rates(ids, rates)."
        )
    estimator.observe(frame["prompt"].tolist(), success_R)
    return _counts(estimator.state_dict())


def _counts(state: dict[str, Any]) -> tuple[list[Id], FloatArray, FloatArray]:
    """The evidence in the state of a `BetaEstimator`, or in that of a `TrackingEstimator` at its
    likeliest noise."""
    evidence = check_array("evidence", state["evidence"], "numbers")
    if evidence.ndim == 3:
        evidence = evidence[:, np.asarray(state["fit"]).max(axis=1).argmax()]
    ids = check_ids(state["ids"], "ids")
    successes_P, trials_P = evidence[:, 0], evidence[:, :2].sum(axis=1)
    if len(ids) != len(trials_P) or not np.isfinite(trials_P).all() or evidence.min(initial=0) < 0:
        raise ValueError(f"evidence={short_repr(evidence)}")
    return ids, successes_P, trials_P
