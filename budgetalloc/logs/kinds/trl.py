"""The completions that TRL writes with `GRPOConfig(log_completions=True)`: a parquet file a logging step.

`completions/completions_00007.parquet` has a row for each rollout of the last batch before step 7 was logged: step,
prompt, completion, a column for each reward function, what reward functions logged with `log_extra`, and advantage.
With `logging_steps` above 1 only the last batch is logged. Where one generation serves several steps, the same rows
are logged again; they are taken once. A step that ran again after a resume has overwritten its file. Tokens are not
logged: lengths are unknown. A run that evaluates writes the evaluation's completions to the file of that step, in place
of those of training (TRL 1.16); nothing in the file marks them.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id, factorize, text_id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError
from budgetalloc.logs.base import Rows, as_id
from budgetalloc.logs.columns import weighted
from budgetalloc.logs.formats import arrow
from budgetalloc.logs.reading import Reading

_FILE = re.compile(r"completions_(\d+)\.parquet")
_STALE = 3600.0  # seconds; files of one run may be copied in any order


def find(path: Path) -> list[Path]:
    """One file of completions, or the folder of them: itself, or `completions` in a trainer's output folder."""
    if path.is_file():
        return [path] if _FILE.fullmatch(path.name) else []
    return [x for x in (path, path / "completions") if x.is_dir() and files(x)]


def files(path: Path) -> list[Path]:
    """The files in the order of their steps."""
    if path.is_file():
        return [path]
    numbered = [(int(match[1]), x) for x in path.iterdir() if (match := _FILE.fullmatch(x.name))]
    return [x for _, x in sorted(numbered)]


def rows(reading: Reading) -> Iterator[Rows]:
    """The rollouts of each file in turn; a batch that was logged twice is taken once."""
    assert reading.path is not None
    notes, before, newest = reading.notes, None, 0.0
    paths = files(reading.path)
    for path in paths:
        changed = path.stat().st_mtime
        if changed < newest - _STALE:
            notes["file older than that of an earlier step: left by another run?"] += 1
        newest = max(newest, changed)
        batch = _read(path, reading)
        reading.done += path.stat().st_size
        if batch is None:
            notes["file that cannot be read"] += 1
            continue
        if before is not None and _same(batch, before):
            notes["row logged again at a step that generated nothing"] += len(batch[0])
            continue
        before = batch
        yield batch[0]
    steps = [int(match[1]) for path in paths if (match := _FILE.fullmatch(path.name))]
    if silent := max(steps, default=0) - min(steps, default=0) + bool(steps) - len(steps):
        notes["step without a file (logging_steps=1 logs every step)"] += silent


def _read(path: Path, reading: Reading) -> tuple[Rows, Any] | None:
    """A file's rollouts and its completions; None if it cannot be read."""
    pa = arrow.pyarrow()
    try:
        table = pa.parquet.read_table(path)
    except (OSError, pa.ArrowException):
        return None
    names = list(table.column_names)
    match = _FILE.fullmatch(path.name)
    step = int(match[1]) if match else int(table.column("step")[0].as_py())
    ids_R = _ids(table, path, reading.prompt_id)
    named_R = np.array([name is not None for name in ids_R], dtype=bool)
    rewards_R = _rewards(table, path, reading, ids_R)
    if not named_R.all():
        reading.notes["row without a prompt"] += int((~named_R).sum())
    kept = np.flatnonzero(named_R).tolist()
    part = Rows(np.full(len(kept), step), [ids_R[at] for at in kept], rewards_R[named_R])
    return part, table.column("completion") if "completion" in names else None


def _same(batch: tuple[Rows, Any], before: tuple[Rows, Any]) -> bool:
    (part, completions), (old, old_completions) = batch, before
    return (
        completions is not None
        and part.ids_R == old.ids_R
        and np.array_equal(part.rewards_R, old.rewards_R, equal_nan=True)
        and bool(completions.equals(old_completions))
    )


def _ids(table: Any, path: Path, prompt_id: str | None) -> list[Any]:
    """The prompt of each row: its id if there is a column of ids, else a hash of its text or messages."""
    names = table.column_names
    if prompt_id is not None and prompt_id not in names:
        raise InputError(f"prompt_id={prompt_id!r}: {path} has no such column, it has {names}.")
    column = prompt_id or ("prompt_id" if "prompt_id" in names else None)
    if column is None and "prompt" not in names:
        raise InputError(f"{path} has the columns {names} and no 'prompt': it is no file of TRL's completions.")
    known: dict[str, Id] = {}  # the rollouts of a prompt are many, and its text long
    ids_R: list[Any] = []
    for value in arrow.names(table.column(column or "prompt")):
        if column is not None:
            try:
                ids_R.append(as_id(value))
            except TypeError:
                ids_R.append(None)
        elif isinstance(value, str):
            ids_R.append(known.setdefault(value, text_id(value)) if value not in known else known[value])
        else:
            ids_R.append(None if value is None else text_id(value))
    return ids_R


def _rewards(table: Any, path: Path, reading: Reading, ids_R: Sequence[Any]) -> FloatArray:
    """The total reward of each row, as asked for or the sum of all reward functions, each with weight 1."""
    pa = arrow.pyarrow()
    names = list(table.column_names)
    first = names.index("completion") + 1 if "completion" in names else 0
    last = names.index("advantage") if "advantage" in names else len(names)
    own = {"step", "prompt", "completion", "advantage", "prompt_id", reading.prompt_id}
    among = [name for name in names[first:last] if name not in own]
    if reading.reward is None:
        number = (pa.types.is_floating, pa.types.is_null)  # null: a function that scored none of the batch
        weights = {name: 1.0 for name in among if any(fits(table.schema.field(name).type) for fits in number)}
        if not weights:
            raise InputError(f"{path} has the columns {names}, none of which is a reward. Name it with reward=.")
    else:
        weights = {reading.reward: 1.0} if isinstance(reading.reward, str) else dict(reading.reward)
        if missing := [name for name in weights if name not in names]:
            raise InputError(f"reward={reading.reward!r}: {path} has no column {missing[0]!r}, it has {names}.")
    for name in names:
        if name not in own and name not in weights:
            reading.notes[f"unknown column {name!r}"] += len(table)
    values = [np.asarray(table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)) for name in weights]
    total_R = weighted(values, list(weights.values()))
    if reading.reward is None and len(weights) > 1:
        reading.notes[f"reward taken as the sum of {', '.join(weights)}, each with weight 1"] = 1
        if "advantage" in names:
            advantages_R = table.column("advantage").cast(pa.float64()).to_numpy(zero_copy_only=False)
            _compare(total_R, advantages_R, ids_R, reading.notes)
    return total_R


def _compare(rewards_R: FloatArray, advantages_R: FloatArray, ids_R: Sequence[Any], notes: Counter[str]) -> None:
    """Notes prompts whose advantages are ordered otherwise than the rewards: the weights were others."""
    _, prompt_R = factorize(ids_R)
    order = np.lexsort((advantages_R, rewards_R, prompt_R))
    more_R, up_R = np.diff(rewards_R[order]), np.diff(advantages_R[order])
    same_R = prompt_R[order][1:] == prompt_R[order][:-1]
    wrong_R = same_R & np.where(more_R > 1e-6, up_R < -1e-4, up_R > 1e-4)
    if wrong := len(np.unique(prompt_R[order][1:][wrong_R])):
        notes["group whose advantages do not follow that sum: give the weights, as reward={name: weight}"] += wrong
