"""Runs as tasks of Ray, which brings them to the nodes of a cluster and runs those of a lost node again."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from budgetalloc.errors import imported

RETRIES = 5
"""How often a run is started again whose node or process is lost. An exception of a run is raised at once."""

CANCELLATIONS = 30
"""Each waits for a second. Ray loses a cancellation that reaches a run whose process is just starting, and in Ray 2.60
one that reaches a run which a worker is just getting may end the caller's process (its own check fails)."""


def ray() -> Any:
    """The library, imported when it is needed; raises `UnsupportedError` where it is not installed."""
    return imported("ray", "workers='ray'", "ray", " Or give a number of processes.")


class RayPool:
    """Each run is a task of one CPU. The pool uses the Ray of this process if it is initialised, else `ray.init()`:
    the cluster of the environment variable RAY_ADDRESS, else one that runs on this machine, else a new one on this
    machine, which ends with the interpreter.

    Every node needs the packages that the runs import, in the same versions: only then are results the same to the bit.
    `given` is sent to each node once; its arrays are read-only in the runs.
    """

    def __init__(self, run: Callable[[Any, int], Any], given: Any) -> None:
        self._ray = ray()
        if not self._ray.is_initialized():
            self._ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
        self._given = self._ray.put((run, given))
        self._call = self._ray.remote(num_cpus=1, max_retries=RETRIES)(_run)
        self._tasks: list[_Task] = []

    def submit(self, at: int) -> "_Task":
        self._tasks.append(_Task(self._ray, self._call.remote(self._given, at)))
        return self._tasks[-1]

    def as_completed(self, tasks: Sequence["_Task"]) -> Iterator["_Task"]:
        """The tasks as they end."""
        left = {task.ref: task for task in tasks}
        while left:
            (ended,), _ = self._ray.wait(list(left))
            yield left.pop(ended)

    def shutdown(self, kill: bool) -> None:
        left = [task.ref for task in self._tasks] if kill else []
        for _ in range(CANCELLATIONS):
            if not left:
                break
            for ref in left:  # nothing changes for those that have ended
                self._ray.cancel(ref, force=True)
            _, left = self._ray.wait(left, num_returns=len(left), timeout=1)


def _run(given: tuple[Callable[[Any, int], Any], Any], at: int) -> Any:
    run, shared = given
    return run(shared, at)


class _Task:
    def __init__(self, library: Any, ref: Any) -> None:
        self._ray, self.ref = library, ref

    def result(self) -> Any:
        try:
            return self._ray.get(self.ref)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error  # the run's own exception, as with processes
