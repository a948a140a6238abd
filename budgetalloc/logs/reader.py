"""Finds the log in a file or folder, recognises its kind by its columns, and makes one frame."""

import contextlib
import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.rewards import to_unit
from budgetalloc.errors import InputError
from budgetalloc.logs import completions
from budgetalloc.logs.arrow_files import dataset_frame
from budgetalloc.logs.cells import OWN, Asked, listed, of_type
from budgetalloc.logs.columns import by_code
from budgetalloc.logs.facts import doubt_rows, doubt_runs, with_prompts
from budgetalloc.logs.files import candidates, frames_of, head_of
from budgetalloc.logs.kinds import TABLES, kind_of
from budgetalloc.logs.prompt_texts import LONGEST, prompt_text, read_texts
from budgetalloc.logs.records import Notes
from budgetalloc.logs.table import (
    RENAME,
    doubt_rewards,
    groups_of,
    rollouts,
    wanted,
    with_groups,
    with_steps,
)

_SERIES = ("trl", "verl", "prime-rl", "tinker", "art")  # files that differ by a number are one log


@dataclass(frozen=True)
class Log:
    """A log that was found."""

    kind: str  # one of `TABLES`
    files: Sequence[Path] = ()  # in the order of the numbers in their names
    place: Path | None = None  # the file, or the folder of the files; None for one in memory


def read(source: Any, asked: Asked, notes: Notes) -> tuple[Log, pd.DataFrame, dict[Id, str]]:
    """The log of a source (a file, a folder that holds one log, or a `datasets.Dataset`), its
    rollouts in ascending steps, and the texts of prompts. Notes what was left out or assumed."""
    if not isinstance(source, (str, os.PathLike)):
        log = Log("table")
        frame = dataset_frame(source, partial(wanted, asked))
        return log, *_rollouts(log, [frame], asked, notes)
    try:
        log = _find(Path(source), asked)
        some = partial(wanted, asked, numbers=log.kind == "trl")
        frames = frames_of(log.files, notes, some if log.kind in ("trl", "table") else None)
        rows, texts = _rollouts(log, frames, asked, notes)
    except OSError as error:
        raise InputError(
            f"{error.filename or source}: {error.strerror or error}. The log cannot be read."
        ) from error
    if log.kind == "ledger" and log.place is not None:
        texts = read_texts(log.place)
    return log, rows, texts


def _rollouts(
    log: Log, frames: Iterable[pd.DataFrame], asked: Asked, notes: Notes
) -> tuple[pd.DataFrame, dict[Id, str]]:
    held, start, texts = [], 0, dict[Id, str]()
    attrs: dict[Hashable, Any] = {}
    for frame in frames:
        frame.index = pd.RangeIndex(start, start + len(frame))
        start += len(frame)
        file = Path(next(iter(frame[OWN + "file"].cat.categories), "dataset"))
        if log.kind not in ("trl", "art"):
            frame = frame.drop(columns=OWN + "file")
        table, named = TABLES[log.kind](frame, asked, file, notes)
        attrs = table.attrs
        rows = rollouts(table, named, file, notes)
        if "text" in rows:
            new = rows[["prompt", "text"]].drop_duplicates("prompt").dropna().astype(object)
            found = new["text"].map(lambda text: prompt_text(text)[:LONGEST])
            texts = dict(zip(new["prompt"], found, strict=True)) | texts
        held.append(rows.drop(columns="text", errors="ignore"))
    held = [rows for rows in held if len(rows)]
    if not held:
        return pd.DataFrame({"step": [], "prompt": [], "reward": []}), texts
    rows = pd.concat(held)
    rows, in_order = rows.assign(prompt=by_code(rows["prompt"])), "step" in rows
    rows = with_steps(rows, notes)
    if log.kind != "ledger":
        rows = with_prompts(rows, notes, named=asked.prompt is not None)
    if log.kind == "table":
        doubt_rewards(rows, notes)
    if log.kind == "trl":
        rows = completions.whole(rows, asked, notes, log.files, log.place)
    if log.kind == "ledger":
        rows = with_groups(rows, rows[OWN + "size"])
    else:
        facts = Notes()
        doubt_rows(rows, groups_of(rows), facts)
        if in_order:
            doubt_runs(rows, facts)
        notes.update(facts)
        notes.doubts[:0] = facts.doubts  # a contradiction comes before what was assumed
    rows.attrs.update(attrs)
    if not rows["step"].is_monotonic_increasing:
        notes["steps out of order, sorted"] += 1
        rows = rows.sort_values("step", kind="stable")
    return rows, texts


def with_success(
    rows: pd.DataFrame, given: tuple[float, float] | None, notes: Notes
) -> tuple[pd.DataFrame, tuple[float, float] | None]:
    """The rollouts with their success, and the range of their rewards: the one `given` by the user,
    else the log's own. Notes rewards and success outside their ranges."""
    own = rows.attrs.get("reward_range")
    unit_R = to_unit(rows["reward"].to_numpy(dtype=np.float64), given or own or (0.0, 1.0))
    known = (0.0, 1.0) if given else own
    where = "reward_range" if given else f"the log's range {own[0]:g} to {own[1]:g}" if own else ""
    notes.note(f"reward outside {where or '[0, 1]'}", ((unit_R < 0) | (unit_R > 1)).sum())
    if given is not None or own is None:
        rows = rows.assign(reward=unit_R)
    lengths_R = rows["length"] if "length" in rows else pd.Series(np.nan, rows.index)
    notes.note("row without a reward", np.isnan(unit_R).sum())
    notes.note("length unknown", lengths_R.isna().sum())
    success_R = rows["success"] if "success" in rows else pd.Series(unit_R, rows.index)
    if "success" in rows:
        notes.note("success outside [0, 1], clipped", ((success_R < 0) | (success_R > 1)).sum())
    if "success" in rows or known is not None:
        success_R = success_R.clip(0.0, 1.0)
    return rows.assign(success=success_R), known


def _find(path: Path, asked: Asked) -> Log:
    """The one log at a path; raises `InputError` if there is none, or if there are several."""
    if "\0" in str(path) or not path.exists():
        raise InputError("source", "there is no such file or folder.", str(path))
    if not (path.is_file() or path.is_dir()):
        raise InputError(
            f"source={str(path)!r}", "is a pipe, a socket or a device: copy the log into a file."
        )
    if path.is_file():
        head = head_of(path)
        name = kind_of(head, path, asked) if path.stat().st_size else "ledger"
        if name is None:
            raise _unknown(path, path, head)
        return Log(name, [path], path)
    logs, unknown = _logs(path, asked)
    if len(logs) == 1:
        return logs[0]
    if not logs and unknown is not None:
        kind_of(unknown[1], unknown[0], asked)  # raises if the user named a column that it lacks
    if not logs:
        raise _unknown(path, *(unknown or (path, None)))
    choices = "\n".join(f"  {log.place}  (kind={log.kind!r})" for log in logs)
    raise InputError(
        f"source={str(path)!r}", f"holds {len(logs)} logs. Give one of them:\n{choices}"
    )


def _logs(path: Path, asked: Asked) -> tuple[list[Log], tuple[Path, pd.DataFrame] | None]:
    """The logs in a folder, and the file with the most of other columns. Tables in folders below
    count where there is no other log."""
    logs: dict[bool, list[Log]] = {False: [], True: []}
    unknown: list[tuple[Path, pd.DataFrame]] = []

    def is_deep(file: Path) -> bool:
        return file.parent != path and file.suffix != ".arrow"

    def kind(file: Path) -> str | None:
        """The kind of a file's log; None, too, if a column that the user named is elsewhere."""
        head, found = head_of(file), None
        with contextlib.suppress(InputError):
            found = kind_of(head, file, asked)
        if found is None and head is not None:
            unknown.append((file, head))
        return found

    for files in candidates(path):
        file, found = next(((x, known) for x in files[:3] if (known := kind(x))), (files[0], None))
        if found is None:
            continue
        here = logs[found == "table" and is_deep(file)]
        if found in _SERIES or (found == "table" and file.suffix in (".parquet", ".arrow")):
            place = Path(os.path.commonpath([file.parent for file in files]))
            here.append(Log(found, files, place))
        else:
            here += [Log(found, [file], file) for file in files if kind(file) == found]
    most = max(unknown, key=lambda x: (not is_deep(x[0]), len(x[1].columns)), default=None)
    return logs[False] or logs[True], most


def _unknown(source: Path, file: Path, head: pd.DataFrame | None) -> InputError:
    advice = (
        "Give the file or folder that the trainer wrote its rollouts to, such as the folder "
        "'completions' of TRL (log_completions=True); what other tools write: see docs, Logs."
    )
    names = [] if head is None else [x for x in head if not x.startswith(OWN)]
    nested = [] if head is None else [x for x in names if of_type(head[x], list, dict).all()]
    document = head is not None and len(head) == 1 and len(nested) > 0
    if document or len(nested) + 1 >= len(names) > 1:
        what = "is one JSON document with the keys" if document else "has records in its columns"
        advice = (
            f"{file.name} {what} {listed(names)}: write a line of JSON for each rollout, with its "
            "prompt and reward (docs: Logs)."
        )
    elif head is not None and len(names) > 1:
        advice = (
            f"{file.name} has the columns {listed(head.columns)}: name those of the prompts and "
            "of the rewards, and if there are some those of steps and lengths, with prompt=, "
            f"reward=, step= and length= (--prompt, --reward, --step, --length). {RENAME}"
        )
    return InputError(
        f"source={str(source)!r}",
        f"does not contain a log of a known kind ({', '.join(TABLES)}). {advice}",
    )
