"""Mixtures: which share of a step's rollouts each domain gets, learned from every step."""

import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.state import loaded
from budgetalloc.contrib.mixture_rules import Adept, Learn
from budgetalloc.contrib.quotas import Shares
from budgetalloc.errors import InputError, check_choice, check_number, nearest_name
from budgetalloc.solvers.proportional import clipped_shares

logger = logging.getLogger(__name__)
Rule = Literal["learn", "adept"]


@dataclass(frozen=True)
class Mixture:
    """How the shares of the domains follow from the run so far.

    Args:
        rule: "learn" is our own rule (`mixture_rules.Learn`). "adept" (`mixture_rules.Adept`, after
            arXiv 2501.12620) is a published bandit with the domains as arms.
        probe: Lowest share of each domain, from 0 to 0.5, within its quota. A domain that is solved
            or seems hopeless keeps it, so that a change is seen. If the domains cannot all have it,
            all get less.

    >>> Mixture()
    Mixture(rule='learn', probe=0.02)
    """

    rule: Rule = "learn"
    probe: float = 0.02

    def __post_init__(self) -> None:
        check_choice("rule", self.rule, get_args(Rule))
        check_number("probe", self.probe, 0, 0.5)


def check_mixture(mixture: Any) -> Mixture | None:
    """The mixture from a rule's name, a `Mixture`, or a mapping with its arguments; None stays
    None. Raises `InputError` for anything else.

    >>> check_mixture("adept"), check_mixture({"probe": 0.05})
    (Mixture(rule='adept', probe=0.02), Mixture(rule='learn', probe=0.05))
    """
    if mixture is None or isinstance(mixture, Mixture):
        return mixture
    named = isinstance(mixture, str) and mixture in get_args(Rule)
    given = {"rule": mixture} if named else mixture
    if not isinstance(given, Mapping) or not set(given) <= {"rule", "probe"}:
        near = nearest_name(mixture, get_args(Rule))
        what = f"use 'learn', 'adept' or a budgetalloc.contrib.mixture.Mixture{near}"
        raise InputError("mixture", what, mixture)
    return Mixture(**given)


def shares_within(
    weights_D: FloatArray, low_D: FloatArray, high_D: FloatArray, probe: float
) -> FloatArray:
    """Shares in proportion to weights, within the quotas `low_D` and `high_D`, and at least `probe`
    where these allow it. If all weights are 0, the shares are as even as the quotas allow.

    >>> shares_within(np.array([3.0, 1.0, 0.0]), np.zeros(3), np.array([0.5, 1.0, 1.0]),
    ...     0.02).round(3)
    array([0.5 , 0.48, 0.02])
    """
    extra_D = np.maximum(np.minimum(probe, high_D) - low_D, 0.0)
    room = max(1.0 - float(low_D.sum()), 0.0)
    if (total := float(extra_D.sum())) > room:
        extra_D = extra_D * (room / total)
    weights_D = weights_D if weights_D.max() > 0 else np.ones(len(weights_D))
    return clipped_shares(weights_D, 1, low_D + extra_D, high_D)


class MixtureState:
    """The shares of the domains, learned from every step; domains without a quota have (0, 1).

    Raises:
        InputError: there is only one domain.

    >>> state = MixtureState(Mixture(), ["math", "code"], {"math": (0.0, 0.3)})
    >>> {domain: round(share, 3) for domain, share in state.shares().items()}
    {'math': 0.3, 'code': 0.7}
    """

    def __init__(self, mixture: Mixture, domains: Sequence[Hashable], quotas: Shares) -> None:
        if len(domains) < 2:
            what = f"all prompts have the domain {domains[0]!r}: name another column in domain="
            raise InputError("mixture", f"{what}, or leave mixture= out.", mixture.rule)
        self.mixture = mixture
        self.domains = list(domains)
        self._low_D, self._high_D = np.array([quotas.get(x, (0.0, 1.0)) for x in domains]).T
        self.rule = Learn(len(domains)) if mixture.rule == "learn" else Adept(len(domains))

    def shares(self) -> dict[Hashable, float]:
        """The share of the next step's rollouts for each domain; they add up to 1."""
        weights_D = self.rule.weights_D()
        share_D = shares_within(weights_D, self._low_D, self._high_D, self.mixture.probe)
        return dict(zip(self.domains, share_D.tolist(), strict=True))

    def described(self) -> dict[str, float]:
        """Metrics by name: what the rule knows of each domain."""
        return {
            f"mixture/{key}/{domain}": value
            for key, value_D in self.rule.described().items()
            for domain, value in zip(self.domains, value_D.tolist(), strict=True)
            if np.isfinite(value)
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, under the key "mixture"."""
        about = {"rule": self.mixture.rule, "domains": [str(domain) for domain in self.domains]}
        return {"mixture": about | {"learned": self.rule.state_dict()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`, if the state has it for the same rule and domains; else learning
        begins anew. Raises `StateError`, and changes nothing, if it is damaged."""
        saved, own = state.get("mixture"), self.state_dict()["mixture"]
        if not isinstance(saved, dict):
            return
        if any(saved.get(name) != own[name] for name in ("rule", "domains")):
            logger.warning(
                "The checkpoint has a mixture %r of %s, and this run %r of %s: the shares are "
                "learned anew.",
                *(each.get(name) for each in (saved, own) for name in ("rule", "domains")),
            )
            return
        self.rule = loaded(self.rule, saved.get("learned"))
