"""DUMP, SEC and ADEPT as rules of a mixture: bandits whose arms are the domains."""

from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import StateError
from budgetalloc.policies.costs.bandits import SlidingWindowUCB
from budgetalloc.policies.mixture import Rule
from budgetalloc.policies.mixture_rules import DomainStep
from budgetalloc.policies.published.which_prompts.categories import add_to_window, upper_bounds

__all__ = ["Published"]

_WINDOW, _DUMP_TEMPERATURE = 300, 0.1  # of `policies.dump`
_RATE, _SEC_TEMPERATURE = 0.5, 0.4  # of `policies.sec`


class Published:
    """DUMP, SEC or ADEPT with the domains as arms. The gain of a domain is its mean |advantage| in training.

    - "dump" (arXiv 2504.09710): the softmax of `categories.upper_bounds` over the last 300 rollouts of each domain,
      with temperature 0.1. The weights are the shares; DUMP draws each prompt's category from them.
    - "sec" (arXiv 2505.14970): the softmax of a running mean of the gains, with rate 0.5 and temperature 0.4.
    - "adept": one domain gets all that the others' lowest shares leave. `bandits.SlidingWindowUCB` chooses it, whose
      arms ADEPT (arXiv 2501.12620) uses for settings of the training. Gains above 1 count as 1.

    >>> Published("sec", 2).weights_D()
    array([0.5, 0.5])
    """

    needs_advantages = True

    def __init__(self, rule: Rule, domains: int) -> None:
        self.rule, self._domains = rule, domains
        self._numbers: dict[str, float] = {}
        self._bandit = SlidingWindowUCB(range(domains))

    def observe(self, step: DomainStep) -> None:
        """Learns the gain of each domain that had rollouts."""
        counts_D = step.counts_D(self._domains)
        gain_D = np.bincount(step.place_R, step.size_R, minlength=self._domains) / np.maximum(counts_D, 1)
        numbers = self._numbers
        for at in np.flatnonzero(counts_D).tolist():
            gain, rollouts = float(gain_D[at]), float(counts_D[at])
            if self.rule == "dump":
                add_to_window(numbers, str(at), gain, rollouts, _WINDOW)
                numbers[f"n:{at}"] = numbers.get(f"n:{at}", 0.0) + rollouts
                numbers["n"] = numbers.get("n", 0.0) + rollouts
            elif self.rule == "sec":
                numbers[f"q:{at}"] = _RATE * gain + (1 - _RATE) * numbers.get(f"q:{at}", 0.0)
        if self.rule == "adept" and counts_D.any():  # the arm that had most of the rollouts
            at = int(np.argmax(counts_D))
            self._bandit.observe(at, min(float(gain_D[at]), 1.0))

    def weights_D(self) -> FloatArray:
        """The shares of the rule, shape (D,)."""
        if self.rule == "adept":
            return np.asarray(np.eye(self._domains)[self._bandit.choose()])
        scores_D, temperature = self._scores(), _DUMP_TEMPERATURE if self.rule == "dump" else _SEC_TEMPERATURE
        weights_D = np.exp((scores_D - scores_D.max()) / temperature)
        return np.asarray(weights_D / weights_D.sum())

    def _scores(self) -> FloatArray:
        def read(key: str) -> FloatArray:
            return np.array([self._numbers.get(f"{key}:{at}", 0.0) for at in range(self._domains)])

        if self.rule == "dump":
            return upper_bounds(read("q"), read("n"), self._numbers.get("n", 0.0))
        return self._bandit.scores() if self.rule == "adept" else read("q")

    def described(self) -> dict[str, FloatArray]:
        """The score of each domain, where it is finite."""
        return {"score": np.where(np.isfinite(self._scores()), self._scores(), np.nan)}

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, in types that JSON can hold."""
        return {"numbers": dict(self._numbers), "bandit": self._bandit.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`; raises `StateError`, and changes nothing, if it does not fit."""
        try:
            numbers = {str(key): float(value) for key, value in state["numbers"].items()}
            bandit = state["bandit"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"The state of the mixture is damaged ({type(error).__name__}: {error}).") from error
        if not np.isfinite(list(numbers.values())).all():
            raise StateError("The state of the mixture is damaged: a number is not finite.")
        self._bandit.load_state_dict(bandit)
        self._numbers = numbers
