"""Runs as tasks of a Ray cluster, which runs the tasks of a lost node again."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from budgetalloc.errors import imported

__all__ = ["RETRIES", "RayPool", "ray"]

RETRIES = 5
"""How often a run is restarted if its node or process is lost. An exception of a run is raised at once."""


def ray() -> Any:
    """The library; raises `UnsupportedError` if it is not installed."""
    return imported("ray", "workers='ray'", "ray", " Or give a number of processes.")


class RayPool:
    """Each run is a task of one CPU. The pool uses the Ray of this process if it is initialised.

    Otherwise `ray.init()` uses the cluster of the environment variable RAY_ADDRESS, or one that runs on this machine,
    or starts one on this machine, which ends with the interpreter. Every node needs the packages that the runs import,
    in the same versions, for the same results. `given` is sent to each node once; its arrays are read-only in the runs.
    """

    def __init__(self, run: Callable[[Any, int], Any], given: Any) -> None:
        self._ray = ray()
        if not self._ray.is_initialized():
            self._ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
        here = self._ray.get_runtime_context().get_node_id()
        near = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        self._owner = self._ray.remote(num_cpus=0, scheduling_strategy=near)(_Owner).remote()
        self._given = self._ray.put((run, given))

    def submit(self, at: int) -> "_Task":
        return _Task(self._ray, *self._ray.get(self._owner.submit.remote([self._given], at)))

    def as_completed(self, tasks: Sequence["_Task"]) -> Iterator["_Task"]:
        """The tasks as they end."""
        left = {task.ref: task for task in tasks}
        while left:
            (ended,), _ = self._ray.wait(list(left))
            yield left.pop(ended)

    def shutdown(self, kill: bool) -> None:
        self._ray.kill(self._owner)  # with all runs that have not ended


class _Owner:
    """The process that submits the runs. Ray ends the tasks of a process that dies; it may lose a cancellation, and
    cancelling a task that is being sent to a worker can end the caller's process (Ray 2.60)."""

    def __init__(self) -> None:
        self._call = ray().remote(num_cpus=1, max_retries=RETRIES)(_run)

    def submit(self, given: list[Any], at: int) -> list[Any]:
        """The task's reference. It and `given` are in lists, because Ray would replace bare references by values."""
        return [self._call.remote(*given, at)]


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
