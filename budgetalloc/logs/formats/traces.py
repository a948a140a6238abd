"""Records of rollouts in environments of `verifiers`, which verifiers itself and prime-rl write.

There are three shapes: an episode with its traces (verifiers 0.4, and prime-rl since it streams traces), a trace
(older prime-rl), and a flat row with example_id and reward (verifiers before 0.4, and still older prime-rl).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id, text_id
from budgetalloc.logs.chunk import Reward, Rows, as_id, as_integer
from budgetalloc.logs.formats.lines import Record, parsed_rows
from budgetalloc.logs.log_stream import LogStream

__all__ = ["Trace", "is_record", "of_training", "parse", "rows"]

# Top-level keys that do not concern rewards. Other unused keys are counted as unknown.
_EPISODE = {"id", "env", "task", "group", "run", "ok", "is_timeout", "errors", "traces"}
_EPISODE |= {"num_input_tokens", "num_output_tokens", "num_total_tokens"}
_FLAT = {"example_id", "task", "prompt", "completion", "answer", "info", "reward", "metrics", "token_usage", "timing"}
_FLAT |= {"error", "error_chain", "long_error_chain", "is_completed", "is_truncated", "stop_condition", "tool_defs"}
_FLAT |= {"trajectory", "env_id", "env_name", "generation_ms", "scoring_ms", "total_ms"}


@dataclass(frozen=True)
class Trace:
    """One rollout of a record. `step` is None if the record has none."""

    step: int | None
    name: Id
    reward: float
    success: float
    length: int
    evaluation: bool


def is_record(record: Record) -> bool:
    """Whether a record has one of the three shapes."""
    flat = "reward" in record and "example_id" in record and "prompt" in record
    episode = isinstance(record.get("traces"), list)
    return flat or ("task" in record and (episode or ("rewards" in record and "nodes" in record)))


def of_training(record: Record) -> bool:
    """Whether a trainer wrote the record, rather than a separate evaluation."""
    traces = record.get("traces") or [record]
    kinds = [_get(trace, "info", "kind") for trace in traces] if isinstance(traces, list) else []
    return _get(record, "run", "type") == "train" or any(kinds) or _get(record, "info", "prime_rl") is not None


def parse(record: Record, reading: LogStream) -> list[Trace]:
    """The rollouts of a record; raises `KeyError`, `TypeError` or `ValueError` for a record of another shape."""
    if not is_record(record):
        raise KeyError("no record of a rollout")
    if "traces" not in record:
        known = _FLAT | set(record.get("metrics") or ()) if "example_id" in record else set(record)
        _note_unknown(record, known, reading)
        return [_rollout(record, record, reading)]
    _note_unknown(record, _EPISODE, reading)
    # An episode may contain traces of judges and other frozen models, which are not rollouts of the trained model.
    traces = [x for x in record["traces"] if _get(x, "agent", "trainable") is not False]
    reading.notes.note("trace of a model that is not trained", len(record["traces"]) - len(traces))
    return [_rollout(trace, record, reading) for trace in traces or [{}]]


def rows(reading: LogStream, path: Path, step: int | None, *, evaluations: bool) -> Iterator[Rows]:
    """The rollouts of one file.

    Args:
        reading: The log.
        path: The file.
        step: The step of all rollouts. None: the step in each record, 0 where there is none.
        evaluations: Whether to keep rollouts of evaluations.
    """

    def kept(record: Record) -> list[Trace] | None:
        every = parse(record, reading)
        traces = [x for x in every if evaluations or not x.evaluation]
        reading.notes.note("row of an evaluation", len(every) - len(traces))
        return traces or None

    def columns(records: list[list[Trace]]) -> Rows:
        traces = [x for record in records for x in record]
        success = [x.success for x in traces]
        return Rows(
            np.array([x.step or 0 if step is None else step for x in traces], dtype=np.int64),
            [x.name for x in traces],
            np.array([x.reward for x in traces], dtype=np.float64),
            np.array([x.length for x in traces], dtype=np.int64),
            success_R=None if reading.options.success is None else np.array(success, dtype=np.float64),
        )

    yield from parsed_rows(reading, path, kept, columns)


def _rollout(trace: Record, record: Record, reading: LogStream) -> Trace:
    info = trace.get("info") or {}
    info = info if isinstance(info, dict) else {}
    # The step of arrival comes first, because the trainer learns the reward then.
    places = (_get(info, "arrival", "step"), _get(record, "run", "work", "step"), _get(info, "prime_rl", "step"))
    step = next((x for x in places if x is not None), None)
    kind = info.get("kind") or _get(record, "run", "work", "type") or record.get("kind")
    return Trace(
        None if step is None else as_integer(step),
        _name(trace, record, reading.options.prompt_id),
        _reward(trace, reading.options.reward),
        math.nan if reading.options.success is None else _reward(trace, reading.options.success),
        _length(trace),
        kind == "eval",
    )


def _name(trace: Record, record: Record, prompt_id: str | None) -> Id:
    """The task's key or hash, else its number in the environment, else a hash of the prompt."""
    task = record.get("task") or trace.get("task")
    data = task.get("data") or {} if isinstance(task, dict) else {}
    if prompt_id is not None:
        places = (record, trace, data, record.get("info"))
        return as_id(next((x[prompt_id] for x in places if isinstance(x, dict) and prompt_id in x), None))
    if isinstance(task, dict) and (key := task.get("key") or task.get("hash")):
        return as_id(key)
    env = record.get("env_name") or record.get("env_id") or _get(record, "env", "id") or task
    number = record.get("example_id", data.get("idx", task.get("idx") if isinstance(task, dict) else None))
    if number is not None:
        return f"{env}/{as_id(number)}" if isinstance(env, str) else as_id(number)
    return text_id(data.get("prompt") or record["prompt"])


def _reward(trace: Record, reward: Reward) -> float:
    """The reward that the user named, else the record's reward, else the weighted sum of its rewards; NaN if none."""
    if trace.get("error") and "example_id" in trace:
        return math.nan  # a rollout that raised has the reward 0 in a flat row, which is not a score
    named = {key: x for key, x in (trace.get("rewards") or {}).items() if x is not None}
    if reward is None:
        if isinstance(trace.get("reward"), (int, float)):
            return float(trace["reward"])
        scores = [_score(x) * float(x.get("weight", 1.0) if isinstance(x, dict) else 1.0) for x in named.values()]
    else:
        weights = {reward: 1.0} if isinstance(reward, str) else reward
        every = {**trace, **(trace.get("metrics") or {}), **named}
        scores = [weight * _score(every[key]) for key, weight in weights.items() if every.get(key) is not None]
    return sum(scores) if scores else math.nan


def _score(value: Any) -> float:
    return float(value["score"] if isinstance(value, dict) else value)


def _length(trace: Record) -> int:
    """Tokens that the model generated, -1 if unknown."""
    for value in (trace.get("num_output_tokens"), _get(trace, "token_usage", "output_tokens")):
        if value:
            return as_integer(value)
    nodes = [x for x in trace.get("nodes") or () if x.get("sampled")]
    if counted := sum(len(x.get("token_ids") or ()) for x in nodes):
        return as_integer(counted)
    used = sum(_get(x, "usage", "completion_tokens") or 0 for x in trace.get("calls") or ())
    return as_integer(used) or -1


def _get(record: Any, *keys: str) -> Any:
    for key in keys:
        record = record.get(key) if isinstance(record, dict) else None
    return record


def _note_unknown(record: Record, known: set[str], reading: LogStream) -> None:
    for key in record.keys() - known:
        reading.notes.unknown(key, 1)
