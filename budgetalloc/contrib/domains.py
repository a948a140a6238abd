"""Domains of prompts in a run: quotas of the rollouts, and shares that are learned."""

import logging
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.pool import Pool
from budgetalloc.beliefs.posterior import Beta
from budgetalloc.contrib.mixture import MixtureState, check_mixture
from budgetalloc.contrib.mixture_rules import Evidence
from budgetalloc.contrib.quotas import Quotas, check_shares
from budgetalloc.errors import InputError, UnsupportedError, check_type, shown
from budgetalloc.policies import Step
from budgetalloc.policies.interface import budget_of_groups
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.parts import Host, Part, Plan

if TYPE_CHECKING:
    from budgetalloc.training.session import Session

__all__ = ["Domains"]

logger = logging.getLogger(__name__)


class Domains(Part):
    """Keeps the rollouts of each domain within quotas, or divides them by what they teach.

    Args:
        domain: The dataset column that names the domain of a prompt; in a loop of your own, the
            domain of each prompt by its id.
        quotas: Lowest and highest share of the rollouts of each domain, such as
            {"math": (0.3, 0.5)}; prompts of other domains, or of none, share the rest.
        mixture: How the shares within the quotas are learned: "learn", "adept" or a `Mixture`; or
            None.

    Raises:
        InputError: neither quotas nor a mixture, shares that contradict each other, or no domain.
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
                f"{name}={shown(value)} without domain=: name the dataset column with the domain "
                "of a prompt, such as domain='subject'; in a loop of your own, give the domain of "
                "each prompt, such as domain={'q1': 'math', 'q2': 'code'}.",
                argument=name,
            )
        if quotas is None and self.mixture is None:
            raise InputError(
                f"domain={shown(domain)} without quotas= or mixture=: pass the shares, such as "
                "quotas={'math': (0.3, 0.5)}, or mixture='learn'.",
                argument="domain",
            )
        self.domain = domain
        none = quotas is None or (isinstance(quotas, Mapping) and not quotas)
        self.shares = {} if none and self.mixture is not None else check_shares(quotas)
        self.quotas: Quotas
        self._session: Session
        self._checked = self._said = False

    def attach(self, session: "Session", host: Host) -> None:
        if host.prompts is not None:
            check_type("domain", self.domain, str, "the name of a dataset column")
            domain_of: Mapping[Id, Hashable] = host.prompts.domains(str(self.domain))
        elif isinstance(self.domain, Mapping) and self.domain:
            domain_of = self.domain
        else:
            raise InputError(
                f"domain={shown(self.domain)}: give the domain of each prompt, such as "
                "{'q1': 'math'}.",
                argument="domain",
            )
        mixture, named = None, list(dict.fromkeys(domain_of.values()))
        if self.mixture is not None:
            mixture = MixtureState(self.mixture, named, self.shares)
        self._session, self.quotas = session, Quotas(self.shares, domain_of, mixture)
        if not len(session.pool):
            session.pool = Pool(domain_of)
        for rollouts in host.sizes:
            self._check(rollouts * session.options.generate, host.group)

    def plan(self, plan: Plan) -> Plan:
        if plan.fixed:
            return plan
        rollouts = int(plan.budget.rollouts or 0)
        if not self._checked:  # in a loop of your own, whose sizes are known only now
            self._check(rollouts, plan.group)
        bounds, policy = self._session.options.bounds, self._session.policy
        offered = bounds.on_offer(len(plan.batch_P), len(self.quotas.domain_of))
        budget = bounds.budget(rollouts, offered, plan.group)
        number = self._session.number
        ids_P = self.quotas.offer(bounds, budget, plan.batch_P, policy.seed, number)
        # counts that the groups can spend
        asked = budget if plan.decide is None else budget_of_groups(plan.group, budget)
        limited, domains_P = self.quotas.of_step(asked, ids_P)
        budget = replace(budget, quotas=limited.quotas)
        return replace(plan, ids_P=ids_P, budget=budget, domains_P=domains_P)

    def _check(self, rollouts: int, group: int) -> None:
        """Raises unless the policy can keep the quotas with any batch."""
        session, policy = self._session, self._session.policy
        asked = "quotas" if self.mixture is None else "mixture"
        place = self.quotas.place
        if session.options.bounds.candidates == 1:
            raise UnsupportedError(
                f"{asked} with candidates=1: a batch may hold no prompt of {next(iter(place))!r}. "
                "Use candidates='all', or an integer of at least 2: the other candidates are then "
                "drawn for the shares."
            )
        if policy.needs.generate > 1:
            raise UnsupportedError(
                f"{asked}: {policy} generates more rollouts than are trained on, and its choice "
                "may break the quotas. Use a policy that trains on all rollouts, such as "
                "ba.adaptive()."
            )
        self._checked = True
        batches: list[list[Id]] = [[]]
        if session.options.bounds.candidates != "all":  # the hardest: those of a single domain
            inside: dict[Hashable, list[Id]] = {}
            for name, domain in self.quotas.domain_of.items():
                inside.setdefault(domain if domain in place else None, []).append(name)
            batches = [ids[: max(1, rollouts // max(group, 1))] for ids in inside.values()]
        for batch_P in batches:
            budget = session.options.bounds.budget(rollouts, max(len(batch_P), 1), group)
            plan = self.plan(Plan(batch_P, budget, batch_P, batch_P, rollouts, group))
            step = policy.begin(plan.ids_P, plan.budget, None, plan.domains_P)
            if step.in_rounds():
                raise UnsupportedError(
                    f"{asked}: {policy} decides in rounds, and each round may break the quotas. "
                    "Use a policy that decides once a step, such as ba.adaptive()."
                )

    def learn(self, rollouts: Rollouts | None, step: Step) -> dict[str, float]:
        """Lets the mixture learn from a step.

        Rollouts with a hint, without a score or of domains that the mixture does not know are left
        out; the latter are counted in `mixture/unknown`, and logged once.
        """
        if rollouts is None:
            return {}
        metrics, mixture = self.quotas.described(rollouts.ids_R), self.quotas.mixture
        if mixture is None:
            return metrics
        place_R, domains = self.quotas.places_of(rollouts.ids_R), len(mixture.domains)
        unknown = int((place_R == domains).sum())
        if unknown and not self._session.quiet and not self._said:
            self._said = True
            logger.warning(
                "mixture=%r: step %d has %d rollouts of prompts whose domain is not among %s, "
                "such as %r. They get their share of the candidates, nothing is learned from "
                "them, and budgetalloc/mixture/unknown counts them.",
                mixture.mixture.rule,
                rollouts.step,
                unknown,
                mixture.domains,
                rollouts.ids_R[int(np.argmax(place_R == domains))],
            )
        rows = np.flatnonzero((place_R < domains) & ~np.isnan(rollouts.learned_R))
        place_P = self.quotas.places_of(step.ids_P)
        estimator = step.policy.estimator
        belief_P, prior_P = estimator.belief(step.ids_P), Beta(*estimator.prior_of(step.ids_P))
        size_R = np.zeros(len(rollouts))
        if mixture.rule.needs_advantages:
            advantages_R = self._session.options.advantages(rollouts).values_R
            size_R = np.abs(np.nan_to_num(advantages_R))
        mixture.rule.observe(
            Evidence.of(place_P, belief_P, prior_P, np.flatnonzero(place_P < domains)),
            Evidence.of(place_R, rollouts.belief_R, rollouts.prior, rows),
            rollouts.success_R[rows],
            size_R[rows],
        )
        metrics |= mixture.described()
        return metrics | ({"mixture/unknown": float(unknown)} if unknown else {})

    def state_dict(self) -> dict[str, Any]:
        """What the mixture has learned, under the key "mixture"."""
        mixture = self.quotas.mixture
        return {} if mixture is None else mixture.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if (mixture := self.quotas.mixture) is not None:
            mixture.load_state_dict(state)
