"""Runs that do not depend on each other, in several processes."""

import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from budgetalloc.errors import check_integer

Result = TypeVar("Result")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_processes(
    run: Callable[[Any, int], Result], given: Any, runs: int, workers: int | None = None
) -> Iterator[Result]:
    """Yields `run(given, k)` for k = 0 to runs - 1, in this order.

    On Linux the processes are forked, unless `multiprocessing.set_start_method` said otherwise: they have `given` at
    once, whatever it is. Elsewhere they are spawned, and it is pickled; what cannot be (a closure, such as the rule of
    a `Policy`) runs in this process after a warning, and a script needs its `if __name__ == "__main__"`.

    Args:
        run: A function of a module.
        given: What all runs share; read only.
        runs: How many.
        workers: Processes; by default one for each core. 1 stays in this process.

    >>> list(in_processes(pow, 3, 4, workers=2))  # pow(3, 0) to pow(3, 3)
    [1, 3, 9, 27]
    """
    import multiprocessing  # deferred: `import budgetalloc` stays light
    from concurrent.futures import ProcessPoolExecutor

    workers = min(cores() if workers is None else check_integer("workers", workers, 1), runs)
    method = multiprocessing.get_start_method(allow_none=True) or ("fork" if sys.platform == "linux" else "spawn")
    if workers > 1 and method != "fork" and not _pickles((run, given)):
        warnings.warn(
            "What runs cannot be sent to other processes, so everything runs in this one, run after run. Of policies "
            "give functions, such as ba.knapsack instead of ba.knapsack(), or functools.partial of one.",
            stacklevel=2,
        )
        workers = 1
    if workers <= 1:
        yield from (run(given, at) for at in range(runs))
        return
    context = multiprocessing.get_context(method)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_receive, initargs=(run, given))
    try:
        yield from pool.map(_run, range(runs))
    finally:
        pool.shutdown(cancel_futures=True)  # also when the caller has seen enough


_received: list[Any] = []  # of a worker process, what it was started with


def _receive(run: Callable[[Any, int], Any], given: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a worker at once, without a traceback of its own
    _received[:] = [run, given]


def _run(at: int) -> Any:
    run, given = _received
    return run(given, at)


def _pickles(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True
