"""Logs of tinker-cookbook: `iteration_000007/train_rollout_summaries.jsonl`, a line for each rollout of iteration 7.

The format was read from thinking-machines-lab/tinker-cookbook at 08ee6ea2, `rl/rollout_logging.py` (schema_version 1)
and `rl/problem_env.py`, and `rl/train.py` at d69aae94, which names the files. A resumed run overwrites the files of the
iterations that it repeats. Files of evaluations have other names; their rows are left out.

The log names no prompts. A prompt is the hash of the messages that the first step's trace shows, as `ProblemEnv`
writes it; the hash is the callback's own for a dataset with these messages. Other environments write no messages:
then each group counts as a prompt of its own, which a note says, unless `prompt_id` names a value of the record.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id, text_id
from budgetalloc.logs.chunk import Rows, as_id, as_integer
from budgetalloc.logs.formats.lines import Record, first, parsed_rows
from budgetalloc.logs.formats.named_values import named_success, texts_by_hash, weighted_reward
from budgetalloc.logs.log_stream import LogStream

__all__ = ["files", "find", "rows", "texts"]

_FOLDER = re.compile(r"iteration_(\d{1,15})")
_FILES = "train_rollout_summaries.jsonl*"  # plain or gzip
_MARKS = {"split", "iteration", "group_idx", "traj_idx", "total_reward", "steps"}
_KNOWN = _MARKS | {
    "schema_version",
    "tags",
    "sampling_client_step",
    "final_reward",
    "trajectory_metrics",
    "final_ob_len",
}
_UNNAMED = "row without its prompt: each group of an iteration is taken as a prompt of its own, give prompt_id="
_Row = tuple[int, Id, float, int, float]


def find(path: Path) -> list[Path]:
    """A file of summaries, the folder of a run, or the file in the folder of an iteration."""
    if path.is_file():
        return [path] if any(_is_summary(x) for x in first(path, 3)) else []
    own = [x for x in sorted(path.glob(_FILES)) if x.is_file() and find(x)]
    iterations = _iterations(path)
    return own + ([path] if any(find(file) for _, file in iterations[:3]) else [])


def _is_summary(record: Record) -> bool:
    return record.keys() >= _MARKS and record["split"] == "train"


def files(path: Path) -> list[Path]:
    """The files of a run in the order of its iterations."""
    return [path] if path.is_file() else [file for _, file in _iterations(path)]


def _iterations(path: Path) -> list[tuple[int, Path]]:
    folders = [(int(match[1]), x) for x in path.glob("iteration_*") if (match := _FOLDER.fullmatch(x.name))]
    return sorted((number, file) for number, x in folders for file in x.glob(_FILES) if file.is_file())


def rows(reading: LogStream) -> Iterator[Rows]:
    """The rollouts of each iteration, which is the step."""
    path = reading.location
    if path.is_file():
        yield from reading.in_order(lambda: _file(reading, path, None))
    else:
        for number, file in _iterations(path):
            yield from _file(reading, file, number)


def _file(reading: LogStream, path: Path, number: int | None) -> Iterator[Rows]:
    options = reading.options

    def parse(record: Record) -> _Row | None:
        if record["split"] != "train":
            reading.notes["row of an evaluation"] += 1
            return None
        values, step = _values(record), as_integer(record["iteration"] if number is None else number)
        row = (
            step,
            _name(record, values, step, reading),
            weighted_reward(values, options.reward, "total_reward"),
            _length(record),
            named_success(values, options.success),
        )
        for key in record.keys() - _KNOWN:
            reading.notes.unknown(key, 1)
        return row

    def joined(rollouts: list[_Row]) -> Rows:
        step, ids_R, reward, length, success = zip(*rollouts, strict=True)
        return Rows(
            np.array(step, dtype=np.int64),
            list(ids_R),
            np.array(reward, dtype=np.float64),
            np.array(length, dtype=np.int64),
            success_R=None if options.success is None else np.array(success, dtype=np.float64),
        )

    yield from parsed_rows(reading, path, parse, joined)


def _values(record: Record) -> dict[str, Any]:
    """The values of a record by name: its steps' logs and metrics, the last step's first, then those of the rollout."""
    values: dict[str, Any] = {}
    for step in record["steps"]:
        values |= (step.get("logs") or {}) | (step.get("metrics") or {})
    return values | (record.get("trajectory_metrics") or {}) | {key: record[key] for key in record if key != "steps"}


def _length(record: Record) -> int:
    """The tokens of all actions, -1 where unknown."""
    lengths = [step.get("ac_len") for step in record["steps"]]
    return -1 if None in lengths else sum(map(as_integer, lengths)) or -1


def _messages(record: Record) -> list[Any] | None:
    """The chat messages of the prompt, None if the record does not have them."""
    step: Any = record["steps"][0] if record["steps"] else {}
    for key in ("trace", "prompt", "messages"):
        step = step.get(key) if isinstance(step, dict) else None
    return step if isinstance(step, list) and step else None


def _name(record: Record, values: dict[str, Any], step: int, reading: LogStream) -> Id:
    if reading.options.prompt_id is not None:
        return as_id(values[reading.options.prompt_id])
    if (messages := _messages(record)) is not None:
        return text_id(messages)
    reading.notes.doubt(_UNNAMED, 1)
    return f"{step}/{as_integer(record['group_idx'])}"


def texts(reading: LogStream, ids: Iterable[Id]) -> dict[Id, str]:
    """The texts of these prompts, if traces show them."""
    return texts_by_hash(reading, ids, _messages)
