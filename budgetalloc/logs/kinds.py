"""The eight kinds of logs: each is a function from the rows of a file to rollouts, found by the
file's columns.

A new kind is a row of `KINDS`: `fits` says whether the first rows of a file are of this kind,
`rows` gives a frame with the columns step, prompt and reward, and if known text, success, length,
predicted, cost and domain. If a step follows from other rows, as after a resume, `whole` takes the
rows of all files together.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from budgetalloc.beliefs.rewards import check_range, to_unit
from budgetalloc.errors import InputError
from budgetalloc.logs import completions, environments, table
from budgetalloc.logs.cells import Asked, Bools, hashed, is_id, numbers, records, there, weighted
from budgetalloc.logs.records import FAULTS, Notes, as_integer

__all__ = ["KINDS", "Kind"]

_LEDGER = {"step", "id", "reward", "length", "predicted", "count"}
_MARKS = {"resumed", "reward_range"}  # a line with one of these keys is not a rollout
_RANGE = ("low", "high")
_SECOND_RUN = (
    "row of an earlier run in the same file, left out because a later run began anew "
    "(use a ledger for each run)"
)
_Whole = Callable[[pd.DataFrame, Asked, Notes, Sequence[Path], Path | None], pd.DataFrame]


@dataclass(frozen=True)
class Kind:
    """A kind of log.

    Args:
        fits: Whether the first rows of a file are of this kind.
        rows: The rollouts of some rows of a file.
        whole: What is left to do with the rollouts of all files.
        merged: Whether files that differ by a number in their names are one log.
    """

    fits: Callable[[pd.DataFrame, Path, Asked], bool]
    rows: Callable[[pd.DataFrame, Asked, Path, Notes], pd.DataFrame]
    whole: _Whole = lambda rows, asked, notes, files, place: rows
    merged: bool = False


def _any(frame: pd.DataFrame, fits: Callable[[dict[str, Any]], bool]) -> bool:
    return any(fits(record) for record in records(frame.head(3)))


def _is_ledger(frame: pd.DataFrame, path: Path, asked: Asked) -> bool:
    return set(frame.columns) >= _LEDGER or (
        len(frame.columns) > 0 and set(frame.columns) <= _MARKS
    )


def _ledger_rows(frame: pd.DataFrame, asked: Asked, path: Path, notes: Notes) -> pd.DataFrame:
    """The rows of budgetalloc's own ledger, those that resume and those that give a range among
    them."""
    for argument, own in (("reward", asked.reward), ("success", asked.success)):
        if own not in (None, argument):
            raise InputError(
                f"{argument}={own!r}: {path} is a ledger, which has one reward and one success. "
                f"Leave out {argument}=."
            )
    for name in frame.columns:
        if name not in {*_LEDGER, *_MARKS, "success", "cost", "decision"}:
            notes.unknown(name, int(frame[name].notna().sum()))
    frame = frame.reindex(columns=[*dict.fromkeys([*frame.columns, *sorted(_LEDGER | _MARKS)])])
    out = frame[["step", "reward", "length", "predicted"]].rename(columns={"step": "trainer_step"})
    out["prompt"] = frame["id"]
    out["step"] = frame["step"]
    if "decision" in frame:
        out["step"] = frame["decision"].where(_stated(frame["decision"]), frame["step"])
    for name in ("success", "cost"):
        if name in frame:
            out[name] = frame[name]
    out["stated"] = _stated(frame["success"]) if "success" in frame else False
    trainer_R, _ = numbers(frame["step"])
    odd_R = (trainer_R != np.floor(trainer_R)) | ~frame["length"].map(
        lambda x: isinstance(x, (int, float)) and x == x
    )
    odd_R |= frame["step"].map(lambda x: isinstance(x, bool)) | ~frame["id"].map(is_id)
    # counted as broken, unless it is a mark
    out["step"] = out["step"].astype(object).mask(odd_R, "no row")
    out["prompt"] = out["prompt"].astype(object).mask(odd_R, "no row")
    out["trainer_step"] = trainer_R
    out = out.assign(resumed=np.nan, low=np.nan, high=np.nan)
    for name in sorted(_MARKS):
        for row in frame.index[_stated(frame[name])]:
            with contextlib.suppress(*FAULTS):
                found = frame.at[row, name]
                if name == "resumed":
                    out.at[row, "resumed"] = as_integer(found)
                else:
                    out.loc[row, list(_RANGE)] = check_range(found)
                out.at[row, "step"] = 0
    return out


def _stated(cells: pd.Series) -> Bools:
    """Which records have the key: a missing key is NaN, and null is None."""
    return np.array([x is None or x == x for x in cells.tolist()], dtype=bool)


def _ledger_whole(
    rows: pd.DataFrame, asked: Asked, notes: Notes, files: Sequence[Path], place: Path | None
) -> pd.DataFrame:
    """The rows that count: a line that resumes from a step voids the rows before it of this and of
    later steps."""
    resumed_R, trainer_R, low_R = (
        rows[name].to_numpy(dtype=np.float64) for name in ("resumed", "trainer_step", "low")
    )
    is_row_R = np.isnan(resumed_R) & np.isnan(low_R)
    limit_R = np.minimum.accumulate(np.where(np.isnan(resumed_R), np.inf, resumed_R)[::-1])[::-1]
    void_R = is_row_R & (trainer_R >= limit_R)
    start = trainer_R[is_row_R][0] if is_row_R.any() else 0.0
    notes.doubt(_SECOND_RUN, int((void_R & (limit_R <= start)).sum()))
    notes.note("row voided by a resume", int((void_R & (limit_R > start)).sum()))
    ranges = rows.loc[~np.isnan(low_R), list(_RANGE)]
    # otherwise it follows from the reward and the range
    if "success" in rows or len(ranges.drop_duplicates()) > 1:
        reward_R = rows["reward"].to_numpy()
        low_R, high_R = (rows[name].ffill().to_numpy() for name in _RANGE)
        mapped_R = np.clip(to_unit(reward_R, (low_R, high_R)), 0.0, 1.0)  # a range for each
        mapped_R = np.where(np.isnan(low_R), to_unit(reward_R, (0.0, 1.0)), mapped_R)
        rows = rows.assign(
            success=np.where(rows["stated"].astype(bool), rows.get("success", np.nan), mapped_R)
        )
    rows = rows[is_row_R & ~void_R].drop(columns=["resumed", "stated", *_RANGE])
    if (rows["trainer_step"] == rows["step"]).all():
        rows = rows.drop(columns="trainer_step")
    rows.attrs["reward_range"] = tuple(ranges.iloc[-1].tolist()) if len(ranges) else None
    return rows


def _verl_rows(frame: pd.DataFrame, asked: Asked, path: Path, notes: Notes) -> pd.DataFrame:
    """The rollouts that verl dumps with `trainer.rollout_data_dir`: a file 7.jsonl for step 7.
    Prompts are hashed."""
    number = int(path.stem) if path.stem.isdecimal() else 0
    weights = asked.weights("score")
    for name in weights:
        there(frame, "reward", name)
    values, bad = zip(*(numbers(frame[name]) for name in weights), strict=True)
    scores = pd.DataFrame(dict(zip(weights, values, strict=True)), index=frame.index)
    out = pd.DataFrame({"reward": weighted(scores, weights)}, index=frame.index)
    out["reward"] = out["reward"].astype(object).mask(np.any(bad, axis=0), "not a number")
    out["text"] = frame["input"]
    out["prompt"] = (
        hashed(frame["input"].tolist())
        if asked.prompt is None
        else there(frame, "prompt", asked.prompt)
    )
    out["step"] = (
        there(frame, "step", asked.step or "step") if asked.step or "step" in frame else number
    )
    out["step"] = out["step"].where(out["step"].notna(), number)
    for name, column in (("success", asked.success), ("length", asked.length)):
        if column is not None:
            out[name] = there(frame, name, column)
    used = {
        "input",
        "output",
        "gts",
        "score",
        "step",
        *weights,
        asked.prompt,
        asked.success,
        asked.length,
    }
    for name in frame.columns:
        if name not in used:
            notes.unknown(name, len(frame))
    return out


def _is_verl(frame: pd.DataFrame, path: Path, asked: Asked) -> bool:
    return {"input", "output", "score"} <= set(frame.columns)


def _is_prime_rl(frame: pd.DataFrame, path: Path, asked: Asked) -> bool:
    by_trainer = path.name.startswith("train_rollouts") or _any(frame, environments.of_training)
    return by_trainer and _any(frame, environments.is_trace)


def _records_fit(
    fits: Callable[[dict[str, Any]], bool],
) -> Callable[[pd.DataFrame, Path, Asked], bool]:
    return lambda frame, path, asked: _any(frame, fits)


def _is_table(frame: pd.DataFrame, path: Path, asked: Asked) -> bool:
    return table.identify(frame, asked) is not None


def _table_whole(
    rows: pd.DataFrame, asked: Asked, notes: Notes, files: Sequence[Path], place: Path | None
) -> pd.DataFrame:
    return table.with_steps(rows, asked, notes)


_TRAINING = partial(environments.trace_rows, training=True)
_EVALUATION = partial(environments.trace_rows, training=False)
KINDS = {
    "ledger": Kind(_is_ledger, _ledger_rows, _ledger_whole),
    "trl": Kind(completions.fits, completions.rows, completions.whole, merged=True),
    "verl": Kind(_is_verl, _verl_rows, merged=True),
    "prime-rl": Kind(_is_prime_rl, _TRAINING, merged=True),
    "verifiers": Kind(_records_fit(environments.is_trace), _EVALUATION),
    "tinker": Kind(_records_fit(environments.is_summary), environments.tinker_rows, merged=True),
    "nemo-gym": Kind(_records_fit(environments.is_profile), environments.gym_rows),
    "table": Kind(_is_table, table.rows, _table_whole, merged=True),
}
"""The kinds of logs by name, in the order in which they are tried."""
