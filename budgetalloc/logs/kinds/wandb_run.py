"""A W&B run on disk: the completions tables that TRL logs with `log_completions=True`.

`run-ID.wandb` names the tables, which are in `files/media/table/` next to it. The reader does not use the network.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from budgetalloc.errors import InputError
from budgetalloc.logs.chunk import FAULTS, Notes, Rows
from budgetalloc.logs.column_names import identify_columns, listed
from budgetalloc.logs.columns import numeric, rollouts
from budgetalloc.logs.formats.wandb_file import Run, Table, read_run
from budgetalloc.logs.log_stream import LogStream
from budgetalloc.logs.success_choice import SuccessChoice

__all__ = ["files", "find", "rows"]

_OWN = {"step", "prompt", "completion", "advantage", "image"}  # the columns of TRL's table that are not rewards
_CHOSEN = "success, chosen"  # the column that is added to a table


def find(path: Path) -> list[Path]:
    """The `.wandb` file itself, the file in a run's folder, or the files of the runs in a folder `wandb`."""
    if path.is_file():
        return [path] if path.suffix == ".wandb" else []
    logs = [file for folder in ("", "*run-*/", "wandb/*run-*/") for file in path.glob(f"{folder}run-*.wandb")]
    return sorted(x for x in logs if x.is_file() and not x.parent.is_symlink())  # latest-run is a link


def files(path: Path) -> list[Path]:
    """The `.wandb` file and the completions tables."""
    return [path, *sorted((path.parent / "files" / "media" / "table").glob("completions_*.table.json"))]


def rows(reading: LogStream) -> Iterator[Rows]:
    """The rollouts of the completions tables, step by step.

    The reward is the sum of the reward functions with the run's own `reward_weights`. A table that was logged twice is
    read once. Tables of evaluations are left out. If a step ran again, only its last run is read.
    """
    path, notes = reading.location, reading.notes
    run = read_run(path, notes)
    tables = _in_order(run, path, notes)
    reading.done = path.stat().st_size
    before, any_rows = b"", False
    choice = SuccessChoice(notes, known=True)
    for table in tables:
        columns, data, body = _content(table, reading)
        again, before = body == before and bool(data), body
        if again or table.evaluation:
            notes["row logged again" if again else "row of an evaluation"] += len(data)
        elif data:
            for part in _rows(columns, data, table.step, run, reading, choice):
                any_rows = True
                yield part
    if not any_rows:
        raise InputError(
            f"{path} names {len(tables)} completions tables, and none has rollouts of training that can be read "
            f"({dict(notes)}). The tables are expected in {path.parent / 'files'}: keep the run's folder complete."
        )
    steps = {table.step for table in tables}
    if (missing := max(steps) - len(steps)) > 0:
        notes.missing = missing, max(steps)
        notes["step without a completions table (GRPOConfig(logging_steps=1) shows every step)"] += missing
    if not run.ended:
        notes["run without an end: it was killed, or is still running"] += 1
    reading.done = reading.total or reading.done


def _in_order(run: Run, path: Path, notes: Notes) -> list[Table]:
    """The tables in ascending steps, the last one of each; raises `InputError` if no table has groups of rollouts."""
    if not run.tables:
        raise InputError(
            f"{path} holds {run.metrics} rows of metrics and no completions table, so it has no rewards of individual "
            "prompts. Train with GRPOConfig(log_completions=True), or with AdaptiveGRPOCallback(trainer, ledger=FILE) "
            "and read the ledger, which has every rollout."
        )
    if run.settings.get("log_unique_prompts"):
        raise InputError(
            f"{path} was logged with GRPOConfig(log_unique_prompts=True): its tables have one rollout of each prompt "
            "instead of groups. Read the folder 'completions' in the run's output_dir, which has all rollouts."
        )
    kept: list[Table] = []
    for table in run.tables:
        if kept and table.step < kept[-1].step:
            while kept and table.step <= kept[-1].step:
                notes["row of a step that ran again"] += kept.pop().rows
        kept.append(table)
    return kept


def _content(table: Table, reading: LogStream) -> tuple[list[str], list[list[Any]], bytes]:
    """The columns of a table, its rows and a digest of them; no rows if its file cannot be used."""
    notes, limit = reading.notes, 16 * reading.options.max_line
    try:
        inside = table.path.resolve().is_relative_to((reading.location.parent / "files").resolve())
        if not inside or not table.path.is_file():
            notes["completions table whose file is missing"] += 1
            return [], [], b""
        if table.path.stat().st_size > limit:
            notes[f"completions table of more than 16 * max_line={limit:,} bytes, skipped"] += 1
            return [], [], b""
        written = table.path.read_bytes()
        content = json.loads(written)
        columns, listed_rows = list(content["columns"]), list(content["data"])
        if not all(isinstance(name, str) for name in columns):
            raise TypeError("no names of columns")
        data = [row for row in listed_rows if isinstance(row, list) and len(row) == len(columns)]
        # TRL logs the same table again at the end of a run and after a step without generation.
        at = columns.index("step") if "step" in columns else len(columns)
        body = blake2b(repr([row[:at] + row[at + 1 :] for row in data]).encode("utf-8", "replace")).digest()
    except (OSError, *FAULTS):
        notes["completions table whose file is broken"] += 1
        return [], [], b""
    reading.done += len(written)
    notes.note("broken row", len(listed_rows) - len(data))
    notes.note("row that W&B cut off", table.rows - len(listed_rows))
    return columns, data, body


def _rows(
    names: list[str], data: list[list[Any]], step: int, run: Run, reading: LogStream, choice: SuccessChoice
) -> Iterator[Rows]:
    options = reading.options
    reward = _weights(names, run, reading) if options.reward is None else options.reward
    columns = identify_columns(names, replace(options, reward=reward))
    if columns is None:
        raise InputError(
            f"{reading.path}: no column of {listed(names)} is known to name prompts. Pass prompt_id= with its name."
        )
    columns = replace(columns, step="step", unknown=tuple(x for x in columns.unknown if x not in _OWN))
    table: dict[str, Any] = dict(zip(names, zip(*data, strict=True), strict=True)) | {"step": [step] * len(data)}
    if options.success is None and columns.weights is not None:
        scores = {name: numeric(table[name])[0] for name in columns.rewards}
        success_R = choice(scores, dict(zip(columns.rewards, columns.weights, strict=True)))
        if success_R is not None:
            columns, table = replace(columns, success=_CHOSEN), table | {_CHOSEN: success_R}
    yield from rollouts(table, columns, Counter(), reading.notes, options.max_row)


def _weights(columns: list[str], run: Run, reading: LogStream) -> dict[str, float]:
    """The run's weights of its reward functions."""
    functions = [column for column in columns if column in run.functions]
    if not functions:
        raise InputError(
            f"{reading.path}: the run's metrics name none of the columns {listed(columns)} of its completions tables "
            "as a reward function. Pass reward= with the name of the reward's column."
        )
    weights = run.settings.get("reward_weights") or [1.0] * len(functions)
    try:
        return dict(zip(functions, map(float, weights), strict=True))
    except FAULTS as error:
        raise InputError(
            f"{reading.path}: the run's reward_weights={weights!r:.200} do not fit its reward functions "
            f"{listed(functions)}. Pass the weights as reward={{name: weight}}."
        ) from error
