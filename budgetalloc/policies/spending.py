"""A budget given out in portions, such that the rest can still be spent in groups that the budget
allows."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.budget import Budget, IntArray, rollouts_alone
from budgetalloc.errors import BudgetError, UnsupportedError


class Spending:
    """Allocates a budget in portions, each such that the rest can still be spent in groups that the
    budget allows.

    >>> spending = Spending(Budget(rollouts=9, floor=0, cap=8), prompts=3)
    >>> spending.give(0, 8), spending.give(1, 8)  # 8 would leave one rollout, which is no group
    (7, 2)
    >>> spending = Spending(Budget(rollouts=16, floor=0, cap=8), prompts=3)
    >>> spending.give_each([2, 0, 1], 6)
    >>> spending.counts_P, spending.left
    (array([6, 4, 6]), 0)
    """

    def __init__(self, budget: Budget, prompts: int, counts_P: IntArray | None = None) -> None:
        if (rollouts := rollouts_alone(budget)) is None:
            raise UnsupportedError(
                f"{budget}: a policy that decides in rounds spends rollouts only. Use "
                "Budget(rollouts=...)."
            )
        self.budget = budget
        self._sizes = budget.smallest_group, budget.largest_group, budget.quantum
        self.counts_P: IntArray = (
            np.zeros(prompts, dtype=np.int64) if counts_P is None else counts_P.copy()
        )
        self.left = rollouts - int(self.counts_P.sum())
        # of open groups
        self._room = int((budget.largest_group - self.counts_P[self.counts_P > 0]).sum())

    def give(self, at: int, wanted: int) -> int:
        """Gives a prompt up to about `wanted` more rollouts, as the budget allows; returns their
        number."""
        low, high, quantum = self._sizes
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
        low, high, quantum = self._sizes
        at_K = np.asarray(at_K, dtype=np.int64)
        had_K = self.counts_P[at_K]
        new_K = had_K == 0
        wanted_K = np.broadcast_to(np.asarray(wanted_K, dtype=np.int64), at_K.shape)
        full_K = np.minimum(
            np.maximum(-(-wanted_K // quantum) * quantum, np.where(new_K, low, 0)), high - had_K
        )
        # Each allocation reduces the slack: all before the first one that is not ok can be given in
        # full.
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
        """Allocates all but `keep` of the rollouts left, a quantum to each of these prompts in
        turn, up to the cap."""
        _, high, quantum = self._sizes
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

    def spread_rest(self) -> None:
        """Allocates all rollouts left, first to the prompts with rollouts, and to those with the
        fewest first."""
        by_count = np.argsort(self.counts_P, kind="stable")
        self.spread(by_count[self.counts_P[by_count] > 0])
        self.spread(by_count)


def can_spend(budget: Budget, rollouts: int, prompts: int) -> bool:
    """Whether so many prompts can spend so many rollouts within the other bounds of the budget.

    >>> can_spend(Budget(rollouts=16, cap=4), 8, prompts=2), can_spend(Budget(16, cap=4), 9, 2)
    (True, False)
    """
    try:
        replace(budget, rollouts=rollouts).check(prompts)
    except BudgetError:
        return False
    return True


def order_matters(budget: Budget, most: int) -> bool:
    """Whether what a group gets may depend on which groups got theirs before, if groups may reach
    `most`.

    Where groups may reach the cap and further prompts may start, what is left may be too little for
    another group.
    """
    return budget.fewest == 0 and budget.largest_group - most < budget.smallest_group
