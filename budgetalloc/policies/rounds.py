"""Decisions in rounds: a budget is allocated in portions and still spent exactly."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import UnsupportedError
from budgetalloc.policies.decision import Rounds, Tally, View

__all__ = ["Spending", "until_finished"]


class Spending:
    """Allocates a budget in portions, each such that the rest can still be spent in groups that the budget allows.

    >>> spending = Spending(Budget(rollouts=9, floor=0, cap=8), prompts=3)
    >>> spending.give(0, 8), spending.give(1, 8)  # 8 would leave one rollout, which is no group
    (7, 2)
    >>> spending = Spending(Budget(rollouts=16, floor=0, cap=8), prompts=3)
    >>> spending.give_each([2, 0, 1], 6)
    >>> spending.counts_P, spending.left
    (array([6, 4, 6]), 0)
    """

    def __init__(self, budget: Budget, prompts: int, counts_P: IntArray | None = None) -> None:
        if budget.rollouts is None or budget.tokens is not None or budget.quotas is not None:
            raise UnsupportedError(
                f"{budget}: a policy that decides in rounds spends rollouts only. Use Budget(rollouts=...)."
            )
        self.budget = budget
        self.counts_P: IntArray = np.zeros(prompts, dtype=np.int64) if counts_P is None else counts_P.copy()
        self.left = int(budget.rollouts) - int(self.counts_P.sum())
        self._room = int((budget.largest_group - self.counts_P[self.counts_P > 0]).sum())  # of open groups

    def give(self, at: int, wanted: int) -> int:
        """Gives a prompt up to about `wanted` more rollouts, as the budget allows; returns their number."""
        low, high, quantum = self.budget.smallest_group, self.budget.largest_group, self.budget.quantum
        had = int(self.counts_P[at])
        least = 0 if had else low
        most = min(max(-(-wanted // quantum) * quantum, least), high - had, self.left)
        room = self._room - (high - had if had else 0)
        short = self.left - (room + high - had)  # rollouts that only new groups can take
        excess = max(most - (self.left - -(-max(short, 0) // high) * low), 0)
        given = most - -(-excess // quantum) * quantum
        if given < max(least, 1):
            return 0
        self.counts_P[at] += given
        self.left, self._room = self.left - given, room + high - had - given
        return given

    def give_each(self, at_K: ArrayLike, wanted_K: ArrayLike) -> None:
        """As `give` for each of these distinct prompts in turn."""
        low, high, quantum = self.budget.smallest_group, self.budget.largest_group, self.budget.quantum
        at_K = np.asarray(at_K, dtype=np.int64)
        had_K = self.counts_P[at_K]
        new_K = had_K == 0
        wanted_K = np.broadcast_to(np.asarray(wanted_K, dtype=np.int64), at_K.shape)
        full_K = np.minimum(np.maximum(-(-wanted_K // quantum) * quantum, np.where(new_K, low, 0)), high - had_K)
        # Each allocation reduces the slack: all before the first one that is not ok can be given in full.
        left_K = self.left - np.cumsum(full_K)
        short_K = self.left - self._room - high * np.cumsum(new_K)
        ok_K = -(-np.maximum(short_K, 0) // high) * low <= left_K
        full = len(ok_K) if ok_K.all() else int(np.argmin(ok_K))
        self.counts_P[at_K[:full]] += full_K[:full]
        if full:
            self.left, self._room = int(left_K[full - 1]), int(left_K[full - 1] - short_K[full - 1])
        for at, wanted in zip(at_K[full:].tolist(), wanted_K[full:].tolist(), strict=True):
            if not self.left:
                break
            self.give(at, wanted)

    def spread(self, at_K: IntArray, keep: int = 0) -> None:
        """Allocates all but `keep` of the rollouts left, a quantum to each of these prompts in turn, up to the cap."""
        quantum, high = self.budget.quantum, self.budget.largest_group
        before = -1
        while self.left > keep and self.left != before:
            before = self.left
            at_K = at_K[self.counts_P[at_K] < high]
            if self.counts_P[at_K].all():  # no prompt starts a group: many turns at once
                turns = -(-(self.left - keep) // quantum)
                self.give_each(at_K[:turns], quantum * max(turns // max(len(at_K), 1), 1))
                continue
            for at in at_K.tolist():
                if self.left <= keep:
                    break
                self.give(at, quantum)


def until_finished(
    view: View,
    first: int,
    more: int,
    most: int,
    finished: Callable[[Tally], NDArray[np.bool_]],
    least: int,
) -> Rounds:
    """Rounds that continue unfinished prompts, and start new prompts with the rest of the budget.

    Prompts start in the order of the view, and only as many as could all be continued to `most`. At most the last one
    then stays unfinished. With a floor all prompts start at once, and several may. If no prompt is left to continue or
    to start, the prompts with the fewest rollouts get more, until the step has `least`.

    Args:
        view: The view of the decision.
        first, more, most: Rollouts to start a prompt with, to continue it with, and in all.
        finished: Which prompts need no more, shape (P,).
        least: Fewest rollouts of the step.
    """
    prompts = len(view.belief_P)
    spending = Spending(view.budget, prompts)
    total, started, most = spending.left, 0, min(most, view.budget.largest_group)
    tally = Tally.empty(prompts)
    while spending.left:
        before_P = spending.counts_P.copy()
        if view.budget.fewest and not started:
            share = spending.left // prompts // view.budget.quantum * view.budget.quantum
            spending.give_each(np.arange(prompts), min(first, share))
            started = prompts
        open_P = (before_P > 0) & (before_P < most) & ~finished(tally)
        spending.give_each(np.flatnonzero(open_P), np.minimum(more, most - before_P[open_P]))
        owed = int(np.maximum(most - spending.counts_P[open_P], 0).sum())  # if none of these finishes
        starts = max(spending.left - owed, 0) // most or int((spending.counts_P == before_P).all())
        spending.give_each(np.arange(started, min(started + starts, prompts)), first)
        started = min(started + starts, prompts)
        if (spending.counts_P == before_P).all():  # no prompt to continue or to start
            keep = max(total - least, 0)
            spending.spread(np.argsort(spending.counts_P, kind="stable"), keep)
            if (spending.counts_P == before_P).all():
                return
        tally = yield spending.counts_P - before_P
