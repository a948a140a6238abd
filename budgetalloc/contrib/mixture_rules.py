"""The rules of a mixture: what the next rollouts of each domain are worth, learned from every
step."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.state import Stateful, reading
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_integer, check_number

__all__ = ["Adept", "DomainStep", "Learn", "efficiency", "success_of_domains"]


@dataclass(frozen=True, eq=False)
class DomainStep:
    """What a step has shown about the domains. Success is in [0, 1].

    Args:
        place_P: The domain of each candidate, from 0 to D - 1, shape (P,).
        successes_P, rollouts_P: Its evidence after the step, discounted, without the prior.
        mass_P, prior_P: The mass of the prior of its belief, in rollouts, and the prior's mean.
        place_R: The domain of each rollout of the step, shape (R,).
        success_R: Its success.
        successes_R, rollouts_R: The evidence about its prompt before the step, as of `_P`.
        mass_R, prior_R: As of `_P`.
        size_R: The absolute advantage that is trained on; empty if the rule does not need it.
    """

    place_P: IntArray
    successes_P: FloatArray
    rollouts_P: FloatArray
    mass_P: FloatArray
    prior_P: FloatArray
    place_R: IntArray
    success_R: FloatArray
    successes_R: FloatArray
    rollouts_R: FloatArray
    mass_R: FloatArray
    prior_R: FloatArray
    size_R: FloatArray

    def counts_D(self, domains: int) -> FloatArray:
        """Rollouts of each domain in the step, shape (D,)."""
        return np.bincount(self.place_R, minlength=domains).astype(np.float64)


def _summed(place_K: IntArray, values_K: FloatArray, domains: int) -> FloatArray:
    return np.asarray(np.bincount(place_K, values_K, minlength=domains), dtype=np.float64)


def success_of_domains(step: DomainStep, domains: int) -> tuple[FloatArray, FloatArray]:
    """The mean success of each domain's prompts, and the variance of its error, shape (D,) each.

    A prompt with n rollouts counts with weight n / (k + n), where k is the mass of its belief's
    prior. The estimate therefore hardly moves when the policy turns to harder prompts of the
    domain. The prior's mean counts as one prompt.

    >>> place_P, ones_P, none = np.array([0, 0, 1]), np.ones(3), np.zeros(0, dtype=int)
    >>> successes_P, rollouts_P = np.array([99.0, 0, 0]), np.array([99.0, 9, 0])
    >>> step = DomainStep(place_P, successes_P, rollouts_P, ones_P, ones_P / 2, *[none] * 7)
    >>> success_of_domains(step, 2)[0].round(3)  # (0.99 + 0 + 0.5) / (0.99 + 0.9 + 1); the prior
    array([0.516, 0.5  ])
    """
    total_P = step.mass_P + step.rollouts_P

    def summed(values_P: FloatArray) -> FloatArray:
        return _summed(step.place_P, values_P, domains)

    prior_D = summed(step.prior_P) / np.maximum(summed(np.ones(len(total_P))), 1)
    weight_D = summed(step.rollouts_P / total_P) + 1
    success_D = (summed(step.successes_P / total_P) + prior_D) / weight_D
    mean_P = (step.mass_P * success_D[step.place_P] + step.successes_P) / total_P
    variance_D = summed(step.rollouts_P * mean_P * (1 - mean_P) / total_P**2) / weight_D**2
    return success_D, variance_D


def efficiency(moved_D: FloatArray, variance_D: FloatArray, taught_D: FloatArray) -> FloatArray:
    """How much success moved for what was spent, relative to all domains: 1 is the mean, and the
    value without data.

    A rollout of a prompt with rate p can teach p (1 - p). If all domains learned equally well,
    success would move by e times the sum of that, with e pooled from all domains. The result is
    1 + A (moved / (e taught) - 1), where A = (e taught)^2 / ((e taught)^2 + variance) is near 1 if
    the expected movement is far above the error of measuring it. The error is first subtracted from
    the movement, in squares. Movements down count as those up: success depends on training.

    Args:
        moved_D: Standard deviation of success over the memory, shape (D,).
        variance_D: Variance of the error of success.
        taught_D: Sum of p (1 - p) over the rollouts.

    Returns:
        In [0.05, 2], shape (D,).

    >>> moved_D, taught_D = np.array([0.3, 0.0, 0.0]), np.array([300.0, 300, 2])
    >>> efficiency(moved_D, np.full(3, 0.0004), taught_D).round(2)
    array([1.99, 0.05, 1.  ])
    """
    clear_D = np.sqrt(np.maximum(moved_D**2 - variance_D, 0.0))
    if not clear_D.any():
        return np.ones(len(moved_D))
    expected_D = clear_D.sum() / taught_D.sum() * taught_D
    weight_D = expected_D**2 / np.maximum(expected_D**2 + variance_D, 1e-12)
    ratio_D = clear_D / np.maximum(expected_D, 1e-12)
    return np.asarray(np.clip(1 + weight_D * (ratio_D - 1), 0.05, 2.0))


class Learn(Stateful):
    """Our rule: what the beliefs say that a rollout teaches, times how much success has moved per
    rollout spent there.

    After each step, for each domain:

    1. Its success is `success_of_domains`. A prompt's rate p is its evidence, with that success as
       the prior's mean.
    2. The rates are corrected by the mean surprise, success less predicted rate, of the domain's
       last 64 rollouts or so. A fall that a few probes show counts for all its prompts at once.
    3. No rate is below 1 / (n + 3), where n is the domain's rollouts in the evidence: a domain
       without success is given up slowly, and never for good.
    4. Teaching is the mean of sqrt(p) (1 - p) over its prompts, weighted by itself, because a
       policy chooses prompts with a high value.
    5. `efficiency` compares the movement of its success, a standard deviation over about 30 steps,
       with what its rollouts could teach. It falls to 0.05 where rewards are noise, and recovers as
       the evidence fades.

    The weight is teaching times efficiency. Old steps are discounted by 1 - 1 / 30 a step, because
    the model moves.

    >>> rule = Learn(2)
    >>> rule.weights_D()
    array([1., 1.])
    """

    saved = may_be_nan = ("_learned",)
    needs_advantages = False
    memory = 30.0  # steps
    window = 64.0  # rollouts
    trust = 8.0  # rollouts without surprise that the window's mean is shrunk by

    def __init__(self, domains: int) -> None:
        nothing = np.zeros(domains)
        self._learned = {
            "success": np.full(domains, np.nan),  # nan: no step so far
            "steps": nothing.copy(),
            "level": nothing.copy(),  # mean of success over the memory, and its variance
            "moved": nothing.copy(),
            "variance": nothing.copy(),  # of the error of success, the same mean
            "taught": nothing.copy(),
            "surprise": nothing.copy(),
            "surprised": nothing.copy(),  # the rollouts that `surprise` is summed over
            "teaching": np.ones(domains),
        }

    def observe(self, step: DomainStep) -> None:
        """Learns from a finished step, as the class describes."""
        old, domains = self._learned, len(self._learned["success"])
        success_D, variance_D = success_of_domains(step, domains)
        first = bool(np.isnan(old["success"]).any())
        before_D = success_D if first else old["success"]
        offered_D = np.bincount(step.place_P, minlength=domains) > 0
        success_D = np.where(offered_D, success_D, before_D)
        prior_R = step.prior_R if first else before_D[step.place_R]
        rate_R = (step.mass_R * prior_R + step.successes_R) / (step.mass_R + step.rollouts_R)

        def summed(values_R: FloatArray) -> FloatArray:
            return _summed(step.place_R, values_R, domains)

        fade, counts_D = 1 - 1 / self.memory, step.counts_D(domains)
        rate_D = np.maximum(1 / self.memory, 1 / (old["steps"] + 1))
        left_D = np.maximum(1 - counts_D / self.window, 0.0)
        surprise_D = left_D * old["surprise"] + summed(step.success_R - rate_R)
        surprised_D = left_D * old["surprised"] + counts_D
        shift_D = surprise_D / (surprised_D + self.trust)
        rate_P = step.mass_P * success_D[step.place_P] + step.successes_P
        rate_P = rate_P / (step.mass_P + step.rollouts_P)
        rollouts_D = np.bincount(step.place_P, step.rollouts_P, minlength=domains)
        rate_P = np.clip(rate_P + shift_D[step.place_P], (1 / (rollouts_D + 3))[step.place_P], 1.0)
        value_P = np.sqrt(rate_P) * (1 - rate_P)
        value_D = np.bincount(step.place_P, value_P, minlength=domains)
        square_D = np.bincount(step.place_P, value_P**2, minlength=domains)
        away_D = success_D - old["level"]
        self._learned = {
            "success": success_D,
            "steps": old["steps"] + 1,
            "level": old["level"] + rate_D * away_D,
            "moved": (1 - rate_D) * (old["moved"] + rate_D * away_D**2),
            "variance": old["variance"] + rate_D * (variance_D - old["variance"]),
            "taught": fade * old["taught"] + summed(rate_R * (1 - rate_R)),
            "surprise": surprise_D,
            "surprised": surprised_D,
            "teaching": np.where(offered_D, square_D / np.maximum(value_D, 1e-12), old["teaching"]),
        }

    def _efficiency(self) -> FloatArray:
        got = self._learned
        return efficiency(np.sqrt(got["moved"]), got["variance"], got["taught"])

    def check_restored(self) -> None:
        for name, array in self._learned.items():
            if name != "success" and np.isnan(array).any():
                raise InputError(name, "does not hold finite numbers.")

    def weights_D(self) -> FloatArray:
        """Teaching times efficiency, shape (D,)."""
        return self._learned["teaching"] * self._efficiency()

    def described(self) -> dict[str, FloatArray]:
        """Success, teaching and efficiency of each domain."""
        return {
            "success": self._learned["success"],
            "teaching": self._learned["teaching"],
            "efficiency": self._efficiency(),
        }


class Adept:
    """ADEPT with the domains as arms: one domain gets all that the others' lowest shares leave.

    It is the domain with the largest X + sqrt(0.6 ln(w) / N), a sliding-window upper confidence
    bound over the last w <= 200 steps. N is the number of these steps in which the domain had most
    of the rollouts, and X is its mean |advantage| in them, 1 at most. A domain without such a step
    comes next. ADEPT (arXiv 2501.12620) uses such a bandit for settings of a training. The window
    is that of arXiv 2308.01028, and the factor 0.6 is ours.

    >>> Adept(2).weights_D()
    array([1., 0.])
    """

    needs_advantages = True
    window = 200  # steps

    def __init__(self, domains: int) -> None:
        self._domains = domains
        # the domain of each step, and its gain
        self._recent: deque[tuple[int, float]] = deque(maxlen=self.window)

    def observe(self, step: DomainStep) -> None:
        """Learns the gain of the domain that had most of the rollouts; nothing from a step without
        rollouts."""
        counts_D = step.counts_D(self._domains)
        if counts_D.any():
            at = int(np.argmax(counts_D))
            gain = float(np.bincount(step.place_R, step.size_R)[at] / counts_D[at])
            self._recent.append((at, min(gain, 1.0)))

    def _scores(self) -> FloatArray:
        """The upper bound of each domain, NaN without a step."""
        at_T = np.array([at for at, _ in self._recent], dtype=np.int64)
        gain_T = np.array([gain for _, gain in self._recent])
        steps_D = np.bincount(at_T, minlength=self._domains).astype(np.float64)
        steps_D[steps_D == 0] = np.nan
        mean_D = np.bincount(at_T, gain_T, minlength=self._domains) / steps_D
        return np.asarray(mean_D + np.sqrt(0.6 * np.log(max(len(at_T), 1)) / steps_D))

    def weights_D(self) -> FloatArray:
        """1 for the chosen domain and 0 for the others, shape (D,)."""
        best = int(np.argmax(np.nan_to_num(self._scores(), nan=np.inf)))
        return np.asarray(np.eye(self._domains)[best])

    def described(self) -> dict[str, FloatArray]:
        """The score of each domain, NaN before its first step."""
        return {"score": self._scores()}

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, in types that JSON can hold."""
        return {"recent": [[at, gain] for at, gain in self._recent]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`; raises `StateError`, and changes nothing, if it does not fit."""
        with reading("mixture"):
            rows = deque[tuple[int, float]](maxlen=self.window)
            for at, gain in state["recent"]:
                check_integer("recent", at, 0, self._domains - 1)
                rows.append((int(at), check_number("recent", gain, 0, 1)))
        self._recent = rows
