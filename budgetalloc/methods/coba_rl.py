"""CoBA-RL: a value whose weight follows the model's failure rate."""

import math
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.graded_success import rescaled
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_array, check_integer, check_number
from budgetalloc.methods.marginal_gains import (
    START,
    gain_per_rollout,
    smallest,
    spend_gains,
    token_prices,
)
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy

__all__ = ["capability", "coba_rl"]


def coba_rl(
    *,
    kappa: float = 11.0,
    low: int = 2,
    high: int = 128,
    window: int = 3,
    tau: tuple[float, float] = (3.0, 12.0),
    seed: int = 0,
) -> Policy:
    """Shares out a batch by (1 - exp(-n p(1-p) / tau)) times a Beta density of p that follows the
    model's failures.

    CoBA-RL (arXiv 2602.03048): the density is Beta(a, kappa - a) with a = 1 + (kappa - 2) F
    (`capability`), where F is the mean failure rate of the prompts of the last `window` steps. A
    weak model therefore trains on prompts that it can solve, a strong one on prompts that it
    cannot. Every prompt gets `low` rollouts; greedy spends the rest, up to `high` each. p is the
    success rate over a prompt's last `window` visits, kept within [0.01, 0.99]; 1/2 for a prompt
    never seen. For graded success, the variance over these visits replaces p(1-p).

    kappa, `low`, `high`, F and the value are the paper's. tau, the window, p and the rest of a are
    the released code's: tau goes from `tau[0]` to `tau[1]` as the variance of the batch's p goes
    from 0 to 1/6, and the window is 3, or 1 in its launch script. The code spends only 60 to 80 %
    of what `low` leaves by value, on prompts with p from 0.05 to 0.99, and the rest in proportion
    to 1 - p on those below. Here all of it is spent by value.

    Args:
        kappa: Sum of the density's parameters, at least 2; 2 is a uniform density.
        low, high: Fewest and most rollouts of a prompt, 1 <= low <= high; the budget's bounds come
            first.
        window: Visits of p and steps of F, 1 to 1,000.
        tau: Two positive numbers, the first not above the second.
        seed: Seeds the ties.

    >>> from budgetalloc import Budget
    >>> policy = coba_rl()
    >>> policy.observe([p for p in (0, 1, 2, 3) for _ in range(8)], [0] * 8 + [1, 0, 0, 0] * 2 + [1, 0] * 4 + [1] * 8)
    >>> policy.allocate([0, 1, 2, 3], Budget(rollouts=32))  # F = 9/16: 1/2 weighs 7 times as much as 1/4
    array([ 2,  2, 26,  2])
    """
    check_number("kappa", kappa, 2, 1e6)
    check_integer("low", low, 1)
    check_integer("high", high, low)
    check_integer("window", window, 1, 1000)
    if not (isinstance(tau, tuple) and len(tau) == 2):
        raise InputError(f"tau={tau!r}: give two positive numbers, such as (3.0, 12.0).")
    check_number("tau", tau[0], 0, 1e6, without=(0,))
    check_number("tau", tau[1], tau[0], 1e6)
    # The latest visit first. "graded" is the sum of u(1-u) over successes u: p(1-p) minus their
    # variance, times n.
    visits = [[f"{name}_{k}" for k in range(window)] for name in ("successes", "scored", "graded")]
    steps = [f"failure_{k}" for k in range(window)]

    def learn(memory: Memory, visit: Visit) -> None:
        for names, latest_V in zip(
            visits, (visit.successes_V, visit.scored_V, visit.graded_V), strict=True
        ):
            for newer, older in reversed(list(pairwise(names))):
                memory.columns[older][visit.at_V] = memory.columns[newer][visit.at_V]
            memory.columns[names[0]][visit.at_V] = latest_V
        if len(visit.ids_V):
            for newer, older in reversed(list(pairwise(steps))):
                memory.numbers[older] = memory.numbers[newer]
            memory.numbers[steps[0]] = float(1 - visit.mean_V.mean())

    def rescale(memory: Memory, scale: float, shift: float) -> None:
        columns = memory.columns
        for passed, scored, graded in zip(*visits, strict=True):
            failures = columns[scored] - columns[passed]
            columns[passed], _, columns[graded] = rescaled(
                columns[passed], failures, columns[graded], scale, shift
            )
        for name in steps:
            if (failure := memory.numbers[name]) >= 0:
                memory.numbers[name] = min(max(1 - (scale * (1 - failure) + shift), 0.0), 1.0)

    def decide(view: View) -> IntArray:
        successes_P, scored_P, graded_P = (
            np.sum([view.recall[name] for name in names], axis=0) for names in visits
        )
        rate_P = np.where(scored_P > 0, successes_P / np.maximum(scored_P, 1), 0.5).clip(0.01, 0.99)
        failures = [view.numbers[name] for name in steps if view.numbers[name] >= 0]
        weight_P = capability(rate_P, float(np.mean(failures)) if failures else 1.0, kappa)
        spread = tau[0] + (tau[1] - tau[0]) * min(6 * float(rate_P.var()), 1.0)
        variance_P = np.maximum(rate_P * (1 - rate_P) - graded_P / np.maximum(scored_P, 1), 0.0)
        speed_P, price_P = variance_P / spread, token_prices(view)
        # Only ratios of gains matter. The first rollout's largest possible gain stays below START.
        scale_P = weight_P / max(float(weight_P.max()), 1e-300) / price_P * START / 2

        def value(belief: Belief, counts_N: ArrayLike) -> FloatArray:
            return np.asarray(
                -np.expm1(-np.outer(speed_P, np.asarray(counts_N))) * scale_P[:, None]
            )

        start_P = np.full(len(rate_P), smallest(low, view.budget))
        return spend_gains(
            lambda counts_N: gain_per_rollout(value, view.belief_P, counts_N), start_P, high, view
        )

    name = (
        f"coba_rl(kappa={kappa}, low={low}, high={high}, window={window}, tau={tau}, seed={seed})"
    )
    columns = [column for names in visits for column in names]
    memory = Memory(dict.fromkeys(columns, 0.0), learn, dict.fromkeys(steps, -1.0), rescale=rescale)
    return Policy(name, decide, BetaEstimator(), seed, Needs(baseline="group"), memory=memory)


def capability(p_P: ArrayLike, failure: float, kappa: float) -> FloatArray:
    """CoBA-RL's weight of a prompt: the density of Beta(a, kappa - a) at p, shape (P,).

    a = 1 + (kappa - 2) F, where F is the failure rate and, up to 1/2, 1 / (1 + exp(-10 (F - 1/2)))
    instead.

    >>> capability([0.25, 0.5, 0.75], 0.5, 4.0)  # a = 2: Beta(2, 2), which is 6 p (1-p)
    array([1.125, 1.5  , 1.125])
    >>> capability([0.1, 0.9], 1.0, 11.0).round(4)  # Beta(10, 1), which is 10 p^9
    array([0.    , 3.8742])
    """
    p_P = check_array("p_P", p_P, "one success rate per prompt")
    check_number("failure", failure, 0, 1)
    check_number("kappa", kappa, 2, 1e6)
    share = failure if failure > 0.5 else 1 / (1 + math.exp(-10 * (failure - 0.5)))
    a = 1 + (kappa - 2) * share
    b = kappa - a
    constant = math.lgamma(kappa) - math.lgamma(a) - math.lgamma(b)
    return np.asarray(np.exp(constant + (a - 1) * np.log(p_P) + (b - 1) * np.log1p(-p_P)))
