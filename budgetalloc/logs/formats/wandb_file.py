"""The `.wandb` file of a run: settings, names of reward functions, and the paths of its completions tables.

W&B writes metrics as records into this file, offline and online alike. It writes tables as JSON files next to it.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from budgetalloc.errors import InputError, imported
from budgetalloc.logs.chunk import FAULTS, Notes, as_integer

__all__ = ["Run", "Table", "read_run", "records"]

_SETTINGS = {"reward_weights", "log_unique_prompts"}
_MAGIC = b":W&B\xe1\xbe"
_BLOCK, _HEADER = 32768, 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


@dataclass(frozen=True, eq=False)
class Table:
    """A completions table: its file, the step of the trainer, W&B's count of its rows, and if it is an evaluation's."""

    path: Path
    step: int
    rows: int
    evaluation: bool


@dataclass(eq=False)
class Run:
    """A run. Its file is read record by record, keeping a few numbers for each completions table."""

    folder: Path
    notes: Notes
    settings: dict[str, Any] = field(default_factory=dict)
    """The settings of `GRPOConfig` that the reader needs."""
    functions: set[str] = field(default_factory=set)
    """The names of the reward functions."""
    tables: list[Table] = field(default_factory=list)
    metrics: int = 0
    """Rows of metrics."""
    ended: bool = False
    _step: int | None = None
    _evaluation: bool = False

    def take(self, record: Any) -> None:
        """Takes a record; raises one of `FAULTS` if its values do not have W&B's format."""
        kind = record.WhichOneof("record_type")
        if kind in ("config", "run"):
            update = record.config.update if kind == "config" else record.run.config.update
            self.settings |= {_name(x): json.loads(x.value_json) for x in update if _name(x) in _SETTINGS}
        self.ended |= kind == "exit"
        if kind != "history":
            return
        row = {_name(item): item.value_json for item in record.history.item}
        self.metrics += 1
        if "train/epoch" in row:  # logged by the trainer; an evaluation's table comes after its metrics
            self._evaluation = any(key.startswith("eval/") for key in row)
        for key in row:
            if key.startswith("train/rewards/") and key.endswith("/mean"):
                self.functions.add(key.removeprefix("train/rewards/").removesuffix("/mean"))
        if "train/global_step" in row:
            self._step = as_integer(json.loads(row["train/global_step"]))
        if "completions/path" in row:
            path, rows = json.loads(row["completions/path"]), as_integer(json.loads(row["completions/nrows"]))
            if not isinstance(path, str):
                raise TypeError("no path")
            if self._step is None:
                self.notes["completions table without a step"] += 1
            else:
                self.tables.append(Table(self.folder / path, self._step, rows, self._evaluation))


def read_run(path: Path, notes: Notes) -> Run:
    """Reads the file from end to end. Damage is noted."""
    record = imported("wandb.proto.wandb_internal_pb2", f"{path}: reading a W&B run", "wandb").Record
    damaged = imported("google.protobuf.message", f"{path}: reading a W&B run", "wandb").DecodeError
    run = Run(path.parent / "files", notes)
    for data in records(path, notes):
        try:
            run.take(record.FromString(data))
        except (damaged, *FAULTS):
            notes["broken record of the .wandb file"] += 1
    return run


def _name(item: Any) -> str:
    return item.key or "/".join(item.nested_key)


def records(path: Path, notes: Notes) -> Iterator[bytes]:
    """The records of a `.wandb` file, one at a time. The file has LevelDB's log format, without a reader in wandb 0.31.

    After a header, blocks of 32 KiB hold fragments of records: a crc32 of kind and data, the length, the kind (whole,
    first, middle, last), the data. After a damaged fragment the rest of its block is skipped. The incomplete file of a
    killed or running run is read as far as possible.
    """
    with path.open("rb") as file:
        block, at = file.read(_BLOCK), _HEADER
        if not block.startswith(_MAGIC):
            raise InputError(f"{path} does not begin with the header of a .wandb file: it is empty or another format.")
        parts: list[bytes] | None = None  # fragments of the current record
        while block:
            while at + _HEADER <= len(block):
                checksum, length, kind = struct.unpack_from("<IHB", block, at)
                data = block[at + _HEADER : at + _HEADER + length]
                if zlib.crc32(data, zlib.crc32(bytes([kind]))) != checksum:
                    break
                at += _HEADER + length
                if kind in (_WHOLE, _FIRST):
                    parts = [data]
                elif parts is not None:
                    parts.append(data)
                if kind in (_WHOLE, _LAST) and parts is not None:
                    yield b"".join(parts)
                    parts = None
            last = len(block) < _BLOCK
            if at + _HEADER <= len(block) or (last and at < len(block)):
                notes["torn end of the .wandb file" if last else "broken block of the .wandb file"] += 1
                parts = None
            block, at = file.read(_BLOCK), 0
        if parts is not None:
            notes["torn end of the .wandb file"] += 1
