"""Quotas: the rollouts that each domain may have, and the totals by domain that can be spent
exactly."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import Budget, IntArray, groups_fit
from budgetalloc.errors import BudgetError, InputError
from budgetalloc.solvers.proportional import clipped_shares, drawn


@dataclass(frozen=True, eq=False)
class Domains:
    """The prompts of each domain with a quota. All prompts without a quota form the last domain.

    Args:
        rows_D: The indices of each domain's prompts, in the order of the quotas.
        low_D, high_D: Fewest and most rollouts of each domain, by its quota and its prompts, in
            multiples of the quantum, shape (D,).
        cap: Most rollouts of a prompt.

    >>> budget = Budget(rollouts=14, floor=0, cap=8, quotas={"code": (0, 6)})
    >>> domains = Domains.of(["math", "code", "code"], budget)
    >>> domains.rows_D, domains.low_D, domains.high_D
    ([array([1, 2]), array([0])], array([0, 0]), array([6, 8]))
    """

    rows_D: list[IntArray]
    low_D: IntArray
    high_D: IntArray
    budget: Budget
    cap: int
    domains_P: Sequence[Hashable]

    @classmethod
    def of(
        cls, domains_P: Sequence[Hashable] | None, budget: Budget, cap: int | None = None
    ) -> "Domains":
        """The domains of these prompts. `cap` may lower the budget's own.

        Raises:
            InputError: no domains, or a quota of a domain without prompts. BudgetError: the quotas
                cannot hold.
        """
        domains = checked(domains_P, budget)
        quotas, quantum, rollouts = budget.quotas or {}, budget.quantum, int(budget.rollouts or 0)
        cap = budget.largest_group if cap is None else cap
        place = {domain: at for at, domain in enumerate(quotas)}
        place_P = np.fromiter((place.get(x, len(place)) for x in domains), np.int64, len(domains))
        size_D = np.bincount(place_P, minlength=len(place))
        rows_D = np.split(np.argsort(place_P, kind="stable"), np.cumsum(size_D)[:-1])
        limit_D2 = np.array([*quotas.values(), (0, rollouts)][: len(size_D)]).reshape(-1, 2)
        least_D = size_D * (budget.smallest_group if budget.fewest else 0)
        low_D = np.maximum(-(-limit_D2[:, 0] // quantum) * quantum, least_D)
        high_D = np.minimum(limit_D2[:, 1] // quantum * quantum, size_D * cap)
        made = cls(rows_D, low_D, np.minimum(high_D, rollouts), budget, cap, domains)
        each_holds = all(
            any(made.fits(at, total) for total in range(low, high + 1, quantum))
            for at, (low, high) in enumerate(zip(low_D.tolist(), made.high_D.tolist(), strict=True))
        )
        if not each_holds or not low_D.sum() <= rollouts <= made.high_D.sum():
            raise BudgetError(why_not(domains, budget, cap))
        return made

    def fits(self, at: int, total: int) -> bool:
        """Whether the prompts of a domain can spend this total in groups of the allowed sizes."""
        return _fits(len(self.rows_D[at]), total, self.budget, self.cap)

    def spendable(self, wanted_D: ArrayLike) -> IntArray:
        """The totals by domain that are nearest to `wanted_D` in squares, within the quotas, and
        can be spent exactly.

        Args:
            wanted_D: Real numbers that add up to about the budget, shape (D,).

        Raises:
            BudgetError: no totals satisfy all quotas.

        >>> budget = Budget(rollouts=16, floor=0, cap=4, min_group=3, quotas={"code": (0, 16)})
        >>> # 3 or 4 rollouts each: 5 cannot be spent
        >>> Domains.of(["math", "code"] * 4, budget).spendable([5.4, 10.6])
        array([ 6, 10])
        """
        quantum, total = self.budget.quantum, int(self.budget.rollouts or 0) // self.budget.quantum
        wanted = np.asarray(wanted_D, dtype=np.float64) / quantum
        near_D = np.rint(wanted).astype(np.int64) * quantum
        inside = ((near_D >= self.low_D) & (near_D <= self.high_D)).all()
        inside &= near_D.sum() == total * quantum
        if inside and all(self.fits(at, n) for at, n in enumerate(near_D.tolist())):
            return near_D
        width = 2 * self.budget.smallest_group // quantum
        while True:
            nearest = self._nearest(wanted, total, width)
            # Totals outside the window differ by more than its width in at least one domain.
            far = 4.0 * width if nearest is None else float(np.linalg.norm(nearest - wanted))
            if width >= total or far <= width:
                break
            width = int(np.ceil(far))
        if nearest is None:
            raise BudgetError(why_not(self.domains_P, self.budget, self.cap))
        return nearest * quantum

    def _nearest(self, wanted_D: FloatArray, total: int, width: int) -> IntArray | None:
        """The nearest integers within `width` that add up to `total`, by a dynamic program; None if
        there are none."""
        quantum = self.budget.quantum
        least = np.full(total + 1, np.inf)
        least[0] = 0.0
        choice_DT = np.zeros((len(wanted_D), total + 1), dtype=np.int64)
        for at, wanted in enumerate(wanted_D.tolist()):
            here = np.full(total + 1, np.inf)
            lowest, highest = int(self.low_D[at]) // quantum, int(self.high_D[at]) // quantum
            middle = min(max(round(wanted), lowest), highest)
            for portions in range(max(lowest, middle - width), min(highest, middle + width) + 1):
                if not self.fits(at, portions * quantum):
                    continue
                sums = least[: total + 1 - portions] + (portions - wanted) ** 2
                better = sums < here[portions:]
                here[portions:][better] = sums[better]
                choice_DT[at, portions:][better] = portions
            least = here
        if not np.isfinite(least[total]):
            return None
        chosen_D = np.zeros(len(wanted_D), dtype=np.int64)
        for at in range(len(wanted_D) - 1, -1, -1):
            chosen_D[at] = choice_DT[at, total]
            total -= int(chosen_D[at])
        return chosen_D


def totals_of_domains(
    weights_P: FloatArray, domains: Domains, rng: np.random.Generator
) -> IntArray:
    """The rollouts of each domain: its share of the total weight, clipped to its quota and rounded
    at random.

    If groups of one are allowed, the expectation of a total is its clipped share. Otherwise, totals
    that cannot be spent in groups are replaced by the nearest that can. Each call draws one number.

    >>> budget = Budget(rollouts=16, floor=0, min_group=1, quotas={"code": (8, 12)})
    >>> domains = Domains.of(["math", "math", "code"], budget)
    >>> totals_of_domains(np.array([3.0, 2.0, 1.0]), domains, np.random.default_rng(0))
    array([8, 8])
    """
    weights_D = np.array([float(weights_P[rows].sum()) for rows in domains.rows_D])
    if not weights_D.any():
        weights_D = np.array([float(len(rows)) for rows in domains.rows_D])
    quantum, start = domains.budget.quantum, float(rng.random())
    total = int(domains.budget.rollouts or 0) // quantum
    low_D, high_D = domains.low_D // quantum, domains.high_D // quantum
    at_K, counts_K = drawn(clipped_shares(weights_D, total, low_D, high_D), start)
    counts_D = np.zeros(len(weights_D), dtype=np.int64)
    counts_D[at_K] = quantum * counts_K
    return domains.spendable(counts_D)


def checked(domains_P: Sequence[Hashable] | None, budget: Budget) -> Sequence[Hashable]:
    """The domains. Raises `InputError` if they are missing, or if a quota's domain has no
    prompt."""
    if domains_P is None:
        raise InputError("domains_P", "quotas need the domain of each prompt.", None)
    known = set(domains_P)
    for domain in budget.quotas or {}:
        if domain not in known:
            raise InputError(
                "quotas", f"name {domain!r}, which is the domain of no prompt: {known}."
            )
    return domains_P


def _fits(prompts: int, total: int, budget: Budget, cap: int) -> bool:
    if budget.fewest:
        return prompts * budget.smallest_group <= total <= prompts * cap
    return groups_fit(total, prompts, budget.smallest_group, cap)


def why_not(
    domains_P: Sequence[Hashable], budget: Budget, cap: int, max_prompts: int | None = None
) -> str:
    """The error text: names each constraint that is infeasible alone, or else all constraints."""
    total, quotas, quantum = budget.rollouts, budget.quotas or {}, budget.quantum
    least = budget.smallest_group if budget.fewest else 0
    wrong, asked, allowed = [], 0, 0
    for domain, (fewest, most) in quotas.items():
        inside = sum(x == domain for x in domains_P)
        asked, high = asked + fewest, min(most, inside * cap)
        allowed += high
        totals = range(-(-fewest // quantum) * quantum, high + 1, quantum)
        if not any(_fits(inside, n, budget, cap) for n in totals):
            wrong.append(
                f"quotas[{domain!r}]=({fewest}, {most}) cannot hold for {inside} prompts, which "
                f"take {inside * least} to {inside * cap} rollouts in groups of "
                f"{budget.smallest_group} to {cap}, in multiples of {quantum}"
            )
    free = sum(x not in quotas for x in domains_P) * cap
    if total is not None and asked > total:
        wrong.append(f"quotas ask for {asked} rollouts: use rollouts={asked}, or lower quotas")
    if total is not None and quotas and not wrong and allowed + free < total:
        use = f"use rollouts={allowed + free}, or higher quotas"
        wrong.append(f"quotas allow {allowed} rollouts, and the other prompts take {free}: {use}")
    if total is not None and max_prompts is not None and max_prompts * cap < total:
        use = f"use max_prompts={-(-total // cap)}"
        wrong.append(f"max_prompts={max_prompts} allows {max_prompts * cap} rollouts: {use}")
    if not wrong:
        given = {
            "quotas": quotas,
            "max_prompts": max_prompts is not None,
            "tokens": budget.tokens is not None,
        }
        names = ", ".join(name for name, there in given.items() if there)
        wrong.append(f"Loosen {names or 'floor, cap or quantum'}")
    return f"{budget}: no counts satisfy all constraints. {'; '.join(wrong)}."
