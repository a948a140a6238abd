"""Quotas: the share of every step's rollouts that each domain of prompts gets."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id, Pool
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import BudgetError, InputError, is_number, nearest_name, short_repr
from budgetalloc.solvers.domains import Domains

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
            "quotas", f"give the lowest and highest share of each domain, {_EXAMPLE}.", quotas
        )
    shares = {}
    for domain, share in quotas.items():
        pair = list(share) if isinstance(share, (tuple, list)) else []  # a file has lists
        numbers = len(pair) == 2 and all(is_number(x) for x in pair)
        if not numbers or not 0 <= pair[0] <= pair[1] <= 1:
            raise InputError(
                f"quotas={{{domain!r}: {short_repr(share)}}}:",
                f"give two shares of the rollouts, 0 <= lowest <= highest <= 1, {_EXAMPLE}.",
            )
        shares[domain] = (float(pair[0]), float(pair[1]))
    if (lowest := sum(low for low, _ in shares.values())) > 1 + 1e-9:
        raise InputError(
            "quotas",
            f"the lowest shares add up to {lowest:g}. Use shares that add up to 1.",
            quotas,
        )
    return shares


@dataclass(frozen=True, eq=False)
class Quotas:
    """Shares of the rollouts of every step by domain, among all prompts of a pool. Prompts of other
    domains, None included, share the rest.

    Args:
        shares: The lowest and highest share of each domain.
        domain_of: The domain of each prompt of the pool.
        mixture: Learns the shares within the quotas of all `domains`, which its `shares()` returns
            (`contrib.mixture.MixtureState`); or None.

    Raises:
        InputError: a quota of a domain that no prompt has.

    >>> quotas = Quotas({"code": (0.3, 0.5)}, {"a": "math", "b": "code"})
    >>> quotas.of_step(Budget(rollouts=16, floor=0)).quotas, quotas.domains_P
    ({'code': (5, 8)}, ['math', 'code'])
    """

    shares: Shares
    domain_of: Mapping[Id, Hashable]
    mixture: Any = None

    def __post_init__(self) -> None:
        known = dict.fromkeys(self.domain_of.values())
        for domain in self.shares:
            if domain not in known:
                near = nearest_name(domain, [str(x) for x in known])
                raise InputError(
                    f"quotas={{{domain!r}: ...}}:",
                    f"no prompt has this domain{near} The domains are {short_repr(list(known))}.",
                )

    @cached_property
    def pool(self) -> Pool:
        """The prompts."""
        return Pool(self.domain_of)

    @cached_property
    def domains_P(self) -> list[Hashable]:
        """The domain of each prompt of the pool."""
        return list(self.domain_of.values())

    @cached_property
    def place(self) -> dict[Hashable, int]:
        """The place of each domain with a quota or a learned share."""
        named = self.shares if self.mixture is None else self.mixture.domains
        return {domain: at for at, domain in enumerate(named)}

    def places_of(self, ids_P: Iterable[Id]) -> IntArray:
        """The place of each prompt's domain among those with a quota or a learned share; their
        number for any other domain."""
        if ids_P is self.pool:
            return self._place_P
        return self._places(map(self.domain_of.get, ids_P))

    def _places(self, domains: Iterable[Hashable]) -> IntArray:
        return np.array([self.place.get(x, len(self.place)) for x in domains], dtype=np.int64)

    @cached_property
    def _place_P(self) -> IntArray:
        return self._places(self.domains_P)

    def of_step(self, budget: Budget) -> Budget:
        """The budget with the quotas in rollouts.

        Raises `BudgetError` if no multiple of the quantum lies within a share.
        """
        quantum, rollouts = budget.quantum, int(budget.rollouts or 0)
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
            counts[domain] = (fewest, most)
        if self.mixture is None:
            return replace(budget, quotas=counts)
        # those nearest to the learned shares that can be spent within the quotas
        share = self.mixture.shares()
        within = replace(budget, quotas=dict.fromkeys(share, (0, rollouts)) | counts)
        scale = rollouts / sum(share.values())
        wanted = [scale * share[domain] for domain in within.quotas or {}]
        spent_D = Domains.of(self.domains_P, within).spendable(wanted).tolist()
        exact = {x: (count, count) for x, count in zip(within.quotas or {}, spent_D, strict=True)}
        return replace(budget, quotas=exact)
