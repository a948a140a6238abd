"""Domains in a training: quotas by prompt, and what a finished step has shown to a mixture that
learns the shares."""

import logging
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.contrib.mixture import check_mixture, mixed_quotas
from budgetalloc.contrib.mixture_rules import DomainStep
from budgetalloc.errors import InputError, shown
from budgetalloc.policies import Step
from budgetalloc.policies.quotas import Quotas, check_shares
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.options import Options

__all__ = ["learn_mixture", "quotas_of_prompts"]

logger = logging.getLogger(__name__)


def quotas_of_prompts(
    domain: Mapping[Id, Hashable] | None, quotas: Any, mixture: Any
) -> Quotas | None:
    """The quotas and the mixture of a loop that passes the domain of each prompt; None without
    domains.

    Raises:
        InputError: a mixture or quotas without domains, domains without either, or a value out of
            range.

    >>> quotas_of_prompts({"a": "math", "b": "code"}, None, "learn").limits
    {'math': (0.5, 0.5), 'code': (0.5, 0.5)}
    """
    checked = check_mixture(mixture)
    if domain is None:
        for name, value in (("quotas", quotas), ("mixture", mixture)):
            if value is not None:
                raise InputError(
                    f"{name}={shown(value)} without domain=: give the domain of each prompt, such "
                    "as "
                    "domain={'q1': 'math', 'q2': 'code'}."
                )
        return None
    if not isinstance(domain, Mapping) or not domain:
        raise InputError(
            f"domain={shown(domain)}: give the domain of each prompt, such as {{'q1': 'math'}}."
        )
    if quotas is None and checked is None:
        raise InputError(
            "domain= without quotas= or mixture=: pass one of the two, such as mixture='learn'."
        )
    return mixed_quotas({} if quotas is None else check_shares(quotas), domain, checked)


def learn_mixture(
    quotas: Quotas | None, options: Options, batch: Rollouts, step: Step, quiet: bool
) -> dict[str, float]:
    """Lets the mixture of the quotas learn from a step that has ended; returns its metrics, none
    without a mixture.

    Rollouts with a hint and rollouts that were not scored are left out. Rollouts of domains that
    the mixture does not know are left out and counted, and logged once.

    Args:
        quotas: The quotas of the run, or None.
        options: Computes the advantages, for rules that learn from them.
        batch: The record of the step.
        step: The step, after `Step.end`.
        quiet: Whether to suppress the log message.
    """
    if quotas is None or (mixture := quotas.mixture) is None:
        return {}
    domains = len(mixture.domains)
    place_R = quotas.places_of(batch.ids_R)
    unknown = int((place_R == domains).sum())
    if unknown and not quiet and not mixture.warned:
        mixture.warned = True
        name = batch.ids_R[int(np.argmax(place_R == domains))]
        logger.warning(
            "mixture=%r: step %d has %d rollouts of prompts whose domain is not among %s, such as "
            "%r. They get their "
            "share of the candidates, nothing is learned from them, and "
            "budgetalloc/mixture/unknown counts them.",
            *(mixture.mixture.rule, batch.step, unknown, mixture.domains, name),
        )
    rows = np.flatnonzero((place_R < domains) & ~np.isnan(batch.learned_R))
    place_P = quotas.places_of(step.ids_P)
    known_P = np.flatnonzero(place_P < domains)
    estimator = step.policy.estimator
    after = _evidence(estimator.belief(step.ids_P), Beta(*estimator.prior_of(step.ids_P)))
    before = _evidence(batch.belief_R, batch.prior)
    size_R = np.zeros(len(batch))
    if mixture.rule.needs_advantages:
        size_R = np.abs(np.nan_to_num(options.advantages(batch).values_R))
    successes_P, rollouts_P, mass_P, prior_P = (values[known_P] for values in after)
    successes_R, rollouts_R, mass_R, prior_R = (values[rows] for values in before)
    mixture.observe(
        DomainStep(
            place_P=place_P[known_P],
            successes_P=successes_P,
            rollouts_P=rollouts_P,
            mass_P=mass_P,
            prior_P=prior_P,
            place_R=place_R[rows],
            success_R=batch.success_R[rows],
            successes_R=successes_R,
            rollouts_R=rollouts_R,
            mass_R=mass_R,
            prior_R=prior_R,
            size_R=size_R[rows],
        )
    )
    known: dict[str, float] = mixture.described()
    return known | ({"mixture/unknown": float(unknown)} if unknown else {})


def _evidence(belief: Beta, prior: Beta) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Successes and rollouts without the prior, the prior's mass and its mean."""
    successes = np.maximum(belief.alpha_P - prior.alpha_P, 0.0)
    failures = np.maximum(belief.beta_P - prior.beta_P, 0.0)
    return successes, successes + failures, prior.mass, prior.mean
