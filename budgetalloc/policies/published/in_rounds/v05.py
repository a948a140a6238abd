"""V0.5: the believed success as the baseline where the group agrees with it, and more rollouts
where not."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.errors import InputError, check_integer, check_number
from budgetalloc.policies.interface import Needs, Outcome, Rounds, Tally, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.rounds import until_finished

__all__ = ["disagreement", "fused", "next_gain", "v05"]

_START = 16  # prompts that the starting prior weighs


def disagreement(mean_P: FloatArray, value_P: FloatArray, n_P: FloatArray) -> FloatArray:
    """The squared error of a value, estimated from a group's mean for rewards of -1 and 1, shape
    (P,).

    max(0, (2 mean - 2 value)^2 - 1 / n), where 1 / n is the largest variance of a mean of n; 0
    where n is 0.
    """
    return np.where(
        n_P > 0, np.maximum(4 * (mean_P - value_P) ** 2 - 1 / np.maximum(n_P, 1), 0.0), 0.0
    )


def fused(mean_P: FloatArray, value_P: FloatArray, n_P: FloatArray) -> FloatArray:
    """V0.5's baseline: w mean + (1 - w) value, w = d / (d + 1 / n) with d the `disagreement`, shape
    (P,)."""
    error_P = disagreement(mean_P, value_P, n_P)
    weight_P = error_P / (error_P + 1 / np.maximum(n_P, 1))
    return np.asarray(weight_P * mean_P + (1 - weight_P) * value_P)


def next_gain(error_P: ArrayLike, n_P: ArrayLike) -> FloatArray:
    """The fall of the squared error of `fused` by one more rollout, d / (d n + 1) - d / (d (n + 1)
    + 1), shape (P,)."""
    error, n = np.asarray(error_P, dtype=np.float64), np.asarray(n_P, dtype=np.float64)
    return np.asarray(error / (error * n + 1) - error / (error * (n + 1) + 1))


class _PooledEstimator(BetaEstimator):
    """Beliefs whose prior has the mean and the variance of a rate drawn from the beliefs about all
    prompts seen."""

    saved = (*BetaEstimator.saved, "prior_now")

    def tick(self) -> None:
        super().tick()
        start = Beta(*np.full((2, _START), 0.5))
        successes_P, failures_P, _ = self._carried(slice(len(self))).T
        seen = Beta(self.prior_now[0] + successes_P, self.prior_now[1] + failures_P)
        mean = math.fsum([*start.mean, *seen.mean]) / (_START + len(seen))
        within = math.fsum([*start.moment(1, 1), *seen.moment(1, 1)]) / (_START + len(seen))
        # E[p(1-p)] / Var[p], which is a + b for a Beta
        mass = within / (mean * (1 - mean) - within)
        self.prior_now = mean * mass, (1 - mean) * mass

    def check_restored(self) -> None:
        super().check_restored()
        if min(self.prior_now) <= 0:
            raise InputError(f"prior={self.prior_now} is not two positive numbers")


def v05(
    *, first: int = 4, most: int = 16, more: int = 1, cost: float = 0.0039, seed: int = 0
) -> Policy:
    """Groups of `first`, and more rollouts where they contradict the belief (V0.5, arXiv
    2603.10848).

    The baseline is the believed success V where the group's mean agrees with it, and otherwise lies
    between V and the mean (`fused`). The test is whether their distance exceeds the noise of the
    mean. A group continues, up to `most`, while one more rollout lowers the expected squared error
    of the baseline by more than `cost` (`next_gain`). What it does not need starts further prompts,
    so that the budget is spent exactly. Graded success enters through its mean alone.

    The paper's V is a pretrained value model. Here it is the posterior mean before the step, with
    the prior of the pool for a prompt never seen. Rules and constants are from a reader's notes of
    the paper. The scale of the advantages was not found; here it is their root mean square. The
    baseline contains the rollout's own reward where the group disagrees. Groups of 1 and 2 did not
    converge in the paper.

    Args:
        first: Rollouts to start a prompt with, at least 1.
        most: Most rollouts of a prompt, at least `first`.
        more: Rollouts to continue a group with, at least 1, the paper's. Larger numbers take fewer
            rounds.
        cost: The fall of the squared error that a further rollout must exceed; 0.0039 is 1 / 16^2.
        seed: Seeds the ties.

    >>> from budgetalloc import Budget
    >>> policy = v05()
    >>> for _ in range(3):
    ...     policy.observe(["known", "fell"] * 8, [1] * 16)
    >>> step = policy.begin(["known", "fell"], Budget(rollouts=16, floor=4))
    >>> step.request()
    array([4, 4])
    >>> step.observe(["known"] * 4 + ["fell"] * 4, [1] * 4 + [0] * 4); step.request()
    array([0, 1])
    """
    check_integer("first", first, 1)
    check_integer("most", most, first)
    check_integer("more", more, 1)
    check_number("cost", cost, 0, 1)

    def decide(view: View) -> Rounds:
        value_P = view.belief_P.mean

        def settled(tally: Tally) -> NDArray[np.bool_]:
            mean_P = tally.successes_P / np.maximum(tally.scored_P, 1)
            return next_gain(disagreement(mean_P, value_P, tally.scored_P), tally.scored_P) <= cost

        return until_finished(view, first, more, most, settled, view.rollouts_only("v05"))

    def expect(outcome: Outcome) -> FloatArray:
        return fused(outcome.mean_G, outcome.belief_G.mean, outcome.scored_G)[outcome.group_R]

    name = f"v05(first={first}, most={most}, more={more}, cost={cost}, seed={seed})"
    needs = Needs(candidates=2, baseline="policy", scale="rms", by_group=True)
    return Policy(name, decide, _PooledEstimator(discount=0.9), seed, needs, expect=expect)
