"""Several processes and rounds: rank 0 decides and broadcasts; TRL's batches are merged into one,
whose rows are selected and shared.

Each of several processes holds an equal, consecutive share of a round's rows, in the order in which
TRL gathers rewards. If the rows do not divide evenly, the last one is repeated as a filler, because
every process must make the same calls. Fillers are generated and scored, but not observed, trained
on or logged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from accelerate.utils import broadcast, broadcast_object_list, gather_object
from trl.trainer.utils import pad

from budgetalloc.budget import IntArray
from budgetalloc.errors import BudgetallocError, InputError, UnsupportedError
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.session import Session

_T = TypeVar("_T")
_FAILED = -1  # in place of the length of a message
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


def gather(accelerator: Any, items: list[Any]) -> list[Any]:
    """The concatenated lists of all processes, in the order in which TRL gathers rewards."""
    return list(gather_object(items)) if accelerator.num_processes > 1 else items


def from_rank_0(
    accelerator: Any,
    compute: Callable[[], _T],
    encode: Callable[[_T], Sequence[int]],
    decode: Callable[[list[int]], _T],
    most: int,
) -> _T:
    """The result of `compute` in process 0, in all processes. If it raises, all raise.

    The result is broadcast as a tensor of fixed size, because a pickled object needs a second
    broadcast, of its size: `encode` writes it as at most `most` integers, which `decode` reads.
    """
    if accelerator.num_processes == 1:
        return compute()
    numbers: Sequence[int] = ()
    error: Exception | None = None
    if accelerator.process_index == 0:
        try:
            answer = compute()
            numbers = encode(answer)
        except Exception as raised:  # the other processes wait: send them the error before raising
            error = raised
    message = [_FAILED if error else len(numbers), *numbers, *[0] * (most - len(numbers))]
    length, *sent = broadcast(torch.tensor(message, device=accelerator.device)).tolist()
    if length == _FAILED:
        (text,) = broadcast_object_list([f"{type(error).__name__}: {error}"])
        raise error or BudgetallocError(
            f"Process 0 failed to decide, and all processes stop. It raised {text}"
        )
    return answer if accelerator.process_index == 0 else decode(sent[:length])


def rows_of_process(ids_R: list[_T], process: int, processes: int) -> list[_T]:
    """The rows of a round that this process generates; the last row is repeated as a filler.

    >>> rows_of_process(["a", "a", "b"], 0, 2), rows_of_process(["a", "a", "b"], 1, 2)
    (['a', 'a'], ['b', 'b'])
    """
    share = -(-len(ids_R) // processes)
    filled = ids_R + ids_R[-1:] * (share * processes - len(ids_R))
    return filled[process * share : (process + 1) * share]


def check_same_arguments(accelerator: Any, mine: Mapping[str, object]) -> None:
    """Raises `InputError` in all processes if the arguments of one, by name, differ from those of
    process 0."""
    everyone = gather(accelerator, [dict(mine)])
    for name, first in everyone[0].items():
        for rank, other in enumerate(everyone):
            if other[name] != first:
                raise InputError(
                    f"The processes differ in {name}: process 0 has {first!r}, process {rank} has "
                    f"{other[name]!r}. Give all the same policy, settings, seed and dataset, and "
                    "the same checkpoint to resume from."
                )


def same_everywhere(session: Session, prompts: Prompts) -> dict[str, object]:
    """The settings of a session that must be equal on all processes."""
    policy, options = session.policy, session.options
    return {
        "policy": policy.name,
        "seed": policy.seed,
        "options": repr(replace(options, hint=None, success=None, cost=None, shadow=None)),
        "cost": options.cost is not None if callable(options.cost) else options.cost,
        "success": repr(session.scoring.state_dict()),
        "hint": options.hint is not None,
        "keep": policy.keep is not None,
        "dataset": prompts.fingerprint,
        "state": f"{policy.estimator.step} steps, {len(policy.estimator)} prompts",
        "parts": [type(part).__name__ for part in session.parts],
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
    return counted(merged)


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
    return counted({name: output[name][index.to(output[name].device)] for name in _by_row(output)})


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


def counted(output: dict[str, Any]) -> dict[str, Any]:
    """With the number of tokens that the loss divides by, as TRL counts them."""
    mask = output["completion_mask"]
    of_loss = mask * output["tool_mask"] if "tool_mask" in output else mask
    return output | {"num_items_in_batch": of_loss.sum()}
