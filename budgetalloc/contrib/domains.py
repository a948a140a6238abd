"""Domains of prompts in a run: statistics, quotas of the rollouts, and shares that are learned."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from budgetalloc.beliefs.ids import Id, Pool, factorize
from budgetalloc.beliefs.posterior import Beta
from budgetalloc.beliefs.state import loaded
from budgetalloc.contrib.mixture import MixtureState, check_mixture
from budgetalloc.contrib.mixture_rules import Evidence
from budgetalloc.contrib.quotas import Quotas, check_shares
from budgetalloc.errors import InputError, UnsupportedError, check_type, short_repr
from budgetalloc.policies import Step
from budgetalloc.policies.interface import budget_of_groups
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.parts import Host, Part, Plan

if TYPE_CHECKING:
    from budgetalloc.training.session import Session


class Domains(Part):
    """Counts the rollouts of each domain for the ledger and `metrics="all"`. With quotas it keeps
    them within bounds, and with a mixture it divides them by what they teach.

    Args:
        domain: The dataset column that names the domain of a prompt; in a loop of your own, the
            domain of each prompt by its id.
        quotas: Lowest and highest share of the rollouts of each domain, such as
            {"math": (0.3, 0.5)}; prompts of other domains, or of none, share the rest. Or None.
        mixture: How the shares within the quotas are learned: "learn", "adept" or a `Mixture`; or
            None.

    Raises:
        InputError: shares that contradict each other, or no domain.
            `attach` raises `UnsupportedError` or `BudgetError` if the quotas cannot be kept.

    >>> import budgetalloc as ba
    >>> domains = Domains({"a": "math", "b": "code"}, {"code": (0.5, 0.5)})
    >>> session = ba.Session("adaptive", ["reward"], parts=[domains])
    >>> session.begin([], rollouts=4, group=2)
    >>> session.request()
    ['a', 'a', 'b', 'b']
    """

    def __init__(
        self, domain: str | Mapping[Id, Hashable], quotas: Any = None, mixture: Any = None
    ) -> None:
        self.mixture = check_mixture(mixture)
        if domain is None:
            name, value = ("quotas", quotas) if self.mixture is None else ("mixture", mixture)
            raise InputError(
                f"{name}={short_repr(value)} without domain=: name the dataset column with the "
                "domain "
                "of a prompt, such as domain='subject'; in a loop of your own, give the domain of "
                "each prompt, such as domain={'q1': 'math', 'q2': 'code'}.",
                argument=name,
            )
        self.domain = domain
        empty = isinstance(quotas, Mapping) and not quotas
        none = quotas is None or (empty and self.mixture is not None)
        self.shares = {} if none else check_shares(quotas)
        self.decides = bool(self.shares) or self.mixture is not None
        self.quotas: Quotas
        self._session: Session
        self._checked = False

    def attach(self, session: "Session", host: Host) -> None:
        if host.prompts is not None:
            check_type("domain", self.domain, str, "the name of a dataset column")
            domain_of: Mapping[Id, Hashable] = host.prompts.domains(str(self.domain))
        elif isinstance(self.domain, Mapping) and self.domain:
            domain_of = self.domain
        else:
            raise InputError(
                "domain", "give the domain of each prompt, such as {'q1': 'math'}.", self.domain
            )
        mixture, self._named = None, list(dict.fromkeys(domain_of.values()))
        if self.mixture is not None:
            mixture = MixtureState(self.mixture, self._named, self.shares)
        self._session, self.quotas = session, Quotas(self.shares, domain_of, mixture)
        if self.decides and not len(session.pool):
            session.pool = Pool(domain_of)
        for rollouts in host.sizes if self.decides else ():
            self._check(rollouts * session.options.generate, host.group)

    def plan(self, plan: Plan) -> Plan:
        if plan.fixed or not self.decides:
            return plan
        rollouts = int(plan.budget.rollouts or 0)
        if not self._checked:  # in a loop of your own, whose sizes are known only now
            self._check(rollouts, plan.group)
        pool = self.quotas.pool
        budget = self._session.options.bounds.budget(rollouts, len(pool), plan.group)
        # counts that the groups can spend
        asked = budget if plan.decide is None else budget_of_groups(plan.group, budget)
        budget = replace(budget, quotas=self.quotas.of_step(asked).quotas)
        return replace(plan, ids_P=pool, budget=budget, domains_P=self.quotas.domains_P)

    def _check(self, rollouts: int, group: int) -> None:
        """Raises unless the policy can keep the quotas."""
        session, policy = self._session, self._session.policy
        asked = "quotas" if self.mixture is None else "mixture"
        if (candidates := session.options.bounds.candidates) != "all":
            raise UnsupportedError(
                f"{asked} with candidates={candidates}: a batch may hold no prompt of "
                f"{next(iter(self.quotas.place))!r}. Use candidates='all'."
            )
        if policy.needs.generate > 1:
            raise UnsupportedError(
                f"{asked}: {policy} generates more rollouts than are trained on, and its choice "
                "may break the quotas. Use a policy that trains on all rollouts, such as "
                "ba.adaptive()."
            )
        self._checked = True
        budget = session.options.bounds.budget(rollouts, len(self.quotas.pool), group)
        plan = self.plan(Plan([], budget, [], rollouts, group))
        if policy.begin(plan.ids_P, replace(plan.budget, quotas=None), once=True).in_rounds():
            raise UnsupportedError(
                f"{asked}: {policy} decides in rounds, and each round may break the shares. "
                "Use a policy that decides once a step, such as ba.adaptive()."
            )
        # It decides, and raises what no counts can keep.
        policy.begin(plan.ids_P, plan.budget, None, plan.domains_P).in_rounds()

    def learn(self, rollouts: Rollouts | None, step: Step) -> dict[str, float]:
        """Counts the rollouts of a step, and lets the mixture learn from those with a score, a
        domain that it knows and no hint."""
        if rollouts is None:
            return self._counted(step.number, "requested", step.missing())
        at, ids_R, scored = rollouts.step, rollouts.ids_R, ~np.isnan(rollouts.learned_R)
        of_came = {"tokens": rollouts.lengths_R, "cost": rollouts.costs_R}
        known_R = [name for name, known in zip(ids_R, scored, strict=True) if known]
        metrics = self._counted(at, "requested", [*ids_R, *step.missing()])
        metrics |= self._counted(at, "came", ids_R, **of_came)
        metrics |= self._counted(at, "scored", known_R, success=rollouts.success_R[scored])
        in_domain = Counter(map(self.quotas.domain_of.get, ids_R))
        metrics |= {f"share/{x}": in_domain[x] / len(ids_R) for x in self.quotas.place}
        if (mixture := self.quotas.mixture) is None:
            return metrics
        domains = len(mixture.domains)
        place_P, place_R = (self.quotas.places_of(ids) for ids in (step.ids_P, rollouts.ids_R))
        estimator = step.policy.estimator
        belief_P, prior_P = estimator.belief(step.ids_P), Beta(*estimator.prior_of(step.ids_P))
        size_R = np.zeros(len(rollouts))
        if mixture.rule.needs_advantages:
            advantages_R = self._session.options.advantages(rollouts).values_R
            size_R = np.abs(np.nan_to_num(advantages_R))
        rows = np.flatnonzero((place_R < domains) & ~np.isnan(rollouts.learned_R))
        mixture.rule.observe(
            Evidence.of(place_P, belief_P, prior_P, np.flatnonzero(place_P < domains)),
            Evidence.of(place_R, rollouts.belief_R, rollouts.prior, rows),
            rollouts.success_R[rows],
            size_R[rows],
        )
        metrics |= mixture.described()
        return metrics

    def trained(self, step: int, ids_R: Sequence[Id], **late_R: Sequence[int]) -> dict[str, float]:
        return self._counted(step, "trained", ids_R, **late_R)

    def _counted(
        self, step: int, count: str, ids_R: Sequence[Id], **columns: Any
    ) -> dict[str, float]:
        """Appends to the ledger how many of these rollouts each domain has, and the sum of each
        column over them; returns the counts and the means as metrics."""
        every, written = self._session.options.metrics == "all", self._session.written
        if not len(ids_R) or not (every or written):
            return {}
        names_D, domain_R = factorize([str(self.quotas.domain_of.get(name)) for name in ids_R])
        known = {key: np.asarray(x) for key, x in columns.items() if x is not None}
        metrics = {f"domain/{count}/{name}": 0.0 for name in self._named}
        for at, name in enumerate(names_D):
            rows = np.flatnonzero(domain_R == at)
            sums = {key: float(x[rows].sum()) for key, x in known.items()}
            for write in written:
                write.ledger.append_domain(step, str(name), {count: len(rows)} | sums)
            metrics[f"domain/{count}/{name}"] = float(len(rows))
            metrics |= {f"domain/{key}/{name}": x / len(rows) for key, x in sums.items()}
        return metrics if every else {}

    def state_dict(self) -> dict[str, Any]:
        """What the mixture has learned, under the key "mixture"."""
        mixture = self.quotas.mixture
        return {} if mixture is None else mixture.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if (mixture := self.quotas.mixture) is not None:
            self.quotas = replace(self.quotas, mixture=loaded(mixture, state))
