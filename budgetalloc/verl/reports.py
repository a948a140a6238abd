"""What the rollouts of verl's agent loops report of their costs."""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["COUNTED", "fields_of", "reports"]

COUNTED = {"turns": ("num_turns", None), "tool_seconds": ("metrics", "tool_calls")}
"""Names that verl's agent loops count themselves: the field of their output, and the key in it."""


def fields_of(names: Sequence[str]) -> list[str]:
    """The fields of verl's TransferQueue in which these names are looked up.

    >>> fields_of(["turns", "api_calls"])
    ['num_turns', 'extra_fields']
    """
    counted = dict.fromkeys(COUNTED[name][0] for name in names if name in COUNTED)
    return [*counted, "extra_fields"] if names else []


def reports(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    """The reports by name, one entry for each rollout, None where there is none.

    Args:
        rows: The fields of each rollout's last output.
        names: What may be reported: a key of `COUNTED`; an entry of the agent loop's
            `extra_fields`; or one of the dictionary that the reward function returned. The first
            that has a value counts.

    >>> row = {"num_turns": 6, "metrics": {"tool_calls": 1.5}, "extra_fields": {"reward_extra_info": {"judge": 0.25}}}
    >>> reports([row, {}], ["turns", "tool_seconds", "judge"])
    {'turns': [6, None], 'tool_seconds': [1.5, None], 'judge': [0.25, None]}
    """

    def value(row: Mapping[str, Any], name: str) -> Any:
        found = None
        if name in COUNTED:
            field, key = COUNTED[name]
            found = row.get(field) if key is None else _mapping(row.get(field)).get(key)
        extra = _mapping(row.get("extra_fields"))
        for more in (extra, _mapping(extra.get("reward_extra_info"))):
            found = more.get(name) if found is None else found
        return found

    return {name: [value(row, name) for row in rows] for name in names}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
