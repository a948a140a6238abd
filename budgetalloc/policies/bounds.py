"""The candidate prompts of a decision and the bounds of group sizes, with defaults from the
policy's needs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from budgetalloc.beliefs.ids import Id, check_ids
from budgetalloc.beliefs.pool import Pool
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import InputError, check_integer, check_seed, shown
from budgetalloc.policies.interface import Needs

__all__ = ["Bounds", "budget_of_groups", "drawn_others"]


@dataclass(frozen=True)
class Bounds:
    """Candidates and bounds of group sizes, as arguments of trainers, simulations and configs.

    Args:
        candidates: Prompts to choose among: 1, the batch's own; k, k times as many; "all", the
            whole dataset.
        floor: Fewest rollouts of each candidate prompt.
        cap: Most rollouts of a prompt; None is 8 times the trainer's group size, or more if there
            are too few prompts.
        min_group: Smallest non-empty group.
        quantum: Counts are multiples of it.

    >>> Bounds.resolve(Needs(candidates="all", min_group=1)).budget(256, prompts=2080, group=8)
    Budget(rollouts=256, tokens=None, floor=0, cap=64, quantum=1, min_group=1, quotas=None)
    """

    candidates: int | Literal["all"]
    floor: int
    cap: int | None
    min_group: int
    quantum: int

    @classmethod
    def resolve(
        cls,
        needs: Needs,
        *,
        candidates: Any = None,
        floor: int | None = None,
        cap: int | None = None,
        min_group: int | None = None,
        quantum: int = 1,
    ) -> "Bounds":
        """The bounds, with the policy's needs as defaults. The default floor is 2 with one
        candidate, else 0.

        Raises:
            InputError: `candidates` is neither a positive integer nor "all", or a bound is no
                integer of at least 1 (0 for the floor).
        """
        candidates = needs.candidates if candidates is None else candidates
        if not isinstance(candidates, str) or candidates != "all":
            try:
                candidates = check_integer("candidates", candidates, 1)
            except InputError as error:
                raise InputError(
                    f"candidates={shown(candidates)}: use 1, a larger integer or 'all'.",
                    argument="candidates",
                ) from error
        check_integer("quantum", quantum, 1)
        for name, value, low in (("floor", floor, 0), ("cap", cap, 1), ("min_group", min_group, 1)):
            if value is not None:
                check_integer(name, value, low)
        return cls(
            candidates=candidates,
            floor=(2 if candidates == 1 else 0) if floor is None else floor,
            cap=cap,
            min_group=needs.min_group if min_group is None else min_group,
            quantum=quantum,
        )

    def budget(self, rollouts: int, prompts: int, group: int) -> Budget:
        """The budget of one step of so many rollouts, spent exactly, on so many candidates.

        `group` is the trainer's group size (`num_generations`). Raises `BudgetError` if the bounds
        contradict `rollouts` or each other.
        """
        rollouts = check_integer("rollouts", rollouts, 1)
        prompts = check_integer("prompts", prompts, 1)
        group = check_integer("group", group, 0)
        cap, quantum = self.cap, self.quantum
        if cap is None:
            widest = max(8 * group, -(-rollouts // prompts), self.floor, self.min_group)
            cap = -(-widest // quantum) * quantum
        return Budget(
            rollouts, floor=self.floor, cap=cap, quantum=quantum, min_group=self.min_group
        )

    def filled(self, budget: Budget) -> Budget:
        """The budget, with these bounds in place of those that it leaves open.

        >>> Bounds.resolve(Needs(candidates="all", min_group=1)).filled(Budget(rollouts=256, cap=8))
        Budget(rollouts=256, tokens=None, floor=0, cap=8, quantum=1, min_group=1, quotas=None)
        """
        floor, group = budget.floor, budget.min_group
        if group is None:
            group = min(self.min_group, floor or self.min_group)
        if floor is None:
            floor = max(self.floor, group) if self.floor else 0
        return replace(budget, floor=floor, min_group=group)

    def on_offer(self, batch: int, pool: int) -> int:
        """The number of candidates that `offer` returns for a batch and a pool of these sizes."""
        return pool if self.candidates == "all" else min(self.candidates * batch, pool)

    def offer(
        self, batch_P: Sequence[Id], pool_P: Iterable[Id], seed: int, step: int
    ) -> Sequence[Id]:
        """The candidates: the batch, followed by prompts drawn from the pool, or the whole pool.

        Args:
            batch_P: The prompts of the loader's batch, each once.
            pool_P: All prompts, each once, in the same order on every process; a `Pool` is fastest.
            seed, step: Of the policy. The draw depends on them, the batch and the pool.

        >>> pool = ["a", "b", "c", "d", "e"]
        >>> Bounds.resolve(Needs(), candidates=2).offer(["a", "b"], pool, seed=0, step=0)
        ['a', 'b', 'e', 'd']
        """
        own = check_ids(batch_P, "batch_P")
        check_seed(seed)
        check_seed(step, "step")
        if self.candidates == "all":
            return Pool.of(pool_P, "pool_P")
        more = (self.candidates - 1) * len(own)
        if not more:
            return own
        pool = Pool.of(pool_P, "pool_P")
        return own + list(pool.take(drawn_others(own, pool, seed, step)[:more]))


def drawn_others(batch_P: Sequence[Id], pool: Pool, seed: int, step: int) -> IntArray:
    """Indices in the pool of the prompts that are not in the batch, in random order.

    >>> drawn_others(["a", "b"], Pool(["a", "b", "c", "d", "e"]), seed=0, step=0)
    array([4, 3, 2])
    """
    own_K = pool.find(batch_P, "batch_P")
    others_K = np.delete(np.arange(len(pool)), own_K[own_K >= 0])
    return others_K[np.random.default_rng([seed, step, 2]).permutation(len(others_K))]


def budget_of_groups(size: int, budget: Budget) -> Budget:
    """The budget with groups of at least this size, within its bounds. With a floor, every prompt
    has a group: itself.

    >>> budget_of_groups(8, Budget(rollouts=64, floor=0, cap=6, quantum=4)).min_group
    4
    """
    if budget.fewest:
        return budget
    least = min(max(size, budget.smallest_group), budget.largest_group)
    return replace(budget, min_group=least - least % budget.quantum)
