"""Mixtures: which share of a step's rollouts each domain gets, learned from every step."""

import logging
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.contrib.mixture_rules import Adept, DomainStep, Learn
from budgetalloc.contrib.quotas import Quotas, Shares
from budgetalloc.errors import InputError, StateError, check_choice, check_number, shown
from budgetalloc.solvers.proportional import clipped_shares

__all__ = [
    "Mixture",
    "MixtureState",
    "Rule",
    "check_mixture",
    "mixed_quotas",
    "shares_within",
    "steps_to_see_fall",
]

logger = logging.getLogger(__name__)
Rule = Literal["learn", "adept"]


@dataclass(frozen=True)
class Mixture:
    """How the shares of the domains follow from the run so far.

    Args:
        rule: "learn" is our own rule (`mixture_rules.Learn`). "adept" (`mixture_rules.Adept`, after
            arXiv 2501.12620) is a published bandit with the domains as arms.
        probe: Lowest share of each domain, from 0 to 0.5, within its quota. A domain that is solved
            or seems hopeless keeps it, so that a change is seen (`steps_to_see_fall`). If the
            domains cannot all have it, all get less.

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
    if isinstance(mixture, Mapping) and set(mixture) <= {"rule", "probe"}:
        return Mixture(**mixture)
    if not isinstance(mixture, str) or mixture not in get_args(Rule):
        raise InputError(
            f"mixture={shown(mixture)}: use one of {', '.join(map(repr, get_args(Rule)))}, or a "
            "budgetalloc.contrib.mixture.Mixture with rule= and probe=.",
            argument="mixture",
        )
    return Mixture(mixture)  # type: ignore[arg-type]


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


def steps_to_see_fall(fall: float, probes: int, *, solved: float = 1.0, miss: float = 0.05) -> int:
    """Steps after which a fall of a domain's success is seen with probability 1 - `miss`, at worst.

    It is seen once the mean success of the probes since the fall is below `solved` - `fall` / 2.
    After n probes it is above that with probability of at most exp(-n KL(solved - fall / 2 ||
    solved - fall)), the Chernoff bound (Hoeffding 1963, theorem 1).

    Args:
        fall: How far the success falls, above 0 and at most `solved`.
        probes: Rollouts of the domain in a step, at least 1: `Mixture.probe` of the step's.
        solved: Mean success before the fall, in (0, 1].
        miss: The probability of not seeing it, in (0, 1).

    >>> [steps_to_see_fall(fall, probes=5) for fall in (0.1, 0.2, 0.5)]
    [36, 17, 5]
    """
    check_number("solved", solved, 0, 1, without=(0,))
    check_number("fall", fall, 0, solved, without=(0,))
    check_number("miss", miss, 0, 1, without=(0, 1))
    check_number("probes", probes, 1, math.inf, without=(math.inf,))
    low, middle = solved - fall, solved - fall / 2
    if low <= 1e-12:  # every probe fails, and the first shows it
        return 1
    divergence = middle * math.log(middle / low)
    if middle < 1:
        divergence += (1 - middle) * math.log((1 - middle) / (1 - low))
    return math.ceil(math.log(1 / miss) / divergence / probes)


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

    def __init__(self, mixture: Mixture, domains: Sequence[Hashable], quotas: Shares) -> None:
        if len(domains) < 2:
            raise InputError(
                "mixture",
                f"all prompts have the domain {domains[0]!r}, and a "
                "mixture divides rollouts between domains. Name another column in domain=, or "
                "leave mixture= out.",
                mixture.rule,
            )
        self.mixture = mixture
        self.domains = list(domains)
        self._low_D, self._high_D = np.array([quotas.get(x, (0.0, 1.0)) for x in domains]).T
        self.warned = False
        """Whether a rollout of another domain was logged."""
        self.rule = Learn(len(domains)) if mixture.rule == "learn" else Adept(len(domains))

    def shares(self) -> dict[Hashable, float]:
        """The share of the next step's rollouts for each domain; they add up to 1."""
        weights_D = self.rule.weights_D()
        share_D = shares_within(weights_D, self._low_D, self._high_D, self.mixture.probe)
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

    def _of(self) -> dict[str, Any]:
        return {"rule": self.mixture.rule, "domains": [str(domain) for domain in self.domains]}

    def state_dict(self) -> dict[str, Any]:
        """Everything learned under the key "mixture", in types that JSON can hold."""
        return {"mixture": self._of() | {"learned": self.rule.state_dict()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`, if the state has it for the same rule and domains; else learning
        begins anew. Raises `StateError`, and changes nothing, if it is damaged."""
        saved, own = state.get("mixture"), self._of()
        if not isinstance(saved, dict):
            return
        if any(saved.get(name) != own[name] for name in own):
            logger.warning(
                "The checkpoint has a mixture %r of %s, and this run %r of %s: the shares are "
                "learned anew.",
                *(saved.get("rule"), saved.get("domains"), *own.values()),
            )
            return
        if not isinstance(saved.get("learned"), dict):
            raise StateError("The state of the mixture is damaged. Resume from another checkpoint.")
        self.rule.load_state_dict(saved["learned"])


def mixed_quotas(
    shares: Shares, domain_of: Mapping[Id, Hashable], mixture: Mixture | None
) -> Quotas:
    """These quotas, with shares that a mixture learns within them if one is given.

    >>> mixed_quotas({}, {"a": "math", "b": "code"}, Mixture()).limits
    {'math': (0.5, 0.5), 'code': (0.5, 0.5)}
    """
    if mixture is None:
        return Quotas(shares, domain_of)
    domains = list(dict.fromkeys(domain_of.values()))
    return Quotas(shares, domain_of, MixtureState(mixture, domains, shares))
