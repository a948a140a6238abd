"""Independent runs in several processes, closures included, with the results in order."""

import signal
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from budgetalloc.errors import check_integer

Result = TypeVar("Result")


def in_processes(
    run: Callable[[Any, int], Result], given: Any, runs: int, workers: int | None = None
) -> Generator[Result, None, None]:
    """Yields `run(given, k)` for k = 0 to runs - 1, in this order.

    Each worker process receives `run` and `given` once, pickled by cloudpickle, so that both may contain closures, such
    as the rule of a `Policy`, on every platform, and a script needs no `if __name__ == "__main__"`. If the caller stops
    early, or a run raises, the other runs are terminated.

    Args:
        run: Called in a worker process.
        given: The arguments that all runs share. A run must not change them.
        runs: Number of runs.
        workers: Processes; by default one for each core. 1 runs everything in this process.

    Raises:
        InputError: `workers` is not a positive integer. An exception of a run is raised here.

    >>> list(in_processes(pow, 3, 4, workers=2))  # pow(3, 0) to pow(3, 3)
    [1, 3, 9, 27]
    """
    import loky  # deferred: `import budgetalloc` stays light

    workers = min(loky.cpu_count() if workers is None else check_integer("workers", workers, 1), runs)
    if workers <= 1:
        yield from (run(given, at) for at in range(runs))
        return
    # A separate executor for each call: loky's reusable one cannot serve two callers at the same time.
    pool = loky.ProcessPoolExecutor(workers, initializer=_receive, initargs=(run, given))
    # An interpreter that ends while this generator is suspended, as after a Ctrl-C in its caller, must not wait for the
    # runs. Loky has no argument for that. `shutdown()` below sets the flag anew.
    pool._flags.kill_workers = True
    ended = False
    try:
        results = [pool.submit(_run, at) for at in range(runs)]
        for result in results:
            yield result.result()
        ended = True
    finally:
        pool.shutdown(kill_workers=not ended)


_received: list[Any] = []  # in a worker process: the function and what all its runs share


def _receive(run: Callable[[Any, int], Any], given: Any) -> None:
    # A terminal sends Ctrl-C to the workers too. The caller terminates them: a worker that ended by itself could be
    # noticed first, as an error of its own.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _received[:] = [run, given]


def _run(at: int) -> Any:
    run, given = _received
    return run(given, at)
