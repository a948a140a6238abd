"""Shares of a trainer's rollouts by domain: a step's budget with quotas, and candidates that can
keep them."""

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
    UnsupportedError,
    check_type,
    is_number,
    nearest,
    shown,
)
from budgetalloc.policies.bounds import Bounds, drawn_others
from budgetalloc.policies.interface import CostOf, Decide
from budgetalloc.policies.mixture import Mixture
from budgetalloc.policies.mixture_state import MixtureState
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.step import Step
from budgetalloc.policies.uniform_groups import budget_of_groups
from budgetalloc.solvers.domains import Domains
from budgetalloc.solvers.proportional import apportioned, clipped_shares

__all__ = ["Quotas", "Shares", "check_domain_and_shares", "check_shares"]

Shares = Mapping[Hashable, tuple[float, float]]
"""The lowest and the highest share of the rollouts for each domain, in [0, 1]."""


def check_shares(quotas: Any) -> dict[Hashable, tuple[float, float]]:
    """The quotas as pairs of floats; raises `InputError` if they contradict each other.

    >>> check_shares({"math": [0.3, 0.5]})
    {'math': (0.3, 0.5)}
    """
    example = "such as {'math': (0.3, 0.5)}"
    if not isinstance(quotas, Mapping) or not quotas:
        raise InputError(
            f"quotas={shown(quotas)}: give the lowest and highest share of each domain, {example}.",
            argument="quotas",
        )
    shares = {}
    for domain, share in quotas.items():
        pair = list(share) if isinstance(share, (tuple, list)) else []  # a file has lists
        if (
            len(pair) != 2
            or not all(is_number(x) for x in pair)
            or not 0 <= pair[0] <= pair[1] <= 1
        ):
            raise InputError(
                f"quotas={{{domain!r}: {shown(share)}}}: give two shares of the rollouts, 0 <= "
                f"lowest <= highest <= 1, "
                f"{example}.",
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


def check_domain_and_shares(
    domain: Any, quotas: Any, mixture: Mixture | None = None
) -> dict[Hashable, tuple[float, float]] | None:
    """The quotas as pairs of floats, or None; raises `InputError` unless both or neither are given.

    With a mixture, a domain without quotas is enough, and the quotas are then empty.
    """
    if mixture is not None:
        if domain is None:
            raise InputError(
                f"mixture={mixture.rule!r} without domain=: name the dataset column with the "
                "domain of a prompt, such "
                "as domain='subject'.",
                argument="mixture",
            )
        quotas = {} if quotas is None else quotas
    if (domain is None) != (quotas is None):
        given = [f"domain={shown(domain)}", f"quotas={shown(quotas)}"]
        raise InputError(
            f"{' without '.join(given if quotas is None else given[::-1])}: give both, the dataset "
            "column that names "
            "the domain of a prompt, and the shares, such as domain='subject', quotas={'math': "
            "(0.3, 0.5)}.",
            argument="domain" if quotas is None else "quotas",
        )
    if domain is None:
        return None
    check_type("domain", domain, str, "the name of a dataset column")
    return {} if mixture is not None and quotas == {} else check_shares(quotas)


@dataclass(frozen=True, eq=False)
class Quotas:
    """Shares of the rollouts of every step by domain. Prompts of other domains, None included,
    share the rest.

    Args:
        shares: The lowest and highest share of each domain.
        domain_of: The domain of each prompt of the pool.
        mixture: Learns the shares within the quotas, of all domains; or None. Prompts of domains
            that the pool does not have keep their share of the candidates.

    Raises:
        InputError: a quota of a domain that no prompt has.

    >>> quotas = Quotas({"code": (0.3, 0.5)}, {"a": "math", "b": "code"})
    >>> budget, domains_P = quotas.of_step(Budget(rollouts=16, floor=0), ["a", "b"])
    >>> budget.quotas, domains_P
    ({'code': (5, 8)}, ['math', 'code'])
    """

    shares: Shares
    domain_of: Mapping[Id, Hashable]
    mixture: MixtureState | None = None

    @classmethod
    def mixed(
        cls, shares: Shares, domain_of: Mapping[Id, Hashable], mixture: Mixture | None
    ) -> "Quotas":
        """The quotas, and the state of a mixture that has learned nothing if there is one."""
        quotas = cls(shares, domain_of)
        if mixture is None:
            return quotas
        return replace(
            quotas, mixture=MixtureState(mixture, list(dict.fromkeys(domain_of.values())), shares)
        )

    def __post_init__(self) -> None:
        known = dict.fromkeys(self.domain_of.values())
        for domain in self.shares:
            if domain not in known:
                raise InputError(
                    f"quotas={{{domain!r}: ...}}: no prompt has this "
                    f"domain{nearest(domain, [str(x) for x in known])} "
                    f"The domains are {shown(list(known))}."
                )

    @cached_property
    def _pool(self) -> Pool:
        return Pool(self.domain_of)

    @cached_property
    def _domains(self) -> list[Hashable]:
        return list(self.domain_of.values())

    @cached_property
    def arms(self) -> list[Hashable]:
        return list(self.shares) if self.mixture is None else self.mixture.domains

    @cached_property
    def _place_P(self) -> IntArray:
        return self.places(self._domains)

    def of_step(self, budget: Budget, ids_P: Sequence[Id]) -> tuple[Budget, list[Hashable]]:
        """The budget with the quotas in rollouts, and the domain of each candidate.

        Raises `BudgetError` if no multiple of the quantum lies within a share.
        """
        domains_P = self._domains if ids_P is self._pool else self.domains_of(ids_P)
        quantum, rollouts, offered = budget.quantum, int(budget.rollouts or 0), set(domains_P)
        counts: dict[Hashable, tuple[int, int]] = {}
        for domain, (low, high) in self.shares.items():
            fewest = int(np.ceil(round(low * rollouts / quantum, 9))) * quantum
            most = int(np.floor(round(high * rollouts / quantum, 9))) * quantum
            if fewest > most:
                raise BudgetError(
                    f"quotas={{{domain!r}: ({low:g}, {high:g})}}: no multiple of {quantum} is such "
                    f"a share of "
                    f"{rollouts} rollouts. Use ({most / rollouts:g}, {high:g}) or ({low:g}, "
                    f"{fewest / rollouts:g})."
                )
            if domain in offered or fewest:
                counts[domain] = (fewest, most)
        if self.mixture is not None:
            counts = self._learned_counts(
                self.mixture, replace(budget, quotas=counts), ids_P, domains_P
            )
        return replace(budget, quotas=counts), domains_P

    def domains_of(self, ids_P: Sequence[Id]) -> list[Hashable]:
        """The domain of each prompt; None if it is not known."""
        return [self.domain_of.get(name) for name in ids_P]

    @property
    def limits(self) -> Shares:
        """The lowest and highest share of each domain in the next step; they are equal if they are
        learned."""
        if self.mixture is None:
            return self.shares
        return {domain: (share, share) for domain, share in self.mixture.shares().items()}

    def _learned_counts(
        self,
        mixture: MixtureState,
        budget: Budget,
        ids_P: Sequence[Id],
        domains_P: Sequence[Hashable],
    ) -> dict[Hashable, tuple[int, int]]:
        """The rollouts of each domain that are nearest to its learned share, and can be spent
        within the quotas."""
        rollouts = int(budget.rollouts or 0)
        offered = np.bincount(self.places_of(ids_P), minlength=len(self.arms) + 1).tolist()
        there = [domain for domain, prompts in zip(self.arms, offered, strict=False) if prompts]
        share, named = mixture.shares(), 1 - offered[-1] / len(ids_P)
        quotas = dict.fromkeys(there, (0, rollouts)) | dict(budget.quotas or {})
        scale = named * rollouts / max(sum(share[domain] for domain in there), 1e-12)
        wanted = [scale * share[domain] for domain in quotas] + [(1 - named) * rollouts] * (
            named < 1
        )
        spent_D = Domains.of(domains_P, replace(budget, quotas=quotas)).spendable(wanted)
        return {
            domain: (count, count) for domain, count in zip(quotas, spent_D.tolist(), strict=False)
        }

    def offer(
        self, bounds: Bounds, budget: Budget, batch_P: Sequence[Id], seed: int, step: int
    ) -> Sequence[Id]:
        """The candidates: the batch, followed by prompts drawn such that the domains can keep their
        quotas.

        As far as the batch allows, each domain's share of the candidates is its share of the pool,
        clipped to its quota. Arguments are those of `begin` and `Bounds.offer`.
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
        rollouts = int(budget.rollouts or 0)
        low_D = np.array([low for low, _ in limits.values()] + [0.0])
        high_D = np.array([high for _, high in limits.values()] + [1.0])
        share_D = clipped_shares((own_D + there_D) / len(pool), 1, low_D, high_D)
        fewest_D = np.ceil(low_D * rollouts / budget.largest_group - 1e-9).astype(np.int64)
        draw_D = apportioned(
            share_D * (more + len(batch_P)) - own_D, np.maximum(fewest_D - own_D, 0), there_D, more
        )
        rank_K = np.zeros(len(others_K), dtype=np.int64)
        for at, there in enumerate(there_D.tolist()):
            rank_K[at_K == at] = np.arange(there)
        return [*batch_P, *pool.take(others_K[rank_K < draw_D[at_K]])]

    def places(self, domains: Iterable[Hashable]) -> IntArray:
        """The index of each domain among those with a quota or a learned share; their number for
        any other."""
        place = {domain: at for at, domain in enumerate(self.arms)}
        return np.array([place.get(domain, len(place)) for domain in domains], dtype=np.int64)

    def places_of(self, ids_P: Sequence[Id]) -> IntArray:
        """`places` of the domains of these prompts."""
        return self._place_P if ids_P is self._pool else self.places(self.domains_of(ids_P))

    def begin(
        self,
        policy: Policy,
        bounds: Bounds,
        batch_P: Sequence[Id],
        rollouts: int,
        group: int,
        costs: CostOf | None = None,
        decide: Decide | None = None,
        ahead: int = 0,
    ) -> Step:
        """The policy's next step under the quotas.

        Args:
            policy, bounds: The policy and its bounds.
            batch_P: The prompts of the loader's batch, each once; unused if all prompts are
                candidates.
            rollouts: Rollouts of the step.
            group: The trainer's group size.
            costs: As in `Policy.begin`.
            decide: None, or `uniform_groups(group)` in place of the policy's rule.
            ahead: As in `Policy.begin`.
        """
        offered = bounds.on_offer(len(batch_P), len(self.domain_of))
        budget = bounds.budget(rollouts, offered, group)
        ids_P = self.offer(bounds, budget, batch_P, policy.seed, policy.estimator.step + ahead)
        if decide is None:
            budget, domains_P = self.of_step(budget, ids_P)
        else:  # counts that its groups can spend
            limited, domains_P = self.of_step(budget_of_groups(group, budget), ids_P)
            budget = replace(budget, quotas=limited.quotas)
        return policy.begin(ids_P, budget, costs, domains_P, decide=decide, ahead=ahead)

    def check(self, policy: Policy, bounds: Bounds, rollouts: int, group: int) -> None:
        """Raises unless the policy can keep the quotas with any batch.

        Raises:
            UnsupportedError: `candidates` is 1, or the policy decides in rounds or generates more
                rollouts than it trains on. BudgetError: no counts keep the quotas.
        """
        first, asked = self.arms[0], "quotas" if self.mixture is None else "mixture"
        if bounds.candidates == 1:
            raise UnsupportedError(
                f"{asked} with candidates=1: a batch may hold no prompt of {first!r}. Use "
                "candidates='all', or an "
                "integer of at least 2: the other candidates are then drawn for the shares."
            )
        if policy.needs.generate > 1:
            raise UnsupportedError(
                f"{asked}: {policy} generates more rollouts than are trained on, and its choice "
                "may break the quotas. "
                "Use a policy that trains on all rollouts, such as ba.adaptive()."
            )
        size = max(1, rollouts // max(group, 1))
        batches: list[list[Id]] = [[]]
        if bounds.candidates != "all":  # the hardest batches: those of a single domain
            inside: dict[Hashable, list[Id]] = {}
            for name, domain in self.domain_of.items():
                inside.setdefault(domain if domain in self.arms else None, []).append(name)
            batches = [ids[:size] for ids in inside.values()]
        for batch_P in batches:
            if self.begin(policy, bounds, batch_P, rollouts, group).in_rounds():
                raise UnsupportedError(
                    f"{asked}: {policy} decides in rounds, and each round may break the quotas. "
                    "Use a policy that "
                    "decides once a step, such as ba.adaptive()."
                )

    def described(self, ids_R: Sequence[Id]) -> dict[str, float]:
        """Metrics: the share of the rollouts for each domain that has a quota.

        >>> Quotas({"code": (0.3, 0.5)}, {"a": "math", "b": "code"}).described(["a", "a", "b"])
        {'share/code': 0.3333333333333333}
        """
        rollouts = Counter(map(self.domain_of.get, ids_R))
        return {f"share/{domain}": rollouts[domain] / max(len(ids_R), 1) for domain in self.arms}
