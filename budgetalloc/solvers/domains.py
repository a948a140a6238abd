"""Quotas: the rollouts that each domain may have, and the totals by domain that can be spent
exactly."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import BudgetError, InputError

__all__ = ["Domains", "checked", "groups_fit", "why_not"]


@dataclass(frozen=True, eq=False)
class Domains:
    """The prompts of each domain with a quota. All prompts without a quota form the last domain.

    Args:
        rows_D: The indices of each domain's prompts, in the order of the quotas.
        low_D, high_D: Fewest and most rollouts of each domain, by its quota and its prompts,
            rounded inwards to multiples of the quantum, shape (D,).
        budget: The budget with the quotas.
        cap: Most rollouts of a prompt.
        domains_P: The domain of each prompt.

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
        quotas, quantum = budget.quotas or {}, budget.quantum
        cap = budget.largest_group if cap is None else cap
        place = {domain: at for at, domain in enumerate(quotas)}
        place_P = np.fromiter((place.get(x, len(place)) for x in domains), np.int64, len(domains))
        size_D = np.bincount(place_P, minlength=len(place))
        rows_D = np.split(np.argsort(place_P, kind="stable"), np.cumsum(size_D)[:-1])
        rollouts = int(budget.rollouts or 0)
        limits = [*quotas.values(), (0, rollouts)][: len(size_D)]
        fewest_D = np.array([-(-fewest // quantum) * quantum for fewest, _ in limits])
        most_D = np.array([most // quantum * quantum for _, most in limits])
        least_D = size_D * (budget.smallest_group if budget.fewest else 0)
        low_D = np.maximum(fewest_D, least_D)
        high_D = np.minimum(np.minimum(most_D, size_D * cap), rollouts)
        made = cls(rows_D, low_D, high_D, budget, cap, domains)
        each_holds = all(
            any(made.fits(at, total) for total in range(low, high + 1, quantum))
            for at, (low, high) in enumerate(zip(low_D.tolist(), high_D.tolist(), strict=True))
        )
        if not each_holds or not low_D.sum() <= rollouts <= high_D.sum():
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
        >>> Domains.of(["math", "code"] * 4, budget).spendable([5.4, 10.6])  # 3 or 4 rollouts each: 5 cannot be spent
        array([ 6, 10])
        """
        quantum, total = self.budget.quantum, int(self.budget.rollouts or 0) // self.budget.quantum
        wanted = np.asarray(wanted_D, dtype=np.float64) / quantum
        near_D = np.rint(wanted).astype(np.int64)
        inside = (quantum * near_D >= self.low_D).all() and (quantum * near_D <= self.high_D).all()
        if (
            inside
            and near_D.sum() == total
            and all(self.fits(at, quantum * n) for at, n in enumerate(near_D.tolist()))
        ):
            return near_D * quantum
        width = 2 * self.budget.smallest_group // quantum
        while True:
            nearest = self._nearest(wanted, total, width)
            if width >= total:
                break
            # Totals outside the window differ by more than its width in at least one domain.
            far = (
                4.0 * width if nearest is None else float(np.sqrt(((nearest - wanted) ** 2).sum()))
            )
            if far <= width:
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


def groups_fit(rollouts: int, prompts: int, least: int, most: int) -> bool:
    """Whether this many rollouts can be divided into groups of `least` to `most`, at most one per
    prompt.

    >>> [rollouts for rollouts in range(13) if groups_fit(rollouts, 2, 4, 5)]
    [0, 4, 5, 8, 9, 10]
    """
    return rollouts >= 0 and -(-rollouts // most) <= min(prompts, rollouts // least)


def checked(domains_P: Sequence[Hashable] | None, budget: Budget) -> Sequence[Hashable]:
    """The domains. Raises `InputError` if they are missing, or if a quota's domain has no
    prompt."""
    if domains_P is None:
        raise InputError("domains_P=None: quotas need the domain of each prompt.")
    known = set(domains_P)
    for domain in budget.quotas or {}:
        if domain not in known:
            raise InputError(f"quotas name {domain!r}, which is the domain of no prompt: {known}.")
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
    wrong, allowed = [], 0
    for domain, (fewest, most) in quotas.items():
        inside = sum(d == domain for d in domains_P)
        allowed += min(most, inside * cap)
        low, high = -(-fewest // quantum) * quantum, min(most, inside * cap)
        if any(_fits(inside, n, budget, cap) for n in range(low, high + 1, quantum)):
            continue
        text = f"quotas[{domain!r}]=({fewest}, {most}) cannot hold for {inside} prompts: use"
        if fewest > inside * cap:
            text += f" ({inside * least}, {inside * cap}), cap={-(-fewest // inside)}, or have at least "
            wrong.append(f"{text}{-(-fewest // cap)} prompts of {domain!r}")
        elif most < inside * least:
            wrong.append(
                f"{text} ({inside * least}, {inside * cap}), floor=0, or fewer prompts of "
                f"{domain!r}"
            )
        else:
            below = next(
                n for n in range(low - quantum, -1, -quantum) if _fits(inside, n, budget, cap)
            )
            group = f"groups of {budget.smallest_group} to {cap} in multiples of {quantum} add up to no number between"
            wrong.append(f"{text} ({below}, {most}), because {group}")
    if total is not None and (asked := sum(q[0] for q in quotas.values())) > total:
        wrong.append(
            f"quotas ask for {asked} rollouts: use rollouts={asked}, or quotas that ask for {total}"
        )
    free = sum(d not in quotas for d in domains_P) * cap
    if total is not None and quotas and not wrong and allowed + free < total:
        others = f", and the other prompts take {free}" if free else ""
        wrong.append(
            f"quotas allow {allowed} rollouts{others}: use rollouts={allowed + free}, or quotas "
            "that allow "
            f"{total - free}"
        )
    if total is not None and max_prompts is not None and max_prompts * cap < total:
        wrong.append(
            f"max_prompts={max_prompts} allows {max_prompts * cap} rollouts: use "
            f"max_prompts={-(-total // cap)}"
        )
    if not wrong:
        given = {
            "quotas": quotas,
            "max_prompts": max_prompts is not None,
            "tokens": budget.tokens is not None,
        }
        wrong.append(
            "Loosen "
            f"{', '.join([x for x, there in given.items() if there]) or 'floor, cap or quantum'}"
        )
    return f"{budget}: no counts satisfy all constraints. {'; '.join(wrong)}."
