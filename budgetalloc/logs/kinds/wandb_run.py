"""A run of W&B on disk: the completions tables that TRL gives it with `log_completions=True`.

`run-ID.wandb` names the tables, which lie in `files/media/table/` beside it. Nothing here uses the network.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from budgetalloc.errors import InputError
from budgetalloc.logs.base import Rows
from budgetalloc.logs.columns import rollouts
from budgetalloc.logs.formats.wandb_file import Run, Table, read_run
from budgetalloc.logs.names import identify
from budgetalloc.logs.reading import Reading

_OWN = {"step", "prompt", "completion", "advantage", "image"}  # the columns of TRL's table that are no reward


def find(path: Path) -> list[Path]:
    """The `.wandb` files at a path: itself, that of a run's folder, or those of the runs in a folder `wandb`."""
    if path.is_file():
        return [path] if path.suffix == ".wandb" else []
    logs = [file for folder in ("", "*run-*/", "wandb/*run-*/") for file in path.glob(f"{folder}run-*.wandb")]
    return sorted(file for file in logs if not file.parent.is_symlink())  # latest-run is a link


def files(path: Path) -> list[Path]:
    """The `.wandb` file, and the completions tables beside it."""
    return [path, *sorted((path.parent / "files" / "media" / "table").glob("completions_*.table.json"))]


def rows(reading: Reading) -> Iterator[Rows]:
    """The rollouts of the completions tables, step by step.

    The reward is the sum of the reward functions with the run's own `reward_weights`. A table that was logged twice
    is taken once, tables of evaluations are left out, and of a step that ran again the last run counts.
    """
    path, notes = reading.path, reading.notes
    assert path is not None
    run = read_run(path, notes)
    tables = _in_order(run, path, notes)
    reading.done = path.stat().st_size
    before, any_rows = b"", False
    for table in tables:
        columns, data = _content(table, reading)
        # TRL logs again what it has, at the end of a run and after a step that generates nothing.
        at = columns.index("step") if "step" in columns else len(columns)
        body = blake2b(repr([row[:at] + row[at + 1 :] for row in data]).encode("utf-8", "replace")).digest()
        again, before = body == before, body
        if again or table.evaluation:
            notes["row shown again" if again else "row of an evaluation"] += len(data)
        elif data:
            part = _rows(columns, data, table.step, run, reading)
            if part is not None:
                any_rows = True
                yield part
    if not any_rows:
        raise InputError(
            f"{path} names {len(tables)} completions tables, of which none has rollouts of training that can be read "
            f"({dict(notes)}). They should lie in {path.parent / 'files'}: keep the folder of a run whole."
        )
    steps = {table.step for table in tables}
    if silent := max(steps) - min(steps) + 1 - len(steps):
        notes["step without a completions table (GRPOConfig(logging_steps=1) shows every step)"] += silent
    if not run.ended:
        notes["run without an end: it was killed, or goes on"] += 1
    reading.done = reading.total or reading.done


def _in_order(run: Run, path: Path, notes: Counter[str]) -> list[Table]:
    """The tables in ascending steps, without those of steps that ran again; raises `InputError` if there is nothing."""
    if not run.tables:
        raise InputError(
            f"{path} holds {run.metrics} rows of metrics and no completions table: it does not say what each prompt "
            "earned. Train with GRPOConfig(log_completions=True), or with AdaptiveGRPOCallback(trainer, ledger=FILE), "
            "which keeps every rollout, and read that."
        )
    if run.settings.get("log_unique_prompts"):
        raise InputError(
            f"{path} was logged with GRPOConfig(log_unique_prompts=True): its tables show one rollout of each prompt, "
            "which says nothing of groups. Read the folder 'completions' in the run's output_dir, which has them all."
        )
    kept: list[Table] = []
    for table in run.tables:
        if kept and table.step < kept[-1].step:
            while kept and table.step <= kept[-1].step:
                notes["row of a step that ran again"] += kept.pop().rows
        kept.append(table)
    return kept


def _content(table: Table, reading: Reading) -> tuple[list[str], list[list[Any]]]:
    """The columns and the rows of a table; none where its file cannot be used."""
    try:
        written = table.path.read_bytes()
        content = json.loads(written)
        columns, listed = list(content["columns"]), list(content["data"])
    except FileNotFoundError:
        reading.notes["completions table whose file is missing"] += 1
        return [], []
    except (ValueError, KeyError, TypeError):
        reading.notes["completions table whose file is broken"] += 1
        return [], []
    reading.done += len(written)
    data = [row for row in listed if isinstance(row, list) and len(row) == len(columns)]
    for text, count in (("broken row", len(listed) - len(data)), ("row that W&B cut off", table.rows - len(listed))):
        if count > 0:
            reading.notes[text] += count
    return columns, data


def _rows(names: list[str], data: list[list[Any]], step: int, run: Run, reading: Reading) -> Rows | None:
    """One table's rollouts."""
    reward = _weights(names, run, reading) if reading.reward is None else reading.reward
    columns = identify(names, reading.prompt_id, reward)
    if columns is None:
        raise InputError(f"{reading.path}: no column of {names} names prompts. Name it with prompt_id=.")
    columns = replace(columns, step="step", unknown=tuple(x for x in columns.unknown if x not in _OWN))
    table = dict(zip(names, zip(*data, strict=True), strict=True)) | {"step": [step] * len(data)}
    return rollouts(table, columns, Counter(), reading.notes)


def _weights(columns: list[str], run: Run, reading: Reading) -> dict[str, float]:
    """The weight of each reward function, as the run had them."""
    functions = [column for column in columns if column in run.functions]
    if not functions:
        raise InputError(
            f"{reading.path}: the run's metrics name none of the columns {columns} of its completions tables as a "
            "reward function. Name the reward's with reward=."
        )
    weights = run.settings.get("reward_weights") or [1.0] * len(functions)
    if len(weights) != len(functions):
        raise InputError(
            f"{reading.path}: the run's reward_weights={weights} do not fit its reward functions {functions}. Say how "
            "they add up with reward={name: weight}."
        )
    return dict(zip(functions, map(float, weights), strict=True))
