"""Computes the next step's decision in a thread while the trainer computes gradients."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from datasets import Dataset

from budgetalloc.beliefs.ids import Id
from budgetalloc.policies import Needs
from budgetalloc.training.options import Options

__all__ = ["Prefetch", "PreparedRound", "T", "can_prefetch"]

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class PreparedRound:
    """The rollouts that the policy requests in a round.

    Args:
        ids_R: The prompt of each rollout of all processes; empty if the step is complete.
        rows: The rows of this process.
        hinted: Whether they are generated with a hint.
        more: Whether the policy may request more in this step.
    """

    ids_R: list[Id]
    rows: list[dict[str, Any]]
    hinted: bool
    more: bool


class Prefetch(Generic[T]):
    """One result that is computed before it is needed.

    >>> prefetch = Prefetch()
    >>> prefetch.begin("step 1", lambda: 10)
    >>> prefetch.take("step 1"), prefetch.take("step 1")
    (10, None)
    >>> prefetch.close()
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="budgetalloc-prefetch")
        self._next: tuple[Hashable, Future[T]] | None = None

    def begin(self, key: Hashable, compute: Callable[[], T]) -> None:
        """Starts `compute`, which must change nothing that others read. `key` names the state that it depends on."""
        self._next = key, self._thread.submit(compute)

    def take(self, key: Hashable) -> T | None:
        """The result for this key; None if there is none, or it was taken. Raises what its computation raised."""
        begun, self._next = self._next, None
        if begun is None:
            return None
        error = begun[1].exception()  # waits: two computations never run at once
        if begun[0] != key:
            return None
        if error is not None:
            raise error
        return begun[1].result()

    def close(self) -> None:
        """Waits for the thread, and discards the result."""
        self._next = None
        self._thread.shutdown(wait=True, cancel_futures=True)


def can_prefetch(trainer: Any, needs: Needs, options: Options) -> bool:
    """Whether this process decides, a decision depends only on what is known after the previous step, and a thread does
    no harm.

    The thread calls no collective operation: those of two threads would meet in another order in each process.
    """
    return (
        trainer.accelerator.process_index == 0
        and needs.ahead
        and options.bounds.candidates == "all"
        and options.cost in (None, "tokens")  # seconds are learned later, and a function of the user's may be anything
        and not trainer.args.dataloader_num_workers  # which are forked
        and isinstance(trainer.train_dataset, Dataset)
        and trainer.train_dataset.format["type"] != "custom"  # a function of the user's
    )
