"""Independent runs in several processes or on a Ray cluster, with the results in order."""

import concurrent.futures
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from importlib.util import find_spec
from queue import SimpleQueue
from typing import Any, Literal, TypeVar

from budgetalloc.errors import InputError, check_integer, imported, shown
from budgetalloc.offline.ray_pool import RayPool, ray

__all__ = ["Result", "Workers", "check_workers", "in_parallel"]

Result = TypeVar("Result")
Workers = int | Literal["ray"] | None
"""Processes on this machine, "ray" for the tasks of a Ray cluster, or None for one process for each core."""


def check_workers(workers: Any) -> Workers:
    """Raises `InputError` for anything but `Workers`, and `UnsupportedError` where Ray or loky would have to be
    installed."""
    if isinstance(workers, str) and workers == "ray":
        ray()
        return "ray"
    if workers is None:
        return None
    try:
        processes = check_integer("workers", workers, 1)
    except InputError as error:
        raise InputError(f"workers={shown(workers)}: use an integer of at least 1, or 'ray'.") from error
    if processes > 1:
        imported("loky", f"workers={processes}", "logs", " Or give workers=1.")
    return processes


def in_parallel(
    run: Callable[[Any, int], Result], given: Any, runs: int, workers: Workers = None, *, ordered: bool = True
) -> Generator[Result, None, None]:
    """Yields `run(given, k)` for k = 0 to runs - 1, in this order.

    Each worker process receives `run` and `given`, pickled by cloudpickle. Both may therefore contain closures, such as
    the rule of a `Policy`, and a script needs no `if __name__ == "__main__"`. If the caller stops early, or a run
    raises, the other runs are terminated.

    Args:
        run: Called in a worker process.
        given: The arguments that all runs share. A run must not change them.
        runs: Number of runs.
        workers: Processes; by default one for each core, or one alone where loky is not installed. 1 runs everything in
            this process. "ray" makes each run a task of one CPU on a Ray cluster (see `RayPool`).
        ordered: If False, results are yielded as the runs end.

    Raises:
        InputError: `workers` is neither a positive integer nor "ray". An exception of a run is raised here.
        UnsupportedError: "ray", and Ray is not installed; several processes, and loky is not installed.

    >>> list(in_parallel(pow, 3, 4, workers=2))  # pow(3, 0) to pow(3, 3)
    [1, 3, 9, 27]
    """
    workers = check_workers(workers)
    if workers is None:
        workers = imported("loky", "several processes", "logs").cpu_count() if find_spec("loky") else 1
    if workers != "ray":
        workers = min(workers, runs)
        if workers <= 1:
            yield from (run(given, at) for at in range(runs))
            return
    pool: Any = RayPool(run, given) if workers == "ray" else _Processes(run, given, workers)
    ended = False
    try:
        results = [pool.submit(at) for at in range(runs)]
        for result in results if ordered else pool.as_completed(results):
            yield result.result()
        ended = True
    finally:
        pool.shutdown(kill=not ended)


class _Processes:
    """Processes on this machine, each of which receives `run` and `given` once."""

    def __init__(self, run: Callable[[Any, int], Any], given: Any, workers: int) -> None:
        import loky

        # Not loky's reusable executor, which cannot serve two callers at the same time.
        self._executor = loky.ProcessPoolExecutor(workers, initializer=_receive, initargs=(run, given))
        # If the interpreter ends while the generator is suspended, as after a Ctrl-C in its caller, it must not wait
        # for the runs. Loky has no argument for that.
        self._executor._flags.kill_workers = True
        self._ended: SimpleQueue[_Run] = SimpleQueue()

    def submit(self, at: int) -> "_Run":
        return _Run(self._executor.submit(_run, at), self._ended)

    def as_completed(self, runs: Sequence["_Run"]) -> Iterator["_Run"]:
        """The runs as they end."""
        for _ in runs:
            yield self._ended.get()

    def shutdown(self, kill: bool) -> None:
        self._executor.shutdown(kill_workers=kill)


class _Run:
    """A run whose result is awaited in a queue, not in `Future.result()`. A Ctrl-C there can leave the future's lock
    taken, and loky's thread, which needs the lock to end the other runs, would wait for ever."""

    def __init__(self, future: "concurrent.futures.Future[Any]", ended: "SimpleQueue[_Run]") -> None:
        self._outcome: SimpleQueue[tuple[BaseException | None, Any]] = SimpleQueue()
        self._all = ended
        future.add_done_callback(self._end)

    def _end(self, future: "concurrent.futures.Future[Any]") -> None:
        error = future.exception()
        self._outcome.put((error, None if error else future.result()))
        self._all.put(self)

    def result(self) -> Any:
        error, value = self._outcome.get()
        if error is not None:
            raise error
        return value


_received: list[Any] = []  # in a worker process: `run` and `given`


def _receive(run: Callable[[Any, int], Any], given: Any) -> None:
    # A terminal sends Ctrl-C to the workers too. They ignore it, because the caller terminates them: a worker that
    # ended by itself could be reported as an error before.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _received[:] = [run, given]


def _run(at: int) -> Any:
    run, given = _received
    return run(given, at)
