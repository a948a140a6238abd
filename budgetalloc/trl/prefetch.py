"""The next step's decision, made in a thread while the trainer computes gradients (which needs no Python)."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from datasets import Dataset

from budgetalloc.beliefs.ids import Id
from budgetalloc.policies import Needs
from budgetalloc.training.options import Options

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class PreparedStep:
    """A step that was begun.

    Args:
        own_ids_R: The prompt of each row of all processes, if the loader's rows are the candidates.
        first: The first round's prompts and rows, if they were decided ahead.
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
        """Starts the computation.

        Args:
            key: Says from what the result follows.
            compute: Computes it; must change nothing that others read.
        """
        self._next = key, self._thread.submit(compute)

    def take(self, key: Hashable) -> T | None:
        """The result, or what its computation raised; None if nothing was begun with this key, or it was taken."""
        begun, self._next = self._next, None
        if begun is None:
            return None
        error = begun[1].exception()  # waits, so that two computations never run at once
        if begun[0] != key:
            return None
        if error is not None:
            raise error
        return begun[1].result()

    def close(self) -> None:
        """Waits for the thread, and forgets the result."""
        self._next = None
        self._thread.shutdown(wait=True, cancel_futures=True)


def can_prefetch(trainer: Any, needs: Needs, options: Options) -> bool:
    """Whether a decision follows from what is known when the step before it has ended, and nothing forbids a thread."""
    return (
        needs.ahead
        and options.bounds.candidates == "all"
        and options.cost in (None, "tokens")  # seconds are learned later, and a function of the user's may be anything
        and trainer.accelerator.num_processes == 1
        and not trainer.args.dataloader_num_workers  # which are forked
        and isinstance(trainer.train_dataset, Dataset)
        and trainer.train_dataset.format["type"] != "custom"  # a function of the user's
    )
