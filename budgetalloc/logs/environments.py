"""Records of rollouts in environments: those of `verifiers`, which prime-rl writes too,
tinker-cookbook and NeMo Gym.

`verifiers` has three shapes: an episode with its traces (since 0.4, and prime-rl since it streams
traces), a trace (older prime-rl), and a flat row with example_id and reward (before 0.4, and still
older prime-rl). An evaluation has no training steps: its rollouts are at step 0. prime-rl has a
file for each step, `rollouts/step_7/train_rollouts.jsonl` or `traces/step_7/train/traces.jsonl`, or
one stream, whole or in chunks `00000.jsonl.zst`.

tinker-cookbook has `iteration_000007/train_rollout_summaries.jsonl`, a line for each rollout
(rl/rollout_logging.py, schema_version 1). Its prompts are hashes of the messages that `ProblemEnv`
traces.

NeMo Gym has `rollouts_reward_profiling.jsonl`, a line for each task with its rollouts' rewards
(reward_profile.py). Versions without `rollout_infos` hold the mean only. It is used if it
determines rewards of 0 and 1.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from budgetalloc.beliefs.ids import text_id
from budgetalloc.logs.cells import Asked, records
from budgetalloc.logs.records import FAULTS, Notes, Record, as_id, as_integer

__all__ = [
    "gym_rows",
    "is_profile",
    "is_summary",
    "is_trace",
    "of_training",
    "tinker_rows",
    "trace_rows",
]

_STEP = re.compile(r"(?:step|iteration)_(\d{1,15})")
_UNNAMED = "row without its prompt: each group of an iteration is taken as a prompt of its own, give prompt="
_NO_REWARDS = "row without the rewards of its rollouts, or the number of them"


def _rollouts(
    frame: pd.DataFrame,
    read: Callable[[Record], Iterator[Record]],
    notes: Notes,
    columns: Mapping[str, Any],
) -> pd.DataFrame:
    """The rollouts that `read` makes of each record, with these columns at least. A record that it
    cannot read is counted as broken."""
    found: list[Record] = []
    for record in records(frame):
        try:
            found += list(read(record))
        except FAULTS:
            notes["broken row"] += 1
    return pd.DataFrame(
        [{**columns, **rollout} for rollout in found], columns=[*columns], dtype=object
    )


def _columns(asked: Asked) -> dict[str, Any]:
    columns = {"step": 0, "prompt": None, "text": None, "reward": None, "length": None}
    return columns if asked.success is None else columns | {"success": None}


def _step_of(path: Path) -> int | None:
    """The step in the name of a file's folder."""
    found = [match for name in path.parts[-4:-1] if (match := _STEP.fullmatch(name))]
    return int(found[-1][1]) if found else None


def _get(record: Any, *keys: str) -> Any:
    for key in keys:
        record = record.get(key) if isinstance(record, dict) else None
    return record


def _sum(values: Mapping[str, Any], weights: Mapping[str, float]) -> float:
    """The weighted sum of named values, NaN if the record has none of them."""
    scores = [
        weight * _score(values[name])
        for name, weight in weights.items()
        if values.get(name) is not None
    ]
    return sum(scores) if scores else math.nan


def _score(value: Any) -> float:
    return float(value["score"] if isinstance(value, dict) else value)


def is_trace(record: Record) -> bool:
    """Whether a record has one of the three shapes of `verifiers`."""
    flat = "reward" in record and "example_id" in record and "prompt" in record
    episode = isinstance(record.get("traces"), list)
    return flat or ("task" in record and (episode or ("rewards" in record and "nodes" in record)))


def of_training(record: Record) -> bool:
    """Whether a trainer wrote the record, rather than a separate evaluation."""
    traces = record.get("traces") or [record]
    kinds = [_get(trace, "info", "kind") for trace in traces] if isinstance(traces, list) else []
    return (
        _get(record, "run", "type") == "train"
        or any(kinds)
        or _get(record, "info", "prime_rl") is not None
    )


def trace_rows(
    frame: pd.DataFrame, asked: Asked, path: Path, notes: Notes, *, training: bool
) -> pd.DataFrame:
    """The rollouts of `verifiers` and prime-rl; of a training, without those of evaluations."""
    step = _step_of(path) if training else None

    def read(record: Record) -> Iterator[Record]:
        if not is_trace(record):
            raise KeyError("no record of a rollout")
        every = record.get("traces", [record])
        # An episode may contain traces of judges and other frozen models, which are not rollouts of
        # the trained model.
        traces = [x for x in every if _get(x, "agent", "trainable") is not False]
        notes.note("trace of a model that is not trained", len(every) - len(traces))
        for trace in traces or [{}]:
            info = trace.get("info") if isinstance(trace.get("info"), dict) else {}
            kind = info.get("kind") or _get(record, "run", "work", "type") or record.get("kind")
            if training and kind == "eval":
                notes["row of an evaluation"] += 1
                continue
            # The step of arrival comes first, because the trainer learns the reward then.
            places = (
                _get(info, "arrival", "step"),
                _get(record, "run", "work", "step"),
                _get(info, "prime_rl", "step"),
            )
            own = next((x for x in places if x is not None), 0)
            rollout = {
                "step": as_integer(own) if step is None else step,
                "prompt": _task(trace, record, asked.prompt),
            }
            rollout |= {"reward": _reward(trace, asked.reward), "length": _length(trace)}
            yield (
                rollout
                if asked.success is None
                else rollout | {"success": _reward(trace, asked.success)}
            )

    return _rollouts(frame, read, notes, _columns(asked))


def _task(trace: Record, record: Record, prompt: str | None) -> Any:
    """The task's key or hash, else its number in the environment, else a hash of the prompt."""
    task = record.get("task") or trace.get("task")
    data = task.get("data") or {} if isinstance(task, dict) else {}
    if prompt is not None:
        places = (record, trace, data, record.get("info"))
        return as_id(next((x[prompt] for x in places if isinstance(x, dict) and prompt in x), None))
    if isinstance(task, dict) and (key := task.get("key") or task.get("hash")):
        return as_id(key)
    env = record.get("env_name") or record.get("env_id") or _get(record, "env", "id") or task
    number = record.get(
        "example_id", data.get("idx", task.get("idx") if isinstance(task, dict) else None)
    )
    if number is not None:
        return f"{env}/{as_id(number)}" if isinstance(env, str) else as_id(number)
    return text_id(data.get("prompt") or record["prompt"])


def _reward(trace: Record, reward: str | Mapping[str, float] | None) -> float:
    """The reward that the user named, else the record's reward, else the weighted sum of its
    rewards; NaN if none."""
    if trace.get("error") and "example_id" in trace:
        # a rollout that raised has the reward 0 in a flat row, which is not a score
        return math.nan
    named = {key: x for key, x in (trace.get("rewards") or {}).items() if x is not None}
    if reward is not None:
        weights = {reward: 1.0} if isinstance(reward, str) else reward
        return _sum({**trace, **(trace.get("metrics") or {}), **named}, weights)
    if isinstance(trace.get("reward"), (int, float)):
        return float(trace["reward"])
    return _sum(
        named,
        {
            key: float(x.get("weight", 1.0)) if isinstance(x, dict) else 1.0
            for key, x in named.items()
        },
    )


def _length(trace: Record) -> int | None:
    """Tokens that the model generated, None if unknown."""
    for value in (trace.get("num_output_tokens"), _get(trace, "token_usage", "output_tokens")):
        if value:
            return as_integer(value)
    nodes = [x for x in trace.get("nodes") or () if x.get("sampled")]
    if counted := sum(len(x.get("token_ids") or ()) for x in nodes):
        return as_integer(counted)
    return (
        as_integer(
            sum(_get(x, "usage", "completion_tokens") or 0 for x in trace.get("calls") or ())
        )
        or None
    )


def is_summary(record: Record) -> bool:
    """Whether tinker-cookbook wrote the record, of training."""
    return (
        record.keys() >= {"split", "iteration", "group_idx", "total_reward", "steps"}
        and record["split"] == "train"
    )


def tinker_rows(frame: pd.DataFrame, asked: Asked, path: Path, notes: Notes) -> pd.DataFrame:
    """The rollouts of tinker-cookbook."""
    number, weights = _step_of(path), asked.weights("total_reward")

    def read(record: Record) -> Iterator[Record]:
        if record["split"] != "train":
            notes["row of an evaluation"] += 1
            return
        values: Record = {}
        for step in record["steps"]:
            values |= (step.get("logs") or {}) | (step.get("metrics") or {})
        values |= (record.get("trajectory_metrics") or {}) | {
            key: x for key, x in record.items() if key != "steps"
        }
        step = as_integer(record["iteration"] if number is None else number)
        rollout: Record = {"step": step, "reward": _sum(values, weights), "prompt": None}
        messages = _get(
            record["steps"][0] if record["steps"] else {}, "trace", "prompt", "messages"
        )
        if asked.prompt is not None:
            rollout["prompt"] = as_id(values[asked.prompt])
        elif isinstance(messages, list) and messages:
            rollout |= {"prompt": text_id(messages), "text": messages}
        else:
            notes.doubt(_UNNAMED, 1)
            rollout["prompt"] = f"{step}/{as_integer(record['group_idx'])}"
        lengths = [step.get("ac_len") for step in record["steps"]]
        rollout["length"] = None if None in lengths else sum(map(as_integer, lengths)) or None
        if asked.success is not None:
            rollout["success"] = _sum(values, {asked.success: 1.0})
        yield rollout

    return _rollouts(frame, read, notes, _columns(asked))


def is_profile(record: Record) -> bool:
    """Whether NeMo Gym wrote the record."""
    return "mean/reward" in record and isinstance(record.get("sample"), dict)


def gym_rows(frame: pd.DataFrame, asked: Asked, path: Path, notes: Notes) -> pd.DataFrame:
    """The rollouts of the tasks of a profile of NeMo Gym."""
    weights = asked.weights("reward")

    def read(record: Record) -> Iterator[Record]:
        if not is_profile(record):
            raise KeyError("no task of a profile")
        sample, rollouts = record["sample"], _profiled(record)
        if not rollouts:
            notes.doubt(_NO_REWARDS, 1)
        messages = _get(sample, "responses_create_params", "input")
        prompt = (
            {"prompt": as_id(record["_ng_task_index"])}
            if not messages
            else {"prompt": text_id(messages)}
        )
        if asked.prompt is not None or "prompt_id" in sample:
            name = asked.prompt or "prompt_id"
            places = (sample, sample.get("verifier_metadata"), record)
            prompt = {
                "prompt": as_id(
                    next((x[name] for x in places if isinstance(x, dict) and name in x), None)
                )
            }
        for values in rollouts:
            rollout = {**prompt, "text": messages, "reward": _sum(values, weights)}
            rollout["length"] = as_integer(values.get("output_tokens") or -1)
            yield (
                rollout
                if asked.success is None
                else rollout | {"success": _sum(values, {asked.success: 1.0})}
            )

    notes["no steps: a profile is taken as one step"] = 1
    return _rollouts(frame, read, notes, _columns(asked))


def _profiled(record: Record) -> list[Record]:
    """The values of each rollout by name; empty if the record does not tell the rollouts'
    rewards."""
    if isinstance(infos := record.get("rollout_infos"), list):
        if not all(isinstance(x, dict) for x in infos):
            raise TypeError("no rollouts")
        return infos
    count, low, high = (record.get(name) for name in ("num_rollouts", "min/reward", "max/reward"))
    if count is None or low not in (0, 1) or high not in (0, 1):
        return []
    rollouts, mean = as_integer(count), float(record["mean/reward"])
    passed = mean * rollouts
    whole = (
        math.isfinite(passed)
        and abs(passed - round(passed)) < 1e-6
        and 0 <= round(passed) <= rollouts <= 10**6
    )
    # In between, the smallest reward is 0 and the largest 1; both also occur with graded rewards,
    # whose spread differs.
    if not whole or (low == high and mean != low) or not _spread_fits(record, mean, rollouts):
        return []
    return [{"reward": 1.0}] * round(passed) + [{"reward": 0.0}] * (rollouts - round(passed))


def _spread_fits(record: Record, mean: float, rollouts: int) -> bool:
    """Whether the standard deviation of the rewards is that of rewards of 0 and 1 with this
    mean."""
    deviation = record.get("std/reward")
    if rollouts < 2 or mean in (0, 1):
        return True
    expected = math.sqrt(mean * (1 - mean) * rollouts / (rollouts - 1))
    return deviation is not None and abs(float(deviation) - expected) < 1e-6
