"""JSON records that hold values by name, and the messages of their prompt: reward, success and texts."""

import math
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any

from budgetalloc.beliefs.ids import Id, text_id
from budgetalloc.logs.chunk import FAULTS, Notes, Reward
from budgetalloc.logs.formats.lines import Record, records
from budgetalloc.logs.log_stream import LogStream
from budgetalloc.logs.prompt_texts import prompt_text

__all__ = ["named_success", "texts_by_hash", "weighted_reward"]


def weighted_reward(values: Mapping[str, Any], reward: Reward, default: str) -> float:
    """The reward that the user named, or the weighted sum of several; NaN if the record has none of them.

    Args:
        values: The numbers of the record by name.
        reward: The name, or the weight of each name; None is `default`.
        default: The record's own reward.

    >>> weighted_reward({"total": 0.4, "correct": 1, "format": None}, {"correct": 0.5, "format": 1.0}, "total")
    0.5
    >>> weighted_reward({"total": 0.4, "correct": 1}, None, "total")
    0.4
    """
    weights = {reward or default: 1.0} if reward is None or isinstance(reward, str) else reward
    scores = [weight * float(values[name]) for name, weight in weights.items() if values.get(name) is not None]
    return sum(scores) if scores else math.nan


def named_success(values: Mapping[str, Any], success: str | None) -> float:
    """The success that the user named; NaN if none was named, or the record lacks it."""
    return math.nan if success is None or values.get(success) is None else float(values[success])


def texts_by_hash(reading: LogStream, ids: Iterable[Id], prompt_of: Callable[[Record], Any]) -> dict[Id, str]:
    """The texts of these prompts, if their ids are hashes of them. The files are read until all are known.

    Args:
        reading: The log. Its notes stay unchanged.
        ids: Ids of prompts.
        prompt_of: The text or the chat messages of a record's prompt, or None. Its `FAULTS` count as None.
    """
    again, wanted, known = copy(reading), set(ids), dict[Id, str]()
    again.notes = Notes()
    for file in reading.files() if reading.options.prompt_id is None else ():
        for batch in records(again, file):
            for record in batch:
                if not wanted - known.keys():
                    return known
                try:
                    prompt = prompt_of(record)
                    if prompt is not None and (name := text_id(prompt)) in wanted:
                        known[name] = prompt_text(prompt)
                except FAULTS:
                    continue
    return known
