"""V0.5: the believed success as the baseline where the group agrees with it, and more rollouts
where not."""

import math
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.errors import InputError
from budgetalloc.methods.table import Between, Count, Share, method, policy
from budgetalloc.policies import Policy, View
from budgetalloc.policies.interface import Rounds
from budgetalloc.policies.rounds import until_finished

_START = 16  # prompts that the starting prior weighs


def disagreement(mean_P: FloatArray, value_P: FloatArray, n_P: FloatArray) -> FloatArray:
    """The squared error of a value, estimated from a group's mean for rewards of -1 and 1, shape
    (P,): max(0, (2 mean - 2 value)^2 - 1 / n), where 1 / n is the largest variance of a mean of n;
    0 where n is 0."""
    error_P = 4 * (mean_P - value_P) ** 2 - 1 / np.maximum(n_P, 1)
    return np.where(n_P > 0, np.maximum(error_P, 0.0), 0.0)


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
            raise InputError(f"prior={self.prior_now}", "is not two positive numbers")


@method("in rounds", "a description", of_rates=True)
def v05(
    *,
    first: Count = 4,
    most: Annotated[int, Between("first")] = 16,
    more: Count = 1,
    cost: Share = 0.0039,
    seed: int = 0,
) -> Policy:
    """Starts prompts with small groups and adds single rollouts only where they make the baseline
    more exact. It is meant for groups so small that their mean alone is a noisy baseline.

    Formula: 4, then 1 more while d / (d n + 1) falls by 0.0039, d = max(0, (2 mean - 2 V)^2 - 1 /
    n); at most 16. Baseline w mean + (1 - w) V, w = d / (d + 1 / n).

    Source: V0.5 (arXiv 2603.10848). Compared with a description only: a reader's notes of the
    paper. V is the posterior before the step, in the paper a pretrained value model. The scale of
    the advantages was not found.

    `more=4` takes fewer rounds. Graded success enters through its mean.

    Args:
        first, more, most: Rollouts to start a prompt with, to continue it with, and in all.
        cost: The fall of the squared error that a further rollout must exceed, 1 / 16^2.

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

    def decide(view: View) -> Rounds:
        value_P = view.belief_P.mean

        def settled(seen: ByPrompt) -> NDArray[np.bool_]:
            n_P, d_P = seen.n_P, disagreement(seen.mean_P, value_P, seen.n_P)
            return np.asarray(d_P / (d_P * n_P + 1) - d_P / (d_P * (n_P + 1) + 1) <= cost)

        return until_finished(view, first, more, most, settled, view.rollouts_only("v05"))

    def expect(view: View, seen: ByPrompt) -> FloatArray:
        mean_P, value_P, n_P = seen.mean_P, view.belief_P.mean, seen.n_P
        d_P = disagreement(mean_P, value_P, n_P)
        weight_P = d_P / (d_P + 1 / np.maximum(n_P, 1))
        return np.asarray(weight_P * mean_P + (1 - weight_P) * value_P)[seen.prompt_R]

    needs = {"candidates": 2, "baseline": "policy", "scale": "rms", "by_group": True}
    return policy(decide, estimator=_PooledEstimator(discount=0.9), expect=expect, **needs)
