"""Finds the log in a file or folder, and reads it into a frame."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.rewards import to_unit
from budgetalloc.errors import InputError
from budgetalloc.logs.cells import Asked, clean
from budgetalloc.logs.frames import SUFFIXES, batch_frame, listed, parts
from budgetalloc.logs.kinds import KINDS
from budgetalloc.logs.prompt_texts import LONGEST, prompt_text, read_texts
from budgetalloc.logs.records import Notes

__all__ = ["Log", "find", "read", "with_success"]

_PACKED = (".gz", ".zst")
_OLD_NAMES = {"counts": "table", "dataset": "table"}
# folders and files that hold no rollouts of training
_LEFT_OUT = ("eval", "checkpoint-", "cache-", "annotations", ".")
_DEEPEST = 5  # folders below the one that is searched
_AT_ONCE = 65_536  # rows of a dataset


@dataclass(frozen=True)
class Log:
    """A log that was found.

    Args:
        kind: One of `KINDS`.
        files: Its files in the order of the numbers in their names.
        place: The file, or the folder that holds the files; None for an object in memory.
    """

    kind: str
    files: Sequence[Path]
    place: Path | None


def read(
    source: Any, asked: Asked, kind: str | None, notes: Notes
) -> tuple[Log, pd.DataFrame, dict[Id, str]]:
    """The log of a source, its rollouts in ascending steps, and the texts of prompts that are
    hashes.

    Args:
        source: A file, a folder that holds one log, or a `datasets.Dataset`.
        asked: The columns that the user named.
        kind: One of `KINDS`; None detects it.
        notes: What was left out or assumed.
    """
    kind = _OLD_NAMES.get(str(kind), kind)
    texts: dict[Id, str] = {}
    if isinstance(source, (str, os.PathLike)):
        try:
            log = find(Path(source), kind, asked)
            every = ((file, part) for file in log.files for part in parts(file, notes))
            rows = _rollouts(log, every, asked, notes, texts)
        except OSError as error:
            raise InputError(
                f"{error.filename or source}: {error.strerror or error}. The log cannot be read."
            ) from error
        if log.kind == "ledger" and log.place is not None:
            texts = read_texts(log.place)
    else:
        log = Log("table", (), None)
        rows = _rollouts(
            log, ((Path("dataset"), part) for part in _dataset(source)), asked, notes, texts
        )
    return log, rows, texts


def find(path: Path, kind: str | None, asked: Asked) -> Log:
    """The one log at a path; raises `InputError` if there is none, or if there are several."""
    if "\0" in str(path) or not path.exists():
        raise InputError(f"source={str(path)!r}: there is no such file or folder.")
    if not (path.is_file() or path.is_dir()):
        raise InputError(
            f"source={str(path)!r} is a pipe, a socket or a device: copy the log into a file."
        )
    if path.is_file():
        head = _head(path)
        name = kind or ("ledger" if not path.stat().st_size else _kind(head, path, asked))
        if name is None:
            raise _unknown(path, path, head)
        return Log(name, [path], path)
    logs, unknown = _logs(path, kind, asked)
    if len(logs) == 1:
        return logs[0]
    if not logs:
        raise (
            _unknown(path, *unknown)
            if unknown and kind is None
            else _unknown(path, path, None, kind)
        )
    choices = "\n".join(f"  {log.place}  (kind={log.kind!r})" for log in logs)
    raise InputError(
        f"source={str(path)!r} holds {len(logs)} logs. Give one of them, or kind=:\n{choices}"
    )


def _logs(path: Path, kind: str | None, asked: Asked) -> tuple[list[Log], tuple[Path, Any] | None]:
    """The logs in a folder, and the first file that holds a table of unknown columns."""
    series: dict[str, dict[tuple[int, ...], Path]] = {}
    for file in _candidates(path):
        name = str(file.relative_to(path)).removesuffix(".gz").removesuffix(".zst")
        name = re.sub(r"_\d+_[0-9a-f]+\.table\.json$", "_#.table.json", name)
        numbers = tuple(map(int, re.findall(r"\d+", str(file.relative_to(path)))))
        same = series.setdefault(re.sub(r"\d+", "#", name), {})
        # while a chunk is being packed it has two files
        if numbers not in same or file.suffix not in _PACKED:
            same[numbers] = file
    logs: list[Log] = []
    unknown = None
    for files in series.values():
        in_order = [files[numbers] for numbers in sorted(files)]
        file, head, found = _recognised(in_order[:3], asked, kind)
        deep = file.parent != path and file.suffix != ".arrow"
        if found is None or (found == "table" and deep):
            unknown = unknown or (None if head is None or deep else (file, head))
        elif KINDS[found].merged and (found != "table" or file.suffix in (".parquet", ".arrow")):
            logs.append(
                Log(found, in_order, Path(os.path.commonpath([file.parent for file in in_order])))
            )
        else:
            logs += [
                Log(found, [file], file)
                for file in in_order
                if _recognised([file], asked, kind)[2] == found
            ]
    return logs, unknown


def _recognised(
    files: Sequence[Path], asked: Asked, only: str | None
) -> tuple[Path, pd.DataFrame | None, str | None]:
    """The first file of a known kind, its first rows and its kind; the first file if there is
    none."""
    heads = [(file, _head(file)) for file in files]
    for file, head in heads:
        if name := _kind(head, file, asked, only):
            return file, head, name
    return *heads[0], None


def _candidates(path: Path) -> Iterator[Path]:
    """The files of a folder that may hold rollouts."""
    for folder, folders, names in os.walk(path):
        depth = len(Path(folder).relative_to(path).parts)
        folders[:] = sorted(x for x in folders if depth < _DEEPEST and not x.startswith(_LEFT_OUT))
        for name in sorted(names):
            ending = name.lower().removesuffix(".gz").removesuffix(".zst")
            if (
                ending.endswith(SUFFIXES)
                and not name.startswith(_LEFT_OUT)
                and (file := Path(folder, name)).is_file()
            ):
                yield file


def _head(path: Path) -> pd.DataFrame | None:
    """The first rows of a file; None if it holds no table."""
    try:
        return next(parts(path, Notes()), None)
    except (InputError, OSError):
        if path.is_file() and path.stat().st_size > 0:
            raise
        return None


def _kind(
    head: pd.DataFrame | None, path: Path, asked: Asked, only: str | None = None
) -> str | None:
    if head is None:
        return None
    found = next((name for name, kind in KINDS.items() if kind.fits(head, path, asked)), None)
    return found if only in (None, found) else None


def _unknown(
    source: Path, file: Path, head: pd.DataFrame | None, kind: str | None = None
) -> InputError:
    what = f"a log of kind {kind!r}" if kind else f"a log of a known kind ({', '.join(KINDS)})"
    text = f"source={str(source)!r} does not contain {what}. "
    if head is not None and len(head.columns) > 1:
        return InputError(
            f"{text}{file.name} has the columns {listed(list(head.columns))}: name those of the "
            "prompts and of the "
            "rewards, and if there are some those of steps and lengths, with prompt=, reward=, "
            "step= and length= "
            "(--prompt, --reward, --step, --length)."
        )
    return InputError(
        f"{text}Give the file or folder that the trainer wrote its rollouts to, such as the folder "
        "'completions' of "
        "TRL (log_completions=True)."
    )


def _dataset(source: Any) -> Iterator[pd.DataFrame]:
    """The rows of a `datasets.Dataset`, in memory or as a stream."""
    names = getattr(source, "column_names", ())
    if not hasattr(source, "column_names") or not hasattr(source, "with_format"):
        raise InputError(
            f"source is a {type(source).__name__}: give the path of a file or folder, or a "
            "datasets.Dataset. A pandas "
            "frame is read by Ledger.of_frame."
        )
    if isinstance(names, dict):
        raise InputError(
            f"source has the splits {listed(list(names))}: give one of them, as "
            f"source[{next(iter(names), '')!r}]."
        )
    for batch in source.with_format("arrow").iter(batch_size=_AT_ONCE):
        yield batch_frame(batch)


def _rollouts(
    log: Log,
    every: Iterator[tuple[Path, pd.DataFrame]],
    asked: Asked,
    notes: Notes,
    texts: dict[Id, str],
) -> pd.DataFrame:
    kind, held, start = KINDS[log.kind], [], 0
    same: dict[Id, Id] = {}  # equal ids are one object
    columns: list[str] = []
    for file, part in every:
        part.index = pd.RangeIndex(start, start + len(part))
        start += len(part)
        columns = columns or [str(name) for name in part.columns]
        rows = clean(kind.rows(part, asked, file, notes), notes)
        ids = [same.setdefault(name, name) for name in rows["prompt"]]
        rows = rows.assign(prompt=pd.Series(ids, dtype=object, index=rows.index))
        if "text" in rows:
            for name, text in zip(rows["prompt"], rows.pop("text"), strict=True):
                if name not in texts and text is not None:
                    texts[name] = prompt_text(text)[:LONGEST]
        held.append(rows)
    if not any(len(rows) for rows in held):
        return pd.DataFrame({"step": [], "prompt": [], "reward": []})
    rows = pd.concat([rows for rows in held if len(rows)])
    rows = kind.whole(rows, asked, notes, log.files, log.place)
    if not rows["step"].is_monotonic_increasing:
        notes["steps out of order, sorted"] += 1
        rows = rows.sort_values("step", kind="stable")
    return rows


def with_success(
    rows: pd.DataFrame, given: Any, notes: Notes
) -> tuple[pd.DataFrame, tuple[float, float] | None]:
    """The rollouts with their success, and the range of their rewards.

    Args:
        rows: Rollouts, with or without success.
        given: The range that the user gave, by which rewards are mapped to [0, 1]; None is the
            log's own.
        notes: Count rewards and success outside their ranges.
    """
    own = rows.attrs.get("reward_range")
    reward_R = rows["reward"].to_numpy(dtype=np.float64)
    unit_R = to_unit(reward_R, given or own or (0.0, 1.0))
    outside = int(((unit_R < 0) | (unit_R > 1)).sum())
    known = (0.0, 1.0) if given else own
    if given is not None or own is None:
        rows = rows.assign(reward=unit_R)
        notes.note(
            "reward outside [0, 1]" if given is None else "reward outside reward_range", outside
        )
    else:
        notes.note(f"reward outside the log's range {own[0]:g} to {own[1]:g}", outside)
    notes.note("row without a reward", int(np.isnan(unit_R).sum()))
    notes.note(
        "length unknown", int(rows["length"].isna().sum()) if "length" in rows else len(rows)
    )
    if "success" in rows:
        success_R = rows["success"].to_numpy(dtype=np.float64)
        notes.note(
            "success outside [0, 1], clipped", int(((success_R < 0) | (success_R > 1)).sum())
        )
        return rows.assign(success=np.clip(success_R, 0.0, 1.0)), known
    return rows.assign(success=unit_R if known is None else np.clip(unit_R, 0.0, 1.0)), known
