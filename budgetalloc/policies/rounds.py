"""The machinery of decisions in rounds: handing out a budget piece by piece so that it can be spent exactly."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import UnsupportedError
from budgetalloc.policies.decision import Rounds, Tally, View


class Rollouts:
    """What a step has handed out so far: never more than the budget, and always so that the rest can be spent.

    >>> given = Rollouts(Budget(rollouts=9, floor=0, cap=8), prompts=3)
    >>> given.give(0, 8), given.give(1, 8)  # 8 would leave one rollout, which is no group
    (7, 2)
    """

    def __init__(self, budget: Budget, prompts: int) -> None:
        if budget.rollouts is None or budget.tokens is not None or budget.quotas is not None:
            raise UnsupportedError(f"{budget}: a policy that decides in rounds spends rollouts only.")
        self.budget, self.left = budget, int(budget.rollouts)
        self.counts_P: IntArray = np.zeros(prompts, dtype=np.int64)
        self._room = 0  # what the started groups can still take

    def give(self, at: int, wanted: int) -> int:
        """Gives a prompt up to `wanted` more rollouts, in the portions that the budget allows; returns how many."""
        low, high, quantum = self.budget.smallest_group, self.budget.largest_group, self.budget.quantum
        had = int(self.counts_P[at])
        least = 0 if had else low
        most = min(max(-(-wanted // quantum) * quantum, least), high - had, self.left)
        room = self._room - (high - had if had else 0)
        for given in range(most, max(least, 1) - 1, -quantum):
            left = self.left - given
            short = left - (room + high - had - given)  # what new groups would have to take
            if -(-max(short, 0) // high) * low <= left:
                self.counts_P[at] += given
                self.left, self._room = left, room + high - had - given
                return given
        return 0


def in_rounds(
    view: View,
    first: int,
    more: int,
    most: int,
    finished: Callable[[Tally], NDArray[np.bool_]],
    spend_all: bool = True,
) -> Rounds:
    """Rounds in which prompts that are not finished are continued, and new prompts start with what is left.

    No more prompts start than could be continued to `most`, so that none is left half-way. With a floor all start
    at once. What nobody wants goes, with `spend_all`, to the prompts that have fewest.

    Args:
        view: Of the decision.
        first, more, most: Rollouts to start a prompt with, to continue it with, and in all.
        finished: Which prompts need no more.
        spend_all: Whether the budget is spent to the end.
    """
    prompts = len(view.belief_P)
    given = Rollouts(view.budget, prompts)
    waiting = list(range(prompts))[::-1]
    tally = Tally(np.zeros(prompts), np.zeros(prompts))
    while given.left:
        before_P = given.counts_P.copy()
        if view.budget.floor:
            share = given.left // prompts // view.budget.quantum * view.budget.quantum
            for at in waiting[::-1]:
                given.give(at, min(first, share))
            waiting = []
        for at in np.flatnonzero((before_P > 0) & (before_P < most) & ~finished(tally)).tolist():
            given.give(at, min(more, most - int(before_P[at])))
        starts = given.left // most or int((given.counts_P == before_P).all())
        for at in [waiting.pop() for _ in range(min(starts, len(waiting)))]:
            given.give(at, first)
        if (given.counts_P == before_P).all():  # nobody to continue or to start
            if not spend_all:
                return
            while given.left:
                for at in np.argsort(given.counts_P, kind="stable").tolist():
                    given.give(at, view.budget.quantum)
        tally = yield given.counts_P - before_P
