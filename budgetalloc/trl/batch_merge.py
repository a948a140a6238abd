"""Merges TRL's batches of several rounds and processes into one, selects rows, and shares rows
among processes.

Each of several processes holds an equal, consecutive share of a round's rows, in the order in which
TRL gathers rewards. If the rows do not divide evenly, the last one is repeated as a filler, because
every process must make the same calls. Fillers are generated and scored, but not observed, trained
on or logged.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from trl.trainer.utils import pad

from budgetalloc.budget import IntArray
from budgetalloc.errors import UnsupportedError

__all__ = ["drop_fillers", "gather_rounds", "merge_rounds", "process_share", "select_rows"]

# The entries of TRL's batch: how a short row is padded; None for one number per row.
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
    "branch_ids": ("right", -1),  # of `contrib.trees`
    "branch_weights": None,
}


def merge_rounds(outputs: Sequence[dict[str, Any]], pad_token_id: int) -> dict[str, Any]:
    """The batches of several rounds as one, padded to the longest row; raises `UnsupportedError` if
    one holds something that cannot be merged row by row, such as images."""
    if len(outputs) == 1:
        return outputs[0]
    _check_names([_by_row(output) for output in outputs])
    merged: dict[str, Any] = {}
    for name in _by_row(outputs[0]):
        rows = [row for output in outputs for row in output[name]]
        side, value = _padding(name, pad_token_id)
        merged[name] = torch.stack(rows) if side is None else pad(rows, value, side)
    return _counted(merged)


def gather_rounds(
    outputs: Sequence[dict[str, Any]], sizes: Sequence[int], accelerator: Any, pad_token_id: int
) -> dict[str, Any]:
    """The batches of several rounds as one, with the rows of all processes in the order of the
    requests; all processes raise if one does.

    Args:
        outputs: This process's share of each round, with the fillers.
        sizes: The rows of each round, all processes together and without the fillers.
        accelerator, pad_token_id: Of the trainer.
    """
    _check_names(gather_object([_by_row(output) for output in outputs]))
    mine = merge_rounds(outputs, pad_token_id)
    gathered: dict[str, Any] = {}
    for name in _by_row(mine):
        column = mine[name]
        side, value = _padding(name, pad_token_id)
        if side is not None:
            column = accelerator.pad_across_processes(column, 1, value, pad_first=side == "left")
        gathered[name] = accelerator.gather(column)
    return select_rows(gathered, _places(sizes, accelerator.num_processes))


def _padding(name: str, pad_token_id: int) -> tuple[str | None, float]:
    """The side and the value that pad this entry of TRL's batch."""
    side, value = _FILL[name] or (None, 0)
    return side, pad_token_id if name in ("prompt_ids", "completion_ids") else value


def _places(sizes: Sequence[int], processes: int) -> IntArray:
    """The positions of the rounds' rows among the gathered rows, which are ordered by process, then
    by round.

    >>> _places([4, 3], 2)  # the first process has rows 0, 1 of both rounds
    array([0, 1, 4, 5, 2, 3, 6])
    """
    shares = [-(-size // processes) for size in sizes]
    starts = np.cumsum([0, *shares])
    rows = [
        np.arange(size) // share * starts[-1] + start + np.arange(size) % share
        for size, share, start in zip(sizes, shares, starts, strict=False)
    ]
    return np.concatenate(rows)


def select_rows(output: dict[str, Any], rows: IntArray) -> dict[str, Any]:
    """The batch of these rows only; raises `UnsupportedError` if an entry does not have one value
    per row."""
    _check_names([_by_row(output)])
    index = torch.as_tensor(rows)
    return _counted({name: output[name][index.to(output[name].device)] for name in _by_row(output)})


def process_share(output: dict[str, Any], process: int, processes: int) -> dict[str, Any]:
    """One process's even share of the rows; as in TRL, `num_items_in_batch` counts the tokens of
    all processes."""
    total = len(output["advantages"])
    if total % processes:
        raise UnsupportedError(
            f"The policy trains on {total} rollouts, which {processes} processes cannot share "
            "evenly. Give the Policy a keep= that returns the requested number of rows."
        )
    share = total // processes
    return output | {
        name: output[name][process * share : (process + 1) * share] for name in _by_row(output)
    }


def drop_fillers(logs: dict[str, Any], fillers: int) -> None:
    """Removes the fillers, which are the last rows of the last round, from TRL's completions
    table."""
    columns = [logs["prompt"], logs["completion"], logs["advantages"], *logs["rewards"].values()]
    rows = len(logs["prompt"]) - fillers
    for column in [*columns, *logs["extra"].values()]:
        while len(column) > rows:
            column.pop()


def _by_row(output: dict[str, Any]) -> list[str]:
    return sorted(output.keys() - {"num_items_in_batch"})  # the same order on all processes


def _check_names(names: Sequence[Sequence[str]]) -> None:
    """Raises unless these batches have the same entries, all with one value per row."""
    for each in names:
        for name in each:
            if name not in _FILL:
                raise UnsupportedError(
                    "A step in several rounds, or one that trains on some of its rollouts, cannot "
                    f"merge {name!r} of TRL's batch. Use a policy that decides once a step, and "
                    "trains on all rollouts that it generates."
                )
        if each != names[0]:
            raise UnsupportedError(
                "The rounds of a step cannot be merged: TRL's batch has "
                f"{sorted({*names[0]} ^ {*each})} in some of them, or on some processes, only. Let "
                "rollout_func return the same keys each time."
            )


def _counted(output: dict[str, Any]) -> dict[str, Any]:
    """With the number of tokens that the loss divides by, as TRL counts them."""
    mask = output["completion_mask"]
    counted = mask * output["tool_mask"] if "tool_mask" in output else mask
    output["num_items_in_batch"] = counted.sum()
    return output
