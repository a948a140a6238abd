"""The step of a policy under quotas, as the part `Domains` plans it."""

from types import SimpleNamespace

from budgetalloc.contrib.domains import Domains
from budgetalloc.contrib.mixture import MixtureState
from budgetalloc.contrib.quotas import Quotas
from budgetalloc.training.parts import Plan


def mixed_quotas(shares, domain_of, mixture):
    """Quotas whose shares a mixture learns."""
    return Quotas(shares, domain_of, MixtureState(mixture, list(dict.fromkeys(domain_of.values())), shares))


def planned(quotas, policy, bounds, rollouts, group, decide=None, check=False):
    """The plan of these quotas for the policy's next step; `check` also checks that they can be kept."""
    options = SimpleNamespace(bounds=bounds, generate=policy.needs.generate)
    part = Domains(dict(quotas.domain_of), quotas.shares, getattr(quotas.mixture, "mixture", None))
    part.quotas, part._checked = quotas, not check
    part._session = SimpleNamespace(options=options, policy=policy)
    budget = bounds.budget(rollouts, len(quotas.domain_of), group)
    return part.plan(Plan([], budget, [], rollouts, group, decide=decide))


def begun(quotas, policy, bounds, rollouts, group, decide=None):
    plan = planned(quotas, policy, bounds, rollouts, group, decide)
    return policy.begin(plan.ids_P, plan.budget, plan.costs, plan.domains_P, decide=plan.decide)
