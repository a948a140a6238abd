"""Several generation batches of TRL made one, and the rows that are trained on taken from it."""

from collections.abc import Sequence
from typing import Any

import torch
from trl.trainer.utils import pad

from budgetalloc.budget import IntArray
from budgetalloc.errors import UnsupportedError

# What TRL puts into a batch: how a row that is too short is filled up, None for what has no length.
_FILL: dict[str, tuple[str, float] | None] = {
    "prompt_ids": ("left", 0),  # the pad token
    "prompt_mask": ("left", 0),
    "completion_ids": ("right", 0),  # the pad token
    "completion_mask": ("right", 0),
    "tool_mask": ("right", 1),
    "old_per_token_logps": ("right", 0),
    "ref_per_token_logps": ("right", 0),
    "sampling_per_token_logps": ("right", 0),
    "importance_sampling_ratio": ("right", 1),
    "advantages": None,
}


def merge(outputs: Sequence[dict[str, Any]], pad_token_id: int) -> dict[str, Any]:
    """The batches of several rounds as one, padded to the longest; `num_items_in_batch` is that of all its rows.

    Raises:
        UnsupportedError: a batch holds something that cannot be merged row by row, such as images.
    """
    if len(outputs) == 1:
        return outputs[0]
    merged: dict[str, Any] = {}
    for name in outputs[0]:
        if name == "num_items_in_batch":
            continue
        if name not in _FILL:
            raise UnsupportedError(
                f"A step in several rounds cannot merge {name!r} of TRL's batch. Use a policy that decides once a step."
            )
        rows = [row for output in outputs for row in output[name]]
        fill = _FILL[name]
        if fill is None:
            merged[name] = torch.stack(rows)
        else:
            side, value = fill
            merged[name] = pad(rows, pad_token_id if name.endswith("_ids") else value, side)
    return _counted(merged)


def take(output: dict[str, Any], rows: IntArray) -> dict[str, Any]:
    """The batch of these rows alone."""
    index = torch.as_tensor(rows)
    kept = {
        name: value[index.to(value.device)] if torch.is_tensor(value) and value.dim() else value
        for name, value in output.items()
    }
    return _counted(kept)


def _counted(output: dict[str, Any]) -> dict[str, Any]:
    """With the number of tokens that the loss divides by, as TRL counts them."""
    mask = output["completion_mask"]
    output["num_items_in_batch"] = (mask * output["tool_mask"] if "tool_mask" in output else mask).sum()
    return output
