"""Independent runs in several processes, by joblib, or on a Ray cluster."""

import os
import warnings
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from typing import Any, Literal, TypeVar

from budgetalloc.errors import InputError, import_optional

Result = TypeVar("Result")
Workers = int | Literal["ray"] | None
"""Processes on this machine, "ray" for a Ray cluster, or None for one process for each core."""


def check_workers(workers: Any) -> Workers:
    """Raises `InputError` for anything but `Workers`, and `UnsupportedError` where Ray or joblib
    would have to be installed."""
    if workers is None:
        return None
    if isinstance(workers, str) and workers == "ray":
        import_optional("ray", "workers='ray'", "ray", " Or give a number of processes.")
        return "ray"
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InputError("workers", "use an integer of at least 1, or 'ray'.", workers)
    if workers > 1:
        import_optional("joblib", f"workers={workers}", "logs", " Or give workers=1.")
    return workers


def in_parallel(
    run: Callable[[Any, int], Result],
    given: Any,
    runs: int,
    workers: Workers = None,
    *,
    ordered: bool = True,
) -> Generator[Result, None, None]:
    """Yields `run(given, k)` for k = 0 to runs - 1, in this order.

    joblib pickles `run` and `given` by cloudpickle. Both may therefore contain closures, such as
    the rule of a `Policy`, and a script needs no `if __name__ == "__main__"`. If the caller stops
    early, or a run raises, the other runs are terminated; on Ray, they go on until the caller's
    process ends.

    Args:
        run: Called in a worker process.
        given: The arguments that all runs share. A run must not change them.
        runs: Number of runs.
        workers: Processes; by default one for each core, or one alone where joblib is not
            installed. 1 runs everything in this process. "ray" runs on the Ray of this process, or
            on the cluster of the environment variable RAY_ADDRESS, or starts Ray on this machine.
            Every node needs the same versions of the packages.
        ordered: If False, results are yielded as the runs end.

    Raises:
        InputError: `workers` is neither a positive integer nor "ray". An exception of a run is
            raised here.
        UnsupportedError: Ray, or for several processes joblib, is not installed.

    >>> list(in_parallel(pow, 3, 4, workers=2))  # pow(3, 0) to pow(3, 3)
    [1, 3, 9, 27]
    """
    workers = check_workers(workers)
    if workers is None:
        joblib = (
            import_optional("joblib", "several processes", "logs") if find_spec("joblib") else None
        )
        workers = joblib.cpu_count() if joblib else 1
    if runs == 0 or workers == 1:
        yield from (run(given, at) for at in range(runs))
        return
    if workers == "ray":
        yield from _on_ray(run, given, runs, ordered)
        return
    joblib = import_optional("joblib", f"workers={workers}", "logs", " Or give workers=1.")
    todo = (joblib.delayed(_in_folder)(os.getcwd(), run, given, at) for at in range(runs))
    # All are dispatched at once: joblib can deadlock when two callers dispatch from threads.
    pool = joblib.Parallel(
        min(workers, runs),
        "loky",
        batch_size=1,
        pre_dispatch="all",
        return_as="generator" if ordered else "generator_unordered",
    )
    results = pool(todo)
    try:
        for result in results:  # noqa: UP028  (`yield from` would close the results before warnings are ignored)
            yield result
    finally:
        with warnings.catch_warnings():
            # joblib warns that it ends runs, which a caller that stops wants
            warnings.simplefilter("ignore")
            results.close()


def _in_folder(folder: str, run: Callable[[Any, int], Result], given: Any, at: int) -> Result:
    """A run in the caller's folder: joblib's processes may have been started in another."""
    os.chdir(folder)
    return run(given, at)


def _on_ray(
    run: Callable[[Any, int], Result], given: Any, runs: int, ordered: bool
) -> Iterator[Result]:
    """Each run is a task of one CPU. Ray runs the tasks of a lost node again, and sends `given` to
    each node once."""
    import ray

    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="warning")
    task, shared = ray.remote(num_cpus=1, max_retries=5)(run), ray.put(given)
    left = [task.remote(shared, at) for at in range(runs)]
    while left:
        ended = left[0] if ordered else ray.wait(left)[0][0]
        left.remove(ended)
        try:
            result = ray.get(ended)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error  # the run's own exception, as with processes
        yield result
