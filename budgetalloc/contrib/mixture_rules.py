"""The rules of a mixture: what the next rollouts of each domain are worth, learned from every
step."""

from dataclasses import dataclass

import numpy as np

from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.state import Stateful
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known of the success of prompts.

    Args:
        place_K: The domain of each prompt, from 0 to D - 1, shape (K,); ids may repeat.
        successes_K, rollouts_K: Its evidence, discounted, without the prior.
        mass_K, prior_K: The mass of the prior of its belief, in rollouts, and the prior's mean.
    """

    place_K: IntArray
    successes_K: FloatArray
    rollouts_K: FloatArray
    mass_K: FloatArray
    prior_K: FloatArray

    @classmethod
    def of(cls, place_K: IntArray, belief: Beta, prior: Beta, rows: IntArray) -> "Evidence":
        """The evidence of these rows in beliefs that contain a prior."""
        successes_K = np.maximum(belief.alpha_P - prior.alpha_P, 0.0)
        rollouts_K = successes_K + np.maximum(belief.beta_P - prior.beta_P, 0.0)
        numbers = successes_K, rollouts_K, prior.mass, prior.mean
        return cls(place_K[rows], *(column[rows] for column in numbers))

    def rate_K(self, prior_K: FloatArray) -> FloatArray:
        """The success rate of each prompt, with these means of the prior."""
        return (self.mass_K * prior_K + self.successes_K) / (self.mass_K + self.rollouts_K)

    def summed(self, values_K: FloatArray, domains: int) -> FloatArray:
        """The sum of these values over each domain."""
        sums_D = np.bincount(self.place_K, values_K, minlength=domains)
        return np.asarray(sums_D, dtype=np.float64)


def success_of_domains(seen: Evidence, domains: int) -> tuple[FloatArray, FloatArray]:
    """The mean success of each domain's prompts, and the variance of its error, shape (D,) each.

    A prompt with n rollouts counts with weight n / (k + n), where k is the mass of its belief's
    prior. The estimate therefore hardly moves when the policy turns to harder prompts of the
    domain. The prior's mean counts as one prompt.

    >>> place_P, ones_P = np.array([0, 0, 1]), np.ones(3)
    >>> seen = Evidence(place_P, np.array([99.0, 0, 0]), np.array([99.0, 9, 0]), ones_P, ones_P / 2)
    >>> success_of_domains(seen, 2)[0].round(3)  # (0.99 + 0 + 0.5) / (0.99 + 0.9 + 1); the prior
    array([0.516, 0.5  ])
    """
    total_K = seen.mass_K + seen.rollouts_K
    prior_D = seen.summed(seen.prior_K, domains)
    prior_D = prior_D / np.maximum(seen.summed(np.ones(len(total_K)), domains), 1)
    weight_D = seen.summed(seen.rollouts_K / total_K, domains) + 1
    success_D = (seen.summed(seen.successes_K / total_K, domains) + prior_D) / weight_D
    mean_K = seen.rate_K(success_D[seen.place_K])
    error_K = seen.rollouts_K * mean_K * (1 - mean_K) / total_K**2
    return success_D, seen.summed(error_K, domains) / weight_D**2


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
    2. The rates are corrected by the mean surprise, success minus predicted rate, of the domain's
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

    def observe(
        self, after: Evidence, before: Evidence, success_R: FloatArray, size_R: FloatArray
    ) -> None:
        """Learns from a finished step, as the class describes.

        Args:
            after: Of the step's candidates, after it.
            before: Of the prompt of each rollout, before it.
            success_R: The success of each rollout, shape (R,).
            size_R: Its absolute advantage, which `Adept` needs.
        """
        old, domains = self._learned, len(self._learned["success"])
        success_D, variance_D = success_of_domains(after, domains)
        first = bool(np.isnan(old["success"]).any())
        before_D = success_D if first else old["success"]
        offered_D = np.bincount(after.place_K, minlength=domains) > 0
        success_D = np.where(offered_D, success_D, before_D)
        rate_R = before.rate_K(before.prior_K if first else before_D[before.place_K])
        fade, counts_D = 1 - 1 / self.memory, before.summed(np.ones(len(success_R)), domains)
        rate_D = np.maximum(1 / self.memory, 1 / (old["steps"] + 1))
        left_D = np.maximum(1 - counts_D / self.window, 0.0)
        surprise_D = left_D * old["surprise"] + before.summed(success_R - rate_R, domains)
        surprised_D = left_D * old["surprised"] + counts_D
        shift_D = surprise_D / (surprised_D + self.trust)
        least_D = 1 / (after.summed(after.rollouts_K, domains) + 3)
        rate_P = after.rate_K(success_D[after.place_K]) + shift_D[after.place_K]
        rate_P = np.clip(rate_P, least_D[after.place_K], 1.0)
        value_P = np.sqrt(rate_P) * (1 - rate_P)
        value_D, square_D = after.summed(value_P, domains), after.summed(value_P**2, domains)
        away_D = success_D - old["level"]
        self._learned = {
            "success": success_D,
            "steps": old["steps"] + 1,
            "level": old["level"] + rate_D * away_D,
            "moved": (1 - rate_D) * (old["moved"] + rate_D * away_D**2),
            "variance": old["variance"] + rate_D * (variance_D - old["variance"]),
            "taught": fade * old["taught"] + before.summed(rate_R * (1 - rate_R), domains),
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


class Adept(Stateful):
    """ADEPT with the domains as arms: one domain gets all that the others' lowest shares leave.

    It is the domain with the largest X + sqrt(0.6 ln(w) / N), a sliding-window upper confidence
    bound over the last w <= 200 steps. N is the number of these steps in which the domain had most
    of the rollouts, and X is its mean |advantage| in them, 1 at most. A domain without such a step
    comes next. ADEPT (arXiv 2501.12620) uses such a bandit for settings of a training. The window
    is that of arXiv 2308.01028, and the factor 0.6 is ours.

    >>> Adept(2).weights_D()
    array([1., 0.])
    """

    saved = may_be_nan = ("_recent_S2",)
    needs_advantages = True
    window = 200  # steps

    def __init__(self, domains: int) -> None:
        self._domains = domains
        # the domain of each of the last steps, and its gain; NaN before the first
        self._recent_S2 = np.full((self.window, 2), np.nan)

    def observe(
        self, after: Evidence, before: Evidence, success_R: FloatArray, size_R: FloatArray
    ) -> None:
        """Learns the gain of the domain that had most of the rollouts; nothing from a step without
        rollouts. Arguments as in `Learn`."""
        counts_D = before.summed(np.ones(len(size_R)), self._domains)
        if counts_D.any():
            at = int(np.argmax(counts_D))
            gain = before.summed(size_R, self._domains)[at] / counts_D[at]
            self._recent_S2 = np.vstack([self._recent_S2[1:], [at, min(gain, 1.0)]])

    def check_restored(self) -> None:
        at_T, gain_T = self._steps()
        if ((at_T < 0) | (at_T >= self._domains) | ~((gain_T >= 0) & (gain_T <= 1))).any():
            raise InputError("recent", "does not hold domains and gains.")

    def _steps(self) -> tuple[IntArray, FloatArray]:
        at_T, gain_T = self._recent_S2[~np.isnan(self._recent_S2[:, 0])].T
        return at_T.astype(np.int64), gain_T

    def _scores(self) -> FloatArray:
        """The upper bound of each domain, NaN without a step."""
        at_T, gain_T = self._steps()
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
