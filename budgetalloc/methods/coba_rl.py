"""CoBA-RL: a value whose weight follows the model's failure rate."""

import math
from typing import Annotated

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_number
from budgetalloc.methods.gains import START, saturating_gain, smallest, spend_gains, token_prices
from budgetalloc.methods.rules import latest_first
from budgetalloc.methods.table import Between, Count, method, policy
from budgetalloc.policies import Policy, View


def capability(p_P: FloatArray, failure: float, kappa: float) -> FloatArray:
    """CoBA-RL's weight of a prompt: the density of Beta(a, kappa - a) at p, shape (P,).

    a = 1 + (kappa - 2) F, where F is the failure rate and, up to 1/2, 1 / (1 + exp(-10 (F - 1/2)))
    instead.

    >>> capability(np.array([0.25, 0.5, 0.75]), 0.5, 4.0)  # a = 2: Beta(2, 2), which is 6 p (1-p)
    array([1.125, 1.5  , 1.125])
    """
    share = failure if failure > 0.5 else 1 / (1 + math.exp(-10 * (failure - 0.5)))
    a = 1 + (kappa - 2) * share
    b = kappa - a
    constant = math.lgamma(kappa) - math.lgamma(a) - math.lgamma(b)
    return np.asarray(np.exp(constant + (a - 1) * np.log(p_P) + (b - 1) * np.log1p(-p_P)))


@method("across prompts", "released code")
def coba_rl(
    *,
    kappa: Annotated[float, Between(2, 1e6)] = 11.0,
    low: Count = 2,
    high: Annotated[int, Between("low")] = 128,
    window: Annotated[int, Between(1, 1000)] = 3,
    tau: tuple[float, float] = (3.0, 12.0),
    seed: int = 0,
) -> Policy:
    """Gives most rollouts to easy prompts while the model fails often, and to hard prompts once it
    succeeds often. A weak model trains on prompts that it can solve, a strong one on prompts that
    it cannot.

    Formula: greedy on (1 - exp(-n p(1-p) / tau)) Beta(p; a, kappa - a), a = 1 + (kappa - 2) F, F
    the failure rate.

    Source: CoBA-RL (arXiv 2602.03048). Compared with the released code, which gives tau, the window
    and p. Its 20 to 40 % for hard prompts are left out.

    Every prompt gets `low` rollouts; greedy spends the rest. p is within [0.01, 0.99]; 1/2 for a
    prompt never seen. tau goes from `tau[0]` to `tau[1]` as the variance of the batch's p from 0.05
    to 0.99 goes from 0 to 1/6. For graded success, the variance over the window's visits replaces
    p(1-p).

    Args:
        kappa: Sum of the density's parameters; 2 is a uniform density.
        low, high: Fewest and most rollouts of a prompt; the budget's bounds come first.
        window: Visits of p and steps of F; 1 in the code's launch script.

    >>> from budgetalloc import Budget
    >>> policy, ids_R = coba_rl(), [p for p in (0, 1, 2, 3) for _ in range(8)]
    >>> policy.observe(ids_R, [0] * 8 + [1, 0, 0, 0] * 2 + [1, 0] * 4 + [1] * 8)
    >>> policy.allocate([0, 1, 2, 3], Budget(rollouts=32))  # F = 9/16: 1/2 weighs 7 times 1/4
    array([ 2,  2, 26,  2])
    """
    if not (isinstance(tau, tuple) and len(tau) == 2):
        raise InputError("tau", "give two positive numbers, such as (3.0, 12.0).", tau)
    check_number("tau", tau[0], 0, 1e6, without=(0,))
    check_number("tau", tau[1], tau[0], 1e6)
    # The latest visit first. "graded" is the sum of u(1-u) over successes u: p(1-p) minus their
    # variance, times n.
    visits, steps = ("successes", "scored", "graded"), [f"failure_{k}" for k in range(window)]

    def learn(memory: Memory, seen: ByPrompt) -> None:
        columns, numbers, at_P = memory.columns, memory.numbers, memory.rows(seen.ids_P)
        latest = (seen.successes_P, seen.n_P, seen.graded_P)
        for name, latest_P in zip(visits, latest, strict=True):
            columns[name][at_P] = latest_first(columns[name][at_P], latest_P)
        if len(seen.ids_P):
            failures = [float(1 - seen.mean_P.mean()), *(numbers[name] for name in steps)]
            numbers.update(zip(steps, failures, strict=False))

    def decide(view: View) -> IntArray:
        successes_P, scored_P, graded_P = (view.recall[name].sum(axis=1) for name in visits)
        rate_P = np.where(scored_P > 0, successes_P / np.maximum(scored_P, 1), 0.5)
        neither_P = (rate_P >= 0.05) & (rate_P <= 0.99)
        away = float(rate_P[neither_P].var()) if neither_P.any() else 0.0
        rate_P = rate_P.clip(0.01, 0.99)
        failures = [view.numbers[name] for name in steps if view.numbers[name] >= 0]
        weight_P = capability(rate_P, float(np.mean(failures)) if failures else 1.0, kappa)
        spread = tau[0] + (tau[1] - tau[0]) * min(6 * away, 1.0)
        variance_P = np.maximum(rate_P * (1 - rate_P) - graded_P / np.maximum(scored_P, 1), 0.0)
        # Only ratios of gains matter. The first rollout's largest possible gain stays below START.
        scale_P = weight_P / max(float(weight_P.max()), 1e-300) / token_prices(view) * START / 2
        start_P = np.full(len(rate_P), smallest(low, view.budget))
        gain = saturating_gain(variance_P / spread, scale_P, view)
        return spend_gains(gain, start_P, high, view)

    columns = dict.fromkeys(visits, [0.0] * window)
    memory = Memory(columns, learn, dict.fromkeys(steps, -1.0))
    return policy(decide, memory=memory)
