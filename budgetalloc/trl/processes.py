"""Several processes: rank 0 decides and broadcasts; the arguments of all processes must be
equal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from accelerate.utils import broadcast, broadcast_object_list, gather_object

from budgetalloc.errors import BudgetallocError, InputError
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.session import Session

__all__ = ["check_same_arguments", "from_rank_0", "gather", "rows_of_process", "same_everywhere"]

_T = TypeVar("_T")
_FAILED = -1  # in place of the length of a message


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
