"""Several processes: rank 0 decides and broadcasts; the arguments of all processes must be equal."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from accelerate.utils import broadcast_object_list, gather_object

from budgetalloc.errors import BudgetallocError, InputError
from budgetalloc.policies import Policy
from budgetalloc.training.options import Options
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.scoring import Scoring

__all__ = ["T", "check_same_arguments", "decide_on_rank_0", "gather", "given", "rows_of_process"]

T = TypeVar("T")


def gather(accelerator: Any, items: list[Any]) -> list[Any]:
    """The concatenated lists of all processes, in the order in which TRL gathers rewards."""
    return list(gather_object(items)) if accelerator.num_processes > 1 else items


def decide_on_rank_0(accelerator: Any, decide: Callable[[], T]) -> T:
    """The result of `decide` in process 0, broadcast as a pickle to all processes. If it raises, all raise."""
    if accelerator.num_processes == 1:
        return decide()
    answer: T | None = None
    error: Exception | None = None
    if accelerator.process_index == 0:
        try:
            answer = decide()
        except Exception as raised:  # the other processes wait: send them the error before raising
            error = raised
    message = broadcast_object_list([answer, None if error is None else f"{type(error).__name__}: {error}"])
    if error is not None:
        raise error
    if message[1] is not None:
        raise BudgetallocError(f"Process 0 failed to decide, and all processes stop. It raised {message[1]}")
    return message[0]  # type: ignore[no-any-return]


def rows_of_process(ids_R: list[T], process: int, processes: int) -> list[T]:
    """The rows of a round that this process generates; the last row is repeated as a filler.

    >>> rows_of_process(["a", "a", "b"], 0, 2), rows_of_process(["a", "a", "b"], 1, 2)
    (['a', 'a'], ['b', 'b'])
    """
    share = -(-len(ids_R) // processes)
    filled = ids_R + ids_R[-1:] * (share * processes - len(ids_R))
    return filled[process * share : (process + 1) * share]


def given(policy: Policy, options: Options, scoring: Scoring, prompts: Prompts) -> dict[str, object]:
    """The settings of a callback that must be equal on all processes."""
    return {
        "policy": policy.name,
        "seed": policy.seed,
        "options": repr(replace(options, hint=None, success=None, cost=None)),
        "cost": options.cost if isinstance(options.cost, str) else options.cost is not None,
        "success": repr(scoring.state_dict()),
        "hint": options.hint is not None,
        "keep": policy.keep is not None,
        "dataset": prompts.fingerprint,
        "state": f"{policy.estimator.step} steps, {len(policy.estimator)} prompts",
    }


def check_same_arguments(accelerator: Any, mine: Mapping[str, object]) -> None:
    """Raises `InputError` in all processes if the arguments of one, by name, differ from those of process 0."""
    everyone = gather(accelerator, [dict(mine)])
    for name, first in everyone[0].items():
        for rank, other in enumerate(everyone):
            if other[name] != first:
                raise InputError(
                    f"The processes differ in {name}: process 0 has {first!r}, process {rank} has {other[name]!r}. "
                    "Give all the same policy, settings, seed and dataset, and the same checkpoint to resume from."
                )
