"""XRPO's rollout planner: rounds for the prompts whose mean reward is least certain."""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.budget import Budget, IntArray
from budgetalloc.methods.table import Between, Count, Inside, method, policy
from budgetalloc.policies import Policy, View
from budgetalloc.policies.composition import spend
from budgetalloc.policies.interface import Rounds
from budgetalloc.policies.spending import Spending


@lru_cache(maxsize=8)
def half_widths(limit: int, alpha: float) -> FloatArray:
    """The half-width of Student's interval of a mean of n rewards, for a sample deviation of 1 and
    n = 0 ... limit: t_{1-alpha/2, n-1} / sqrt(n). n = 0 and 1, which have no interval, count as 2.

    >>> half_widths(4, 0.05).round(3)
    array([8.985, 8.985, 8.985, 2.484, 1.591])
    """
    from scipy.special import stdtrit  # the Student quantile, which is slow to import

    counts_N = np.maximum(np.arange(limit + 1), 2)
    return np.asarray(stdtrit(counts_N - 1.0, 1 - alpha / 2) / np.sqrt(counts_N))


def deviation(seen: ByPrompt) -> FloatArray:
    """The sample deviation s of each prompt's successes, shape (P,): s^2 = n / (n-1) r (1-r) if
    they are 0 or 1; 0 below two rollouts, and for equal rewards."""
    n = np.maximum(seen.n_P, 2)
    varies_P = seen.mixed_P & (seen.n_P >= 2)
    return np.where(varies_P, np.sqrt(n / (n - 1) * seen.variance_P), 0.0)


@method("in rounds", "a description")
def xrpo(
    *,
    base: Annotated[int, Between(2)] = 4,
    rounds: Count = 2,
    alpha: Inside = 0.05,
    weight: Annotated[float, Between(0, math.inf)] = 0.1,
    bonus: Literal["sqrt", "linear"] = "sqrt",
    clock: Literal["rollouts", "steps"] = "rollouts",
    share: Inside = 0.5,
    seed: int = 0,
) -> Policy:
    """Gives further rollouts in rounds to the prompts whose mean reward they would make most
    certain, with a bonus for prompts with few rollouts. Prompts whose result is already clear keep
    small groups.

    Formula: after a base of 4, to the largest h(n) - h(n+1) + lambda sqrt(log(1+T) / n), h = t s /
    sqrt(n).

    Source: XRPO's planner (arXiv 2510.06672). Compared with a description only: transcriptions,
    which disagree on the bonus and T. The code, UIUC-MLSys/XRPO, was not compared. lambda, base and
    rounds are our defaults. In-context seeding is available as `on_all_fail`.

    h is the half-width of Student's interval of a prompt's mean reward. Each rollout of a round
    goes to the highest priority, which then falls with n while s stays fixed.

    Args:
        base, share: Rollouts that start a prompt, and their share of the budget if the floor is 0.
        rounds: Rounds after the base; two make the paper's three phases.
        alpha, weight: One minus the confidence of the interval; lambda.
        bonus: "sqrt", sqrt(log(1+T) / n), or "linear", log(1+T) / n.
        clock: What T counts: "rollouts" of this step before the round, or training "steps" before
            this one.

    >>> from budgetalloc import Budget
    >>> step = xrpo(rounds=1, seed=0).begin(["half", "solved"], Budget(rollouts=16))
    >>> step.request()
    array([4, 4])
    >>> step.observe(["half"] * 4 + ["solved"] * 4, [0, 1, 0, 1, 1, 1, 1, 1]); step.request()
    array([7, 1])
    """

    def bases(view: View) -> IntArray:
        """The base of each prompt that starts; enough prompts start to take the whole budget."""
        budget, prompts, quantum = view.budget, len(view.belief_P), view.budget.quantum
        spending = Spending(budget, prompts)
        if budget.fewest:
            each = min(base, spending.left // prompts // quantum * quantum)
            spending.give_each(np.arange(prompts), each)
            return spending.counts_P
        each = max(-(-base // quantum) * quantum, budget.smallest_group)
        each = min(each, budget.largest_group)
        starts = int(share * spending.left) // each
        starts = max(starts, -(-spending.left // budget.largest_group), 1)
        spending.give_each(np.arange(min(starts, prompts)), base)
        return spending.counts_P

    def decide(view: View) -> Rounds:
        total, budget = view.rollouts_only("xrpo"), view.budget
        counts_P = bases(view)
        left, high = total - int(counts_P.sum()), budget.largest_group
        seen = yield counts_P
        started = np.flatnonzero(counts_P)
        for to_come in range(rounds, 0, -1):
            size = -(-left // (budget.quantum * to_come)) * budget.quantum
            if not size:
                return
            had_K, deviation_K = counts_P[started], deviation(seen)[started]
            log_t = np.log1p(view.step if clock == "steps" else total - left)

            def value(
                belief: Belief,
                counts_N: ArrayLike,
                had_K: IntArray = had_K,
                deviation_K: FloatArray = deviation_K,
                log_t: float = log_t,
            ) -> FloatArray:
                """The value of each number of further rollouts: the sum of their priorities."""
                more_N = np.asarray(counts_N, dtype=np.int64)
                largest = int(had_K.max()) + int(more_N[-1])
                # A table up to a power of two serves all later calls.
                width_N = half_widths(1 << max(largest, 2).bit_length(), alpha)
                share_N = log_t / np.maximum(np.arange(largest), 1)
                bonus_N = weight * (np.sqrt(share_N) if bonus == "sqrt" else share_N)
                # Entry n: the bonuses of rollouts 1 to n, the n-th given at n - 1.
                bonus_N = np.concatenate([[0.0], np.cumsum(bonus_N)])
                wanted_KN = had_K[:, None] + more_N
                after_KN = np.minimum(wanted_KN, high)
                gain_KN = deviation_K[:, None] * (width_N[had_K][:, None] - width_N[after_KN])
                gain_KN += bonus_N[after_KN] - bonus_N[had_K][:, None]
                # Counts beyond the cap get a loss, so that they are never taken.
                return np.asarray(gain_KN - (wanted_KN - after_KN))

            # The groups are open, so a round's portions have no smallest size.
            extra = replace(view, budget=Budget(size, floor=0, min_group=1, quantum=budget.quantum))
            more_P = np.zeros_like(counts_P)
            more_P[started] = spend(view.belief_P.take(started), value, extra, None)
            counts_P, left = counts_P + more_P, left - size
            seen = yield more_P

    return policy(decide)
