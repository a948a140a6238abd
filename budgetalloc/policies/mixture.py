"""The mixture of domains: which share of a step's rollouts each domain gets, and how fast a
forgotten one is seen."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, check_choice, check_number, shown
from budgetalloc.solvers.proportional import clipped_shares

__all__ = ["Mixture", "Rule", "check_mixture", "shares_within", "steps_to_see_fall"]

Rule = Literal["learn", "adept"]


@dataclass(frozen=True)
class Mixture:
    """How the shares of the domains follow from the run so far.

    The rules are `policies.mixture_rules.Learn` and `policies.mixture_rules.Adept`.

    Args:
        rule: "learn" is our own rule. "adept" (after arXiv 2501.12620) is a published bandit with
            the domains as arms.
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
    """The mixture of this rule; None stays None.

    Args:
        mixture: A rule's name, a `Mixture`, or a mapping with the arguments of `Mixture`, as a file
            has it.

    Raises:
        InputError: none of these, or an argument of the mapping that is unknown or out of range.

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
            "budgetalloc.policies.mixture.Mixture with rule= and probe=.",
            argument="mixture",
        )
    return Mixture(mixture)  # type: ignore[arg-type]


def shares_within(
    weights_D: FloatArray, low_D: FloatArray, high_D: FloatArray, probe: float
) -> FloatArray:
    """Shares in proportion to weights, within the quotas, and at least `probe` where the quotas
    allow it.

    Args:
        weights_D: At least 0, shape (D,). If all are 0, the shares are as even as the quotas allow.
        low_D, high_D: Lowest and highest share of each domain, which the sum 1 can satisfy, shape
            (D,).
        probe: The lowest share that a domain gets beyond its quota's.

    Returns:
        The shares, shape (D,), which add up to 1.

    >>> shares_within(np.array([3.0, 1.0, 0.0]), np.zeros(3), np.array([0.5, 1.0, 1.0]), 0.02).round(3)
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

    The fall counts as seen once the mean success of the probes since the fall is below `solved` -
    `fall` / 2. After n probes it is above that with probability of at most exp(-n KL(solved - fall
    / 2 || solved - fall)), the Chernoff bound (Hoeffding 1963, theorem 1), for any success in [0,
    1].

    Args:
        fall: How far the success falls, above 0 and at most `solved`.
        probes: Rollouts of the domain in a step, at least 1: `Mixture.probe` times the step's
            rollouts, rounded down.
        solved: Mean success before the fall, in (0, 1].
        miss: The probability of not seeing it, in (0, 1).

    Raises:
        InputError: an argument out of range.

    >>> [steps_to_see_fall(fall, probes=5) for fall in (0.1, 0.2, 0.5)]  # of 256 rollouts a step, 2 %
    [36, 17, 5]
    >>> steps_to_see_fall(0.2, probes=20)
    5
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
