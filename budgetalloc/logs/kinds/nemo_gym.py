"""Reward profiles of NeMo Gym: `rollouts_reward_profiling.jsonl`, a line for each task with its rollouts' rewards.

`gym eval profile` (`ng_reward_profile`) writes it. The format was read from NVIDIA-NeMo/Gym, in
`nemo_gym/reward_profile.py` at 0281ad6f and in a later version with `rollout_infos`, which the pull requests 1145 and
2862 describe. A profile has no steps: all rollouts are at step 0, and it says nothing about changes in a training.

A task's prompt is the hash of `sample.responses_create_params.input`, which is the callback's own for a dataset with
these messages; without them, its number. Rows of versions without `rollout_infos` hold the mean reward only. They are
read if `num_rollouts` is known and the rewards were 0 and 1, and are counted and skipped otherwise.
"""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id, text_id
from budgetalloc.logs.chunk import Rows, as_id, as_integer
from budgetalloc.logs.formats.lines import Record, first, parsed_rows
from budgetalloc.logs.formats.named_values import named_success, texts_by_hash, weighted_reward
from budgetalloc.logs.log_stream import LogStream

__all__ = ["find", "rows", "texts"]

_TASK = "_ng_task_index"
_ENDING = "_reward_profiling.jsonl"
_NO_REWARDS = "row without the rewards of its rollouts, or the number of them"
_Rollout = tuple[Id, float, int, float]


def find(path: Path) -> list[Path]:
    """A profile, or those directly in a folder."""
    if path.is_dir():
        return [x for x in sorted(path.glob(f"*{_ENDING}*")) if x.is_file() and find(x)]
    return [path] if any(_is_profile(x) for x in first(path, 3)) else []


def _is_profile(record: Record) -> bool:
    return "mean/reward" in record and isinstance(record.get("sample"), dict)


def rows(reading: LogStream) -> Iterator[Rows]:
    """The rollouts of each task."""
    options = reading.options

    def parse(record: Record) -> list[_Rollout] | None:
        if not _is_profile(record):
            raise KeyError("no task of a profile")
        name, rollouts = _name(record, options.prompt_id), _rollouts(record)
        if not rollouts:
            reading.notes.doubt(_NO_REWARDS, 1)
            return None
        if len(rollouts) > options.max_row:
            reading.notes[f"row of more than max_row={options.max_row:,} rollouts, skipped"] += 1
            return None
        return [
            (
                name,
                weighted_reward(values, options.reward, "reward"),
                as_integer(values.get("output_tokens") or -1),
                named_success(values, options.success),
            )
            for values in rollouts
        ]

    def joined(tasks: list[list[_Rollout]]) -> Rows:
        ids_R, reward, length, success = zip(*(rollout for task in tasks for rollout in task), strict=True)
        return Rows(
            np.zeros(len(ids_R), dtype=np.int64),
            list(ids_R),
            np.array(reward, dtype=np.float64),
            np.array(length, dtype=np.int64),
            success_R=None if options.success is None else np.array(success, dtype=np.float64),
        )

    yield from parsed_rows(reading, reading.location, parse, joined)
    reading.notes["no steps: a profile is taken as one step"] = 1


def _rollouts(record: Record) -> list[dict[str, Any]]:
    """The values of each rollout by name; empty if the record does not tell the rollouts' rewards."""
    if isinstance(infos := record.get("rollout_infos"), list):
        if not all(isinstance(x, dict) for x in infos):
            raise TypeError("no rollouts")
        return infos
    count = record.get("num_rollouts")
    low, high = record.get("min/reward"), record.get("max/reward")
    if count is None or low not in (0, 1) or high not in (0, 1):
        return []
    rollouts, mean = as_integer(count), float(record["mean/reward"])
    passed = mean * rollouts
    whole = math.isfinite(passed) and abs(passed - round(passed)) < 1e-6 and 0 <= round(passed) <= rollouts
    # In between, the smallest reward is 0 and the largest 1; both also occur with graded rewards, whose spread differs.
    if not whole or (low == high and mean != low) or not _spread_fits(record, mean, rollouts):
        return []
    return [{"reward": 1.0}] * round(passed) + [{"reward": 0.0}] * (rollouts - round(passed))


def _spread_fits(record: Record, mean: float, rollouts: int) -> bool:
    """Whether the standard deviation of the rewards is that of rewards of 0 and 1 with this mean."""
    deviation = record.get("std/reward")
    if rollouts < 2 or mean in (0, 1):
        return True
    expected = math.sqrt(mean * (1 - mean) * rollouts / (rollouts - 1))
    return deviation is not None and abs(float(deviation) - expected) < 1e-6


def _messages(record: Record) -> Any:
    """The input of the task as the model got it, text or messages; None without one."""
    asked = record["sample"].get("responses_create_params")
    given = asked.get("input") if isinstance(asked, dict) else None
    return given if isinstance(given, (str, list)) and given else None


def _name(record: Record, prompt_id: str | None) -> Id:
    sample = record["sample"]
    if prompt_id is not None or "prompt_id" in sample:
        name, inner = prompt_id or "prompt_id", sample.get("verifier_metadata")
        places = (sample, inner if isinstance(inner, dict) else {}, record)
        return as_id(next((x[name] for x in places if name in x), None))
    if (messages := _messages(record)) is not None:
        return text_id(messages)
    return as_id(record[_TASK])


def texts(reading: LogStream, ids: Iterable[Id]) -> dict[Id, str]:
    """The texts of these prompts."""
    return texts_by_hash(reading, ids, _messages)
