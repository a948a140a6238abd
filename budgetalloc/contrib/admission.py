"""The order in which an asynchronous trainer trains on rollouts: that of the plans, not that of
arrival."""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from budgetalloc.errors import InputError

_T = TypeVar("_T")
_P = TypeVar("_P", bound="Plan")  # type: ignore[type-arg]


@dataclass(eq=False)
class Plan(Generic[_T]):
    """One decision's rollouts, whose results arrive in any order.

    Args:
        rollouts: Rollouts that are trained on.
        lost: Rollouts that were asked for and never came.

    >>> plan = Plan(rollouts=2)
    >>> plan.ask(2)
    range(0, 2)
    >>> plan.take(1, "second")
    >>> plan.take(0, None)  # lost
    >>> plan.complete, plan.came(), plan.lost
    (True, ['second'], 1)
    """

    rollouts: int
    lost: int = 0
    _results: list[_T | None] = field(default_factory=list)
    _waiting: set[int] = field(default_factory=set)
    _read: int = 0  # results of earlier rounds

    @property
    def complete(self) -> bool:
        """Whether each rollout that was asked for has come or is lost."""
        return not self._waiting

    def ask(self, rollouts: int) -> range:
        """Adds rollouts, such as those of a round; returns their numbers in the plan."""
        self._read = len(self._results)
        numbers = range(self._read, self._read + rollouts)
        self._results += [None] * rollouts
        self._waiting.update(numbers)
        return numbers

    def take(self, number: int, result: _T | None) -> None:
        """Records a result, or None for a rollout that is lost; raises `InputError` if it has one
        already."""
        if number not in self._waiting:
            raise InputError(
                f"take({number}): the plan waits for no such rollout. Record each rollout once."
            )
        self._waiting.remove(number)
        self._results[number] = result
        self.lost += result is None

    def came(self) -> list[_T]:
        """The results of the rollouts that were asked for last, without the lost ones, by their
        number in the plan."""
        return [result for result in self._results[self._read :] if result is not None]


class Admission(Generic[_P]):
    """Plans that are generated at the same time, and admitted to training in the order in which
    they began.

    Rollouts of several plans run at once, so that none waits for the slowest rollout of an earlier
    plan. A plan is admitted when it is complete and all earlier plans were admitted. What is
    trained is therefore what was planned, whichever rollouts finish first. A rollout that never
    ends must be given up by the caller: it holds back all later plans.

    >>> admission = Admission()
    >>> hard, easy = Plan(rollouts=4), Plan(rollouts=4)
    >>> for plan in (hard, easy):
    ...     admission.begin(plan)
    ...     _ = plan.ask(1)
    >>> easy.take(0, "early")
    >>> admission.next(), admission.may_begin(queued=0, ahead=4)
    (None, False)
    >>> hard.take(0, "late")
    >>> admission.next() is hard, admission.rollouts
    (True, 8)
    >>> admission.admit()
    >>> admission.next() is easy, admission.may_begin(queued=0, ahead=4)
    (True, True)
    """

    def __init__(self) -> None:
        self._plans: deque[_P] = deque()

    def __len__(self) -> int:
        """Number of plans that began and were not admitted."""
        return len(self._plans)

    @property
    def rollouts(self) -> int:
        """Rollouts of the plans that were not admitted."""
        return sum(plan.rollouts for plan in self._plans)

    def may_begin(self, queued: int, ahead: int) -> bool:
        """Whether a plan may begin: at most `ahead` rollouts (see `most_ahead`) are planned and not
        trained yet, `queued` ones that wait for the trainer among them."""
        return self.rollouts + queued <= ahead

    def begin(self, plan: _P) -> None:
        """Begins a plan."""
        self._plans.append(plan)

    def next(self) -> _P | None:
        """The oldest plan if it is complete, else None."""
        return self._plans[0] if self._plans and self._plans[0].complete else None

    def admit(self) -> None:
        """Removes the oldest plan, whose rollouts are given to the trainer."""
        self._plans.popleft()


def most_ahead(max_staleness: int, batch: int, rollouts: int) -> int:
    """The largest `ahead` with which the trainer takes no rollout that is older than
    `max_staleness` optimizer steps.

    When a plan of `rollouts` begins, the trainer has at most `ahead` rollouts before it, and up to
    `batch - 1` in the batch that it is collecting. The plan's last rollout is then taken at most
    floor((batch - 1 + ahead + rollouts - 1) / batch) steps later. If the bound cannot be kept,
    because a plan is larger than `max_staleness` batches, plans begin one at a time with an empty
    queue.

    Args:
        max_staleness: Optimizer steps, at least 0.
        batch: Rollouts of an optimizer step, positive.
        rollouts: Rollouts of a plan, positive.

    >>> most_ahead(4, batch=64, rollouts=64), most_ahead(1, 64, 64), most_ahead(1, 64, 256)
    (193, 1, 0)
    """
    return max(0, max_staleness * batch - rollouts + 1)
