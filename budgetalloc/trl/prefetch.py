"""Computes the next step's decision in a thread while the trainer computes gradients."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from datasets import Dataset

from budgetalloc.beliefs.ids import Id
from budgetalloc.policies import Needs
from budgetalloc.training.options import Options

__all__ = ["Prefetch", "PreparedStep", "T", "can_prefetch"]

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class PreparedStep:
    """A step that was begun.

    Args:
        own_ids_R: The prompt of each row of all processes, if the loader's rows are the candidates.
        first: The first round's prompts and rows, if they were prefetched.
    """

    own_ids_R: list[Id]
    first: tuple[list[Id], list[dict[str, Any]]] | None = None


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
    """Whether a decision depends only on what is known after the previous step, and a thread does no harm."""
    return (
        needs.ahead
        and options.bounds.candidates == "all"
        and options.cost in (None, "tokens")  # seconds are learned later, and a function of the user's may be anything
        and trainer.accelerator.num_processes == 1
        and not trainer.args.dataloader_num_workers  # which are forked
        and isinstance(trainer.train_dataset, Dataset)
        and trainer.train_dataset.format["type"] != "custom"  # a function of the user's
    )
