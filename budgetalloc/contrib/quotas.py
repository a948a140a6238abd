"""Quotas: the share of every step's rollouts that each domain of prompts gets."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.pool import Pool
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import (
    BudgetError,
    InputError,
    is_number,
    nearest,
    shown,
)
from budgetalloc.policies.interface import Bounds, drawn_others
from budgetalloc.solvers.domains import Domains
from budgetalloc.solvers.proportional import apportioned, clipped_shares

__all__ = ["Quotas", "Shares", "check_shares"]

Shares = Mapping[Hashable, tuple[float, float]]
"""The lowest and the highest share of the rollouts for each domain, in [0, 1]."""
_EXAMPLE = "such as {'math': (0.3, 0.5)}"


def check_shares(quotas: Any) -> dict[Hashable, tuple[float, float]]:
    """The quotas as pairs of floats; raises `InputError` if they contradict each other.

    >>> check_shares({"math": [0.3, 0.5]})
    {'math': (0.3, 0.5)}
    """
    if not isinstance(quotas, Mapping) or not quotas:
        raise InputError(
            f"quotas={shown(quotas)}: give the lowest and highest share of each domain, "
            f"{_EXAMPLE}.",
            argument="quotas",
        )
    shares = {}
    for domain, share in quotas.items():
        pair = list(share) if isinstance(share, (tuple, list)) else []  # a file has lists
        numbers = len(pair) == 2 and all(is_number(x) for x in pair)
        if not numbers or not 0 <= pair[0] <= pair[1] <= 1:
            raise InputError(
                f"quotas={{{domain!r}: {shown(share)}}}: give two shares of the rollouts, 0 <= "
                f"lowest <= highest <= 1, {_EXAMPLE}.",
                argument="quotas",
            )
        shares[domain] = (float(pair[0]), float(pair[1]))
    if (lowest := sum(low for low, _ in shares.values())) > 1 + 1e-9:
        raise InputError(
            f"quotas={shown(quotas)}: the lowest shares add up to {lowest:g}. Use shares that add "
            "up to 1.",
            argument="quotas",
        )
    return shares


@dataclass(frozen=True, eq=False)
class Quotas:
    """Shares of the rollouts of every step by domain. Prompts of other domains, None included,
    share the rest.

    Args:
        shares: The lowest and highest share of each domain.
        domain_of: The domain of each prompt of the pool.
        mixture: Learns the shares within the quotas of all `domains`, which its `shares()` returns
            (`contrib.mixture.MixtureState`); or None. Prompts of domains that the pool does not
            have keep their share of the candidates.

    Raises:
        InputError: a quota of a domain that no prompt has.

    >>> quotas = Quotas({"code": (0.3, 0.5)}, {"a": "math", "b": "code"})
    >>> budget, domains_P = quotas.of_step(Budget(rollouts=16, floor=0), ["a", "b"])
    >>> budget.quotas, domains_P
    ({'code': (5, 8)}, ['math', 'code'])
    """

    shares: Shares
    domain_of: Mapping[Id, Hashable]
    mixture: Any = None

    def __post_init__(self) -> None:
        known = dict.fromkeys(self.domain_of.values())
        for domain in self.shares:
            if domain not in known:
                raise InputError(
                    f"quotas={{{domain!r}: ...}}: no prompt has this "
                    f"domain{nearest(domain, [str(x) for x in known])} "
                    f"The domains are {shown(list(known))}.",
                    argument="quotas",
                )

    @cached_property
    def _pool(self) -> Pool:
        return Pool(self.domain_of)

    @cached_property
    def _domains_P(self) -> list[Hashable]:
        return list(self.domain_of.values())

    @cached_property
    def _place_P(self) -> IntArray:
        return self._places(self._domains_P)

    @cached_property
    def place(self) -> dict[Hashable, int]:
        """The place of each domain with a quota or a learned share."""
        named = self.shares if self.mixture is None else self.mixture.domains
        return {domain: at for at, domain in enumerate(named)}

    def _places(self, domains: Iterable[Hashable]) -> IntArray:
        return np.array([self.place.get(x, len(self.place)) for x in domains], dtype=np.int64)

    def places_of(self, ids_P: Sequence[Id]) -> IntArray:
        """The place of each prompt's domain among those with a quota or a learned share; their
        number for any other domain."""
        return self._place_P if ids_P is self._pool else self._places(self.domains_of(ids_P))

    def domains_of(self, ids_P: Sequence[Id]) -> list[Hashable]:
        """The domain of each prompt; None if it is not known."""
        if ids_P is self._pool:
            return self._domains_P
        return [self.domain_of.get(name) for name in ids_P]

    @property
    def limits(self) -> Shares:
        """The lowest and highest share of each domain in the next step; they are equal if they are
        learned."""
        if self.mixture is None:
            return self.shares
        return {domain: (share, share) for domain, share in self.mixture.shares().items()}

    def of_step(self, budget: Budget, ids_P: Sequence[Id]) -> tuple[Budget, list[Hashable]]:
        """The budget with the quotas in rollouts, and the domain of each candidate.

        Raises `BudgetError` if no multiple of the quantum lies within a share.
        """
        domains_P = self.domains_of(ids_P)
        quantum, rollouts, offered = budget.quantum, int(budget.rollouts or 0), set(domains_P)
        counts: dict[Hashable, tuple[int, int]] = {}
        for domain, (low, high) in self.shares.items():
            fewest = int(np.ceil(round(low * rollouts / quantum, 9))) * quantum
            most = int(np.floor(round(high * rollouts / quantum, 9))) * quantum
            if fewest > most:
                raise BudgetError(
                    f"quotas={{{domain!r}: ({low:g}, {high:g})}}: no multiple of {quantum} is such "
                    f"a share of {rollouts} rollouts. Use ({most / rollouts:g}, {high:g}) or "
                    f"({low:g}, {fewest / rollouts:g})."
                )
            if domain in offered or fewest:
                counts[domain] = (fewest, most)
        if self.mixture is not None:
            counts = self._learned(replace(budget, quotas=counts), ids_P, domains_P)
        return replace(budget, quotas=counts), domains_P

    def _learned(
        self, budget: Budget, ids_P: Sequence[Id], domains_P: Sequence[Hashable]
    ) -> dict[Hashable, tuple[int, int]]:
        """The rollouts of each domain that are nearest to its learned share, and can be spent
        within the quotas."""
        share, rollouts = self.mixture.shares(), int(budget.rollouts or 0)
        *offered, others = np.bincount(self.places_of(ids_P), minlength=len(share) + 1).tolist()
        there = [domain for domain, prompts in zip(share, offered, strict=True) if prompts]
        named = 1 - others / len(ids_P)
        quotas = dict.fromkeys(there, (0, rollouts)) | dict(budget.quotas or {})
        scale = named * rollouts / max(sum(share[domain] for domain in there), 1e-12)
        wanted = [scale * share[domain] for domain in quotas]
        if named < 1:
            wanted.append((1 - named) * rollouts)
        spent_D = Domains.of(domains_P, replace(budget, quotas=quotas)).spendable(wanted)
        return {name: (count, count) for name, count in zip(quotas, spent_D.tolist(), strict=False)}

    def offer(
        self, bounds: Bounds, budget: Budget, batch_P: Sequence[Id], seed: int, step: int
    ) -> Sequence[Id]:
        """The candidates: the batch, followed by prompts drawn such that the domains can keep their
        quotas. Arguments are those of `begin` and `Bounds.offer`.

        As far as the batch allows, each domain's share of the candidates is its share of the pool,
        clipped to its quota.
        """
        pool = self._pool
        if bounds.candidates == "all":
            return pool
        limits = self.limits
        own_D = np.bincount(self.places_of(batch_P), minlength=len(limits) + 1)
        others_K = drawn_others(batch_P, pool, seed, step)
        at_K = self._place_P[others_K]
        there_D = np.bincount(at_K, minlength=len(own_D))
        more = min((bounds.candidates - 1) * len(batch_P), len(others_K))
        low_D = np.array([low for low, _ in limits.values()] + [0.0])
        high_D = np.array([high for _, high in limits.values()] + [1.0])
        share_D = clipped_shares((own_D + there_D) / len(pool), 1, low_D, high_D)
        fewest_D = low_D * int(budget.rollouts or 0) / budget.largest_group
        fewest_D = np.ceil(fewest_D - 1e-9).astype(np.int64)
        draw_D = apportioned(
            share_D * (more + len(batch_P)) - own_D, np.maximum(fewest_D - own_D, 0), there_D, more
        )
        rank_K = np.zeros(len(others_K), dtype=np.int64)
        for at, there in enumerate(there_D.tolist()):
            rank_K[at_K == at] = np.arange(there)
        return [*batch_P, *pool.take(others_K[rank_K < draw_D[at_K]])]

    def described(self, ids_R: Sequence[Id]) -> dict[str, float]:
        """Metrics: the share of the rollouts for each domain that has a quota.

        >>> Quotas({"code": (0.3, 0.5)}, {"a": "math", "b": "code"}).described(["a", "a", "b"])
        {'share/code': 0.3333333333333333}
        """
        rollouts = Counter(map(self.domain_of.get, ids_R))
        return {f"share/{name}": rollouts[name] / max(len(ids_R), 1) for name in self.place}
