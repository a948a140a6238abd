"""The step of a policy under quotas, as the part `Domains` plans it."""

from types import SimpleNamespace

from budgetalloc.contrib.domains import Domains
from budgetalloc.contrib.mixture import MixtureState
from budgetalloc.contrib.quotas import Quotas
from budgetalloc.training.parts import Plan


def mixed_quotas(shares, domain_of, mixture):
    """Quotas whose shares a mixture learns."""
    return Quotas(shares, domain_of, MixtureState(mixture, list(dict.fromkeys(domain_of.values())), shares))


def planned(quotas, policy, bounds, batch_P, rollouts, group, decide=None, check=False):
    """The plan of these quotas for the policy's next step; `check` also checks that every batch can keep them."""
    options = SimpleNamespace(bounds=bounds, generate=policy.needs.generate)
    part = Domains(dict(quotas.domain_of), quotas.shares, getattr(quotas.mixture, "mixture", None))
    part.quotas, part._checked = quotas, not check
    part._session = SimpleNamespace(options=options, policy=policy, number=policy.estimator.step, quiet=True)
    budget = bounds.budget(rollouts, max(len(batch_P), 1), group)
    return part.plan(Plan(batch_P, budget, batch_P, batch_P, rollouts, group, decide=decide))


def begun(quotas, policy, bounds, batch_P, rollouts, group, decide=None):
    plan = planned(quotas, policy, bounds, batch_P, rollouts, group, decide)
    return policy.begin(plan.ids_P, plan.budget, plan.costs, plan.domains_P, decide=plan.decide)
