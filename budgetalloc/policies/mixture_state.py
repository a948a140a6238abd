"""What a run has learned about its domains, and the shares that follow for the next step."""

import logging
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, StateError
from budgetalloc.policies.mixture import Mixture, Rule, shares_within
from budgetalloc.policies.mixture_rules import Adept, DomainStep, Learn

__all__ = ["MixtureRule", "MixtureState", "rule_of"]

logger = logging.getLogger(__name__)


class MixtureRule(Protocol):
    """Weights of the domains, learned step by step."""

    needs_advantages: bool

    def observe(self, step: DomainStep) -> None:
        """Learns from a finished step."""

    def weights_D(self) -> FloatArray:
        """The weight of each domain in the next step, at least 0, shape (D,)."""

    def described(self) -> dict[str, FloatArray]:
        """Metrics of each domain, shape (D,) each."""

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, in types that JSON can hold."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`; raises `StateError`, and changes nothing, if it does not fit."""


def rule_of(rule: Rule, domains: int) -> MixtureRule:
    """A rule of this name that has seen nothing, for so many domains."""
    return Learn(domains) if rule == "learn" else Adept(domains)


class MixtureState:
    """The shares of the domains, learned from every step.

    Args:
        mixture: The rule and the lowest share of each domain.
        domains: The domains, each once.
        quotas: The lowest and highest share of a domain; domains without an entry have (0, 1).

    Raises:
        InputError: there is only one domain.

    >>> state = MixtureState(Mixture(), ["math", "code"], {"math": (0.0, 0.3)})
    >>> {domain: round(share, 3) for domain, share in state.shares().items()}
    {'math': 0.3, 'code': 0.7}
    """

    def __init__(
        self,
        mixture: Mixture,
        domains: Sequence[Hashable],
        quotas: Mapping[Hashable, tuple[float, float]],
    ) -> None:
        if len(domains) < 2:
            raise InputError(
                f"mixture={mixture.rule!r}: all prompts have the domain {domains[0]!r}, and a "
                "mixture divides rollouts "
                "between domains. Name another column in domain=, or leave mixture= out."
            )
        self.mixture, self.domains = mixture, list(domains)
        limits = [quotas.get(domain, (0.0, 1.0)) for domain in self.domains]
        self._low_D, self._high_D = np.array(limits).T
        self.warned = False
        """Whether a rollout of another domain was logged."""
        self.rule = rule_of(mixture.rule, len(domains))

    def shares(self) -> dict[Hashable, float]:
        """The share of the next step's rollouts for each domain; they add up to 1."""
        share_D = shares_within(
            self.rule.weights_D(), self._low_D, self._high_D, self.mixture.probe
        )
        return dict(zip(self.domains, share_D.tolist(), strict=True))

    def observe(self, step: DomainStep) -> None:
        """Learns from a finished step."""
        self.rule.observe(step)

    def described(self) -> dict[str, float]:
        """Metrics by name: what the rule knows of each domain."""
        return {
            f"mixture/{key}/{domain}": value
            for key, value_D in self.rule.described().items()
            for domain, value in zip(self.domains, value_D.tolist(), strict=True)
            if np.isfinite(value)
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything learned under the key "mixture", in types that JSON can hold."""
        names = [str(domain) for domain in self.domains]
        return {
            "mixture": {
                "rule": self.mixture.rule,
                "domains": names,
                "learned": self.rule.state_dict(),
            }
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`, if the state has it and is of the same rule and domains; else
        learning begins anew.

        Raises:
            StateError: it is damaged. Nothing has changed then.
        """
        saved, names = state.get("mixture"), [str(domain) for domain in self.domains]
        if not isinstance(saved, dict):
            return
        if (saved.get("rule"), saved.get("domains")) != (self.mixture.rule, names):
            logger.warning(
                "The checkpoint has a mixture %r of %s, and this run %r of %s: the shares are "
                "learned anew.",
                *(saved.get("rule"), saved.get("domains"), self.mixture.rule, names),
            )
            return
        if not isinstance(saved.get("learned"), dict):
            raise StateError("The state of the mixture is damaged. Resume from another checkpoint.")
        self.rule.load_state_dict(saved["learned"])
