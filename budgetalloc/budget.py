"""The budget of a training step, and the group sizes allowed."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from budgetalloc.errors import (
    MOST,
    BudgetError,
    InputError,
    check_integer,
    check_type,
    is_number,
    shown,
)

__all__ = ["DEFAULT", "Budget", "IntArray", "check_budget", "rollouts_alone"]

IntArray = NDArray[np.int64]
DEFAULT = 2
"""The default floor and smallest group, without a policy."""
_MOST_COUNTS = 2**27  # in a grid: 1 GiB


@dataclass(frozen=True)
class Budget:
    """The rollouts (or tokens) of one training step, and the allowed group sizes.

    If `floor` or `min_group` is None, the policy sets it. A solver without a policy uses 2 for
    both.

    Args:
        rollouts: Total rollouts of the step, spent exactly. `None` if only tokens are limited.
        tokens: Total expected tokens of the step, never exceeded. `allocate` then needs `costs_P`.
            If `rollouts` is also given, both limits hold and the solver is `highs`.
        floor: Fewest rollouts of every prompt. With 0, a policy may leave prompts out. None means 0
            for a policy that chooses among prompts, such as `adaptive`, else 2.
        cap: Most rollouts of one prompt. `None` means no limit.
        quantum: Counts are multiples of it.
        min_group: With `floor=0`, a group has 0 or at least this many rollouts. Use 2 if the
            baseline is the mean of the group, else 1. None means what the policy needs
            (`Needs.min_group`).
        quotas: Fewest and most rollouts of a domain, such as `{"math": (256, 512)}`. `allocate`
            then needs `domains_P`. A domain without a quota is not limited.

    Raises:
        BudgetError: a value is out of range, or two values contradict each other.

    >>> Budget(rollouts=1024, floor=2, cap=6).grid()
    array([2, 3, 4, 5, 6])
    >>> Budget(rollouts=64, floor=0, cap=8, quantum=2).grid()
    array([0, 2, 4, 6, 8])
    """

    rollouts: int | None
    tokens: float | None = None
    floor: int | None = None
    cap: int | None = None
    quantum: int = 1
    min_group: int | None = None
    quotas: Mapping[Hashable, tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        for name, lowest in (
            ("rollouts", 1),
            ("floor", 0),
            ("cap", 1),
            ("quantum", 1),
            ("min_group", 1),
        ):
            value = getattr(self, name)
            if value is None and name != "quantum":
                continue
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, np.integer))
                or value < lowest
            ):
                raise BudgetError(
                    f"Budget({name}={shown(value)}): {name} must be an integer of at least "
                    f"{lowest}."
                )
            if value > MOST:
                raise BudgetError(
                    f"Budget({name}={shown(value)}): {name} must be an integer of at most {MOST}."
                )
            object.__setattr__(self, name, int(value))  # a NumPy integer could overflow in products
        if self.rollouts is None and self.tokens is None:
            raise BudgetError(
                "Budget(rollouts=None): nothing limits the step. Give rollouts=, tokens= or both."
            )
        if self.tokens is not None and not (is_number(self.tokens) and self.tokens > 0):
            raise BudgetError(
                f"Budget(tokens={shown(self.tokens)}): tokens must be positive and finite."
            )
        if self.rollouts is None and self.cap is None:
            raise BudgetError(
                "Budget(rollouts=None, cap=None): a budget in tokens needs cap=, such as cap=64."
            )
        if self.rollouts is not None and self.rollouts % self.quantum:
            below = self.rollouts // self.quantum * self.quantum
            fits = _divisor(self.rollouts, self.quantum)
            near = (
                f"rollouts={below} or {below + self.quantum}"
                if below
                else f"rollouts={self.quantum}"
            )
            raise BudgetError(
                f"Budget(rollouts={self.rollouts}, quantum={self.quantum}): {self.rollouts} is not "
                "a multiple of "
                f"{self.quantum}. Use {near}, or quantum={fits}."
            )
        least = self._least
        if 0 < self.fewest < least:
            raise BudgetError(
                f"Budget(floor={self.floor}, min_group={least}): every prompt would get "
                f"{self.floor}, but a "
                f"group has at least {least}. Use floor=0, floor={least} or min_group={self.floor}."
            )
        if self.cap is not None and self.cap // self.quantum * self.quantum < self.smallest_group:
            raise BudgetError(
                f"Budget(cap={self.cap}, floor={self.fewest}, min_group={least}, "
                f"quantum={self.quantum}): the "
                f"smallest group has {self.smallest_group} rollouts. Use cap={self.smallest_group} "
                "or more."
            )
        if self.quotas is not None and not isinstance(self.quotas, Mapping):
            raise BudgetError(
                f"Budget(quotas={shown(self.quotas)}): give a mapping such as "
                f"{{'math': (256, 512)}}."
            )
        for domain, quota in (self.quotas or {}).items():
            if not _is_quota(quota):
                raise BudgetError(
                    f"Budget(quotas={{{domain!r}: {shown(quota)}}}): give 0 <= fewest <= most, two "
                    f"integers of at most "
                    f"{MOST}, such as {{{domain!r}: (256, 512)}}."
                )

    @property
    def fewest(self) -> int:
        """Fewest rollouts of every prompt: the floor. Without a floor, the larger of 2 and
        `min_group`."""
        return max(DEFAULT, self.min_group or 0) if self.floor is None else self.floor

    @property
    def _least(self) -> int:
        """`min_group` or its default."""
        return DEFAULT if self.min_group is None else self.min_group

    @property
    def smallest_group(self) -> int:
        """Rollouts of the smallest group that is not empty."""
        return -(-max(self.fewest, self._least, 1) // self.quantum) * self.quantum

    @property
    def largest_group(self) -> int:
        """Rollouts of the largest group."""
        limits = [
            x // self.quantum * self.quantum for x in (self.cap, self.rollouts) if x is not None
        ]
        return int(min(limits))

    @property
    def counts(self) -> int:
        """The number of counts in `grid`."""
        return max((self.largest_group - self.smallest_group) // self.quantum + 1, 0) + (
            self.fewest == 0
        )

    def grid(self, limit: int | None = None) -> IntArray:
        """The counts that a prompt may have, ascending, up to `limit`, shape (N,). If `floor` is 0,
        the first is 0."""
        top = (
            self.largest_group
            if limit is None
            else min(check_integer("limit", limit, 0), self.largest_group)
        )
        if (top - self.smallest_group) // self.quantum > _MOST_COUNTS:
            raise BudgetError(
                f"{self}: it allows counts up to {top}, too many to list. Use a smaller cap or "
                "limit."
            )
        counts_N = np.arange(self.smallest_group, top + 1, self.quantum, dtype=np.int64)
        return np.concatenate([[0], counts_N]) if self.fewest == 0 else counts_N

    def check(self, num_prompts: int) -> None:
        """Raises `BudgetError` with a feasible value if `num_prompts` prompts cannot spend the
        rollouts exactly."""
        num_prompts = check_integer("num_prompts", num_prompts, 1)
        if self.rollouts is None:
            return
        low, total = self.smallest_group, int(self.rollouts)
        high = total if self.cap is None else self.cap // self.quantum * self.quantum
        if self.fewest and num_prompts * low > total:
            most = total // num_prompts // self.quantum * self.quantum
            least = self._least
            lower = f"floor={most} (with min_group={most})" if 0 < most < least else f"floor={most}"
            smallest = -(-least // self.quantum) * self.quantum
            ways = [lower] if most else []
            ways += ["floor=0"] if _adds_up(total, smallest, high) else []
            ways += [f"rollouts={num_prompts * low}"]
            raise BudgetError(
                f"{self}: {num_prompts} prompts at floor={self.fewest} need {num_prompts * low} "
                "rollouts. "
                f"Use {' or '.join(ways)}."
            )
        if num_prompts * high < total:
            enough = -(-total // num_prompts // self.quantum) * self.quantum
            raise BudgetError(
                f"{self}: {num_prompts} prompts at cap={self.cap} can take only "
                f"{num_prompts * high} rollouts. "
                f"Use cap={enough} or rollouts={num_prompts * high}."
            )
        if not self.fewest and not _adds_up(total, low, high):
            groups = total // low
            raise BudgetError(
                f"{self}: no set of groups of {low} to {high} rollouts adds up to {total}. "
                f"Use rollouts={f'{groups * high} or ' if groups else ''}{(groups + 1) * low}, or "
                "another cap."
            )


def check_budget(budget: Any) -> None:
    """Raises `InputError` unless this is a `Budget`."""
    check_type("budget", budget, Budget, "a budget such as ba.Budget(rollouts=256)")


def rollouts_alone(budget: Budget) -> int | None:
    """The rollouts to spend if nothing else is limited; None if the budget limits tokens or has
    quotas."""
    return budget.rollouts if budget.tokens is None and budget.quotas is None else None


def _is_quota(quota: Any) -> bool:
    """Whether this is (fewest, most), two integers in ascending order."""
    if not isinstance(quota, (tuple, list)) or len(quota) != 2:
        return False
    try:
        fewest, most = (check_integer("quotas", x, 0) for x in quota)
    except InputError:
        return False
    return fewest <= most


def _divisor(total: int, most: int) -> int:
    """The largest divisor of `total` that is at most `most`."""
    small = np.arange(1, math.isqrt(total) + 1)
    small = small[total % small == 0]
    divisors = np.concatenate([small, total // small])
    return int(divisors[divisors <= most].max())


def _adds_up(total: int, low: int, high: int) -> bool:
    """Whether groups of `low` to `high` rollouts can add up to `total`."""
    return -(-total // high) * low <= total
