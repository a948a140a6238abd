"""CERO: prompts whose marginal value, after all rollouts of the run, exceeds a price."""

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.estimator import BetaEstimator, spread
from budgetalloc.beliefs.graded_success import rescaled
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import Belief, Beta, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_array, check_integer, check_number
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.marginal_gains import START, gain_per_rollout, spend_gains, token_prices
from budgetalloc.policies.policy import Policy

__all__ = ["cero", "log_slopes", "success_variance"]


def cero(
    *,
    rate: float = 1.0,
    saturation: float = 64.0,
    high: int = 16,
    rho: float = 0.9,
    prior: tuple[float, float] = (1.0, 1.0),
    horizon: int = 500,
    seed: int = 0,
) -> Policy:
    """Prompts whose marginal value, after all their rollouts in the run, exceeds a price (CERO,
    arXiv 2606.05606).

    After z rollouts in the whole run a prompt has the value 1 - exp(-4 lambda q z / R), where q =
    E[p(1-p)] under Beta(a, b). At a visit a <- a0 + rho (a - a0) + successes, and b likewise. For
    graded success q is multiplied by the belief's spread. One price for all prompts is compared
    with the slope of the value (`log_slopes`), both in units of lambda / R, so that they lie in [0,
    1]. After a step the price rises by (wanted - spent) / max(wanted, spent) / sqrt(K), where the
    visited prompts want rollouts, up to `high` each, until their slopes fall to the price.

    The paper may spend more or less than its mean in a step; here a step's budget is spent exactly.
    The price therefore selects the prompts with slope > price, and greedy on the value gives them
    up to `high` rollouts each. The others get only the budget's floor, unless all selected prompts
    are full. The paper also learns a dual variable for each prompt, which here is its slope in
    closed form.

    The step size and the horizon of 500 steps are the paper's. lambda, R, rho, the prior, `high`
    and the scaling of the price's step were not found; they are our defaults. The value is meant
    for a run of known length: set R to about the rollouts that a prompt gets in the whole run. Far
    beyond R, q z is about the same for all prompts, and most rollouts go to solved and hopeless
    prompts.

    Args:
        rate: lambda, positive.
        saturation: R, positive: with lambda = 1, after R rollouts a prompt at p = 1/2 has 63 % of
            its value.
        high: Most rollouts of a prompt in a step, at least 1; the budget's bounds come first.
        rho: Share of the evidence kept at a visit, in [0, 1].
        prior: a0 and b0, positive.
        horizon: K, steps of the run, at least 1.
        seed: Seeds the ties.

    >>> from budgetalloc import Budget
    >>> policy = cero(seed=1)
    >>> policy.observe(["solved"] * 16 + ["half"] * 16, [1] * 16 + [0, 1] * 8)
    >>> policy.allocate(["solved", "half", "new"], Budget(rollouts=24, floor=0))  # slopes 0.19, 0.74 and 0.67
    array([ 0, 14, 10])
    """
    check_number("rate", rate, 0, 1e6, without=(0,))
    check_number("saturation", saturation, 0, 1e9, without=(0,))
    check_integer("high", high, 1)
    check_number("rho", rho, 0, 1)
    check_integer("horizon", horizon, 1)
    if isinstance(prior, str):
        raise InputError(f"prior={prior!r}: give two positive numbers, such as (1.0, 1.0).")
    estimator, speed = BetaEstimator(prior=prior, discount=rho), rate / saturation

    def learn(memory: Memory, visit: Visit) -> None:
        at_V, columns, price = visit.at_V, memory.columns, memory.numbers["price"]
        alpha_V, beta_V, graded_V = (columns[name][at_V] for name in ("alpha", "beta", "graded"))
        q_V = success_variance(Beta(alpha_V, beta_V, spread(alpha_V, beta_V, graded_V)))
        lead_V = log_slopes(q_V, columns["exposure"][at_V], speed) - np.log(max(price, 1e-300))
        wanted = float(np.clip(lead_V / (4 * speed * q_V), 0, high).sum())
        spent = float(visit.scored_V.sum())
        if spent:
            move = (wanted - spent) / max(wanted, spent) / np.sqrt(horizon)
            memory.numbers["price"] = float(np.clip(price + move, 0.0, 1.0))
        columns["exposure"][at_V] += visit.scored_V
        columns["alpha"][at_V] = prior[0] + rho * (alpha_V - prior[0]) + visit.successes_V
        columns["beta"][at_V] = (
            prior[1] + rho * (beta_V - prior[1]) + visit.scored_V - visit.successes_V
        )
        columns["graded"][at_V] = rho * graded_V + visit.graded_V

    def decide(view: View) -> IntArray:
        q_P, price = success_variance(view.belief_P), view.numbers["price"]
        slope_P, speed_P = log_slopes(q_P, view.recall["exposure"], speed), 4 * speed * q_P
        taken_P = slope_P > np.log(max(price, 1e-300)) if price else np.ones(len(q_P), dtype=bool)
        # above any gain of a prompt that is not taken
        first_P = np.where(taken_P, START / 2, 0)[:, None]
        # Only ratios of gains matter. Scaling by the largest keeps them distinct when all prompts
        # are saturated.
        scale_P = START / 4 * np.exp(slope_P - slope_P.max()) / token_prices(view) / speed_P

        def value(belief: Belief, counts_N: ArrayLike) -> FloatArray:
            return np.asarray(
                -np.expm1(-np.outer(speed_P, np.asarray(counts_N))) * scale_P[:, None]
            )

        def gain(counts_N: IntArray) -> FloatArray:
            return first_P + gain_per_rollout(value, view.belief_P, counts_N)

        return spend_gains(gain, np.zeros(len(q_P), dtype=np.int64), high, view)

    start = {"exposure": 0.0, "alpha": prior[0], "beta": prior[1], "graded": 0.0}

    def rescale(memory: Memory, scale: float, shift: float) -> None:
        columns = memory.columns
        successes, failures, columns["graded"] = rescaled(
            columns["alpha"] - prior[0], columns["beta"] - prior[1], columns["graded"], scale, shift
        )
        columns["alpha"], columns["beta"] = prior[0] + successes, prior[1] + failures

    lowest = {"alpha": prior[0], "beta": prior[1]}
    memory = Memory(start, learn, {"price": 0.0}, lowest=lowest, rescale=rescale)
    settings = f"rate={rate}, saturation={saturation}, high={high}, rho={rho}, prior={prior}, horizon={horizon}"
    needs = Needs(candidates="all", baseline="group")
    return Policy(f"cero({settings}, seed={seed})", decide, estimator, seed, needs, memory=memory)


def success_variance(belief: Beta) -> FloatArray:
    """E[p(1-p)] times the spread, shape (P,); positive, so that it has a logarithm."""
    return np.maximum(belief.moment(1, 1) * belief.spread_P, 1e-200)


def log_slopes(q_P: ArrayLike, exposure_P: ArrayLike, speed: float) -> FloatArray:
    """The logarithm of the slope of 1 - exp(-4 speed q z) at z = exposure, in units of speed =
    lambda / R: shape (P,).

    >>> np.exp(log_slopes([0.25, 0.25, 0.05], [0, 64, 64], 1 / 64)).round(4)  # 4 q exp(-4 q z / 64)
    array([1.    , 0.3679, 0.1637])
    """
    share_P = 4 * check_array("q_P", q_P, "one number per prompt")
    exposure = check_array("exposure_P", exposure_P, "the rollouts that each prompt has had")
    if exposure.shape not in ((), (1,), share_P.shape):
        raise InputError(
            f"exposure_P has shape {exposure.shape}, q_P {share_P.shape}: give one number per "
            "prompt."
        )
    return np.asarray(
        np.log(share_P) - check_number("speed", speed, 0, np.inf) * share_P * exposure
    )
