"""The budget of a training step, and the group sizes allowed."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from budgetalloc.errors import (
    MOST,
    BudgetError,
    check_integer,
    check_type,
    is_number,
    keywords,
    short_repr,
)

IntArray = NDArray[np.int64]
DEFAULT = 2
"""The default floor and smallest group, without a policy."""
_MOST_COUNTS = 2**27  # in a grid: 1 GiB


@keywords
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
        lowest = {"rollouts": 1, "floor": 0, "cap": 1, "quantum": 1, "min_group": 1}
        for name, low in lowest.items():
            value = getattr(self, name)
            is_usual = type(value) is int and low <= value <= MOST
            if is_usual or (value is None and name != "quantum"):
                continue
            if (number := _integer(value, low)) is None:
                what = f"{name} must be an integer from {low} to {MOST}."
                raise _refused(what, **{name: value})
            object.__setattr__(self, name, number)  # a NumPy integer could overflow
        if self.tokens is not None and not (is_number(self.tokens) and self.tokens > 0):
            raise _refused("tokens must be positive and finite.", tokens=self.tokens)
        if self.rollouts is None and self.tokens is None:
            what = "nothing limits the step. Give rollouts=, tokens= or both."
            raise _refused(what, rollouts=None)
        if self.rollouts is None and self.cap is None:
            what = "a budget in tokens needs cap=, such as cap=64."
            raise _refused(what, rollouts=None, cap=None)
        if self.rollouts is not None and self.rollouts % self.quantum:
            below, quantum = self._whole(self.rollouts), self.quantum
            near = f"{below} or {below + quantum}" if below else f"{quantum}"
            raise _refused(
                f"{self.rollouts} is not a multiple of {quantum}. Use rollouts={near}.",
                rollouts=self.rollouts,
                quantum=quantum,
            )
        least = self.min_group or DEFAULT
        if 0 < self.fewest < least:
            raise _refused(
                f"every prompt would get {self.floor}, but a group has at least {least}. Use "
                f"floor=0, floor={least} or min_group={self.floor}.",
                floor=self.floor,
                min_group=least,
            )
        if self.cap is not None and self._whole(self.cap) < self.smallest_group:
            raise _refused(
                f"the smallest group has {self.smallest_group} rollouts. Use "
                f"cap={self.smallest_group} or more.",
                cap=self.cap,
                floor=self.fewest,
                min_group=least,
                quantum=self.quantum,
            )
        if self.quotas is not None and not isinstance(self.quotas, Mapping):
            raise _refused("give a mapping such as {'math': (256, 512)}.", quotas=self.quotas)
        for domain, quota in (self.quotas or {}).items():
            pair = quota if isinstance(quota, (tuple, list)) and len(quota) == 2 else (None, None)
            fewest, most = (_integer(x, 0) for x in pair)
            if fewest is None or most is None or fewest > most:
                raise _refused(
                    f"give 0 <= fewest <= most, two integers of at most {MOST}, such as "
                    f"{{{domain!r}: (256, 512)}}.",
                    quotas={domain: quota},
                )

    def _whole(self, rollouts: int) -> int:
        """The largest multiple of the quantum that is not above this number."""
        return rollouts // self.quantum * self.quantum

    @cached_property
    def fewest(self) -> int:
        """Fewest rollouts of every prompt: the floor. Without a floor, the larger of 2 and
        `min_group`."""
        return max(DEFAULT, self.min_group or 0) if self.floor is None else self.floor

    @cached_property
    def smallest_group(self) -> int:
        """Rollouts of the smallest group that is not empty."""
        return -self._whole(-max(self.fewest, self.min_group or DEFAULT))

    @cached_property
    def largest_group(self) -> int:
        """Rollouts of the largest group."""
        return self._whole(min(self.cap or MOST, self.rollouts or MOST))

    @property
    def counts(self) -> int:
        """The number of counts in `grid`."""
        groups = (self.largest_group - self.smallest_group) // self.quantum + 1
        return max(groups, 0) + (self.fewest == 0)

    def grid(self, limit: int | None = None) -> IntArray:
        """The counts that a prompt may have, ascending, up to `limit`, shape (N,). If `floor` is 0,
        the first is 0."""
        top = self.largest_group
        if limit is not None:
            top = min(check_integer("limit", limit, 0), top)
        if (top - self.smallest_group) // self.quantum > _MOST_COUNTS:
            raise BudgetError(f"{self}: counts up to {top} are too many to list. Use a lower cap.")
        counts_N = np.arange(self.smallest_group, top + 1, self.quantum, dtype=np.int64)
        return np.concatenate([[0], counts_N]) if self.fewest == 0 else counts_N

    def check(self, num_prompts: int) -> None:
        """Raises `BudgetError` with a feasible value if `num_prompts` prompts cannot spend the
        rollouts exactly."""
        num_prompts = check_integer("num_prompts", num_prompts, 1)
        if self.rollouts is None:
            return
        low, total, least = self.smallest_group, self.rollouts, self.min_group or DEFAULT
        high = total if self.cap is None else self._whole(self.cap)
        if self.fewest and num_prompts * low > total:
            most = self._whole(total // num_prompts)
            ways = [f"floor={most}"] if most else []
            if 0 < most < least:
                ways = [f"floor={most} (with min_group={most})"]
            ways += (
                ["floor=0"] if groups_fit(total, num_prompts, -self._whole(-least), high) else []
            )
            ways += [f"rollouts={num_prompts * low}"]
            raise BudgetError(
                f"{self}: {num_prompts} prompts at floor={self.fewest} need {num_prompts * low} "
                f"rollouts. Use {' or '.join(ways)}."
            )
        if num_prompts * high < total:
            raise BudgetError(
                f"{self}: {num_prompts} prompts at cap={self.cap} can take only "
                f"{num_prompts * high} rollouts. Use cap={-self._whole(-total // num_prompts)} or "
                f"rollouts={num_prompts * high}."
            )
        if not self.fewest and not groups_fit(total, num_prompts, low, high):
            groups = total // low
            near = f"{groups * high} or {(groups + 1) * low}" if groups else f"{low}"
            most = self._whole(total // -(-total // high))
            smaller = f"min_group={most} or " if most else ""
            raise BudgetError(
                f"{self}: no set of groups of {low} to {high} rollouts adds up to {total}. Use "
                f"{smaller}rollouts={near}, or another cap."
            )


def check_budget(budget: Any) -> None:
    """Raises `InputError` unless this is a `Budget`."""
    check_type("budget", budget, Budget, "a budget such as ba.Budget(rollouts=256)")


def rollouts_alone(budget: Budget) -> int | None:
    """The rollouts to spend if nothing else is limited; None if the budget limits tokens or has
    quotas."""
    return budget.rollouts if budget.tokens is None and budget.quotas is None else None


def _refused(what: str, **settings: Any) -> BudgetError:
    """The error about these settings; the first is the argument that is refused."""
    given = ", ".join(f"{name}={short_repr(value)}" for name, value in settings.items())
    return BudgetError(f"Budget({given}): {what}", argument=next(iter(settings)))


def _integer(value: Any, low: int) -> int | None:
    """The value as an int if it is one from `low` to `MOST`."""
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return int(value) if is_integer and low <= value <= MOST else None


def groups_fit(rollouts: int, prompts: int, least: int, most: int) -> bool:
    """Whether this many rollouts can be divided into groups of `least` to `most`, at most one per
    prompt.

    >>> [rollouts for rollouts in range(13) if groups_fit(rollouts, 2, 4, 5)]
    [0, 4, 5, 8, 9, 10]
    """
    return rollouts >= 0 and -(-rollouts // most) <= min(prompts, rollouts // least)
