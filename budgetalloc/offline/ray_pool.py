"""Runs as tasks of Ray, which brings them to the nodes of a cluster and runs those of a lost node again."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from budgetalloc.errors import imported

RETRIES = 5
"""How often a run is started again whose node or process is lost. An exception of a run is raised at once."""


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
    """The process that submits the runs. Ray ends the tasks of a process that dies, whatever they are at. It may lose a
    cancellation instead, and one of a task that is being sent to a worker can end the caller's process (Ray 2.60)."""

    def __init__(self) -> None:
        self._call = ray().remote(num_cpus=1, max_retries=RETRIES)(_run)

    def submit(self, given: list[Any], at: int) -> list[Any]:
        """The task's reference, and `given` as a reference, in lists: Ray would replace bare ones by their values."""
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
