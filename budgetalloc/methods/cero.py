"""CERO: prompts whose marginal value, after all rollouts of the run, exceeds a price."""

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.estimator import BetaEstimator, spread
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.methods.gains import START, saturating_gain, spend_gains, token_prices
from budgetalloc.methods.table import Count, Positive, Share, method, policy
from budgetalloc.policies import Policy, View


@method("across prompts", "paper's formulas")
def cero(
    *,
    rate: Positive = 1.0,
    saturation: Positive = 64.0,
    high: Count = 16,
    rho: Share = 0.9,
    prior: tuple[float, float] = (1.0, 1.0),
    horizon: Count = 500,
    seed: int = 0,
) -> Policy:
    """Gives rollouts to prompts that both succeed and fail, and fewer to those that already had
    many in the run. It is meant for runs that visit a prompt several times.

    Formula: slope of 1 - exp(-4 lambda q z / R) above a learned price, z all rollouts so far, q =
    E[p(1-p)].

    Source: CERO (arXiv 2606.05606). Compared with the paper's formulas. lambda, R, rho and the
    prior are our defaults. Each step's budget is spent exactly.

    Far beyond R rollouts for each prompt, most rollouts go to solved and hopeless prompts. Greedy
    on the value gives the prompts above the price up to `high` rollouts each; the others get only
    the floor, unless all of them are full. After a step the price, in units of lambda / R, rises by
    (wanted - spent) / max(wanted, spent) / sqrt(K), our scaling, where the visited prompts want
    rollouts until their slopes fall to it.

    Args:
        rate, saturation: lambda and R: with lambda = 1, after R rollouts a prompt at p = 1/2 has
            63 % of its value.
        high, rho: Most rollouts of a prompt in a step; share of the evidence kept at a visit.
        horizon: K, steps of the run.

    >>> from budgetalloc import Budget
    >>> policy, ids = cero(seed=1), ["solved", "half", "new"]
    >>> policy.observe(["solved"] * 16 + ["half"] * 16, [1] * 16 + [0, 1] * 8)
    >>> policy.allocate(ids, Budget(rollouts=24, floor=0))  # slopes 0.19, 0.74 and 0.67
    array([ 0, 14, 10])
    """
    estimator = BetaEstimator(prior=prior, discount=rho)
    speed, evidence = rate / saturation, ("alpha", "beta", "graded")

    def log_slopes(belief: Beta, exposure_P: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The logarithm of 4 q exp(-4 speed q z), and 4 speed q."""
        q_P = np.maximum(belief.moment(1, 1) * belief.spread_P, 1e-200)
        return np.log(4 * q_P) - speed * (4 * q_P) * exposure_P, 4 * speed * q_P

    def learn(memory: Memory, seen: ByPrompt) -> None:
        at_P, columns, price = memory.rows(seen.ids_P), memory.columns, memory.numbers["price"]
        alpha_P, beta_P, graded_P = (columns[name][at_P] for name in evidence)
        belief = Beta(alpha_P, beta_P, spread(alpha_P, beta_P, graded_P))
        slope_P, speed_P = log_slopes(belief, columns["exposure"][at_P])
        lead_P = slope_P - np.log(max(price, 1e-300))
        wanted = float(np.clip(lead_P / speed_P, 0, high).sum())
        spent = float(seen.n_P.sum())
        if spent:
            move = (wanted - spent) / max(wanted, spent) / np.sqrt(horizon)
            memory.numbers["price"] = float(np.clip(price + move, 0.0, 1.0))
        failures_P = seen.n_P - seen.successes_P
        columns["exposure"][at_P] += seen.n_P
        columns["alpha"][at_P] = prior[0] + rho * (alpha_P - prior[0]) + seen.successes_P
        columns["beta"][at_P] = prior[1] + rho * (beta_P - prior[1]) + failures_P
        columns["graded"][at_P] = rho * graded_P + seen.graded_P

    def decide(view: View) -> IntArray:
        price = view.numbers["price"]
        slope_P, speed_P = log_slopes(view.belief_P, view.recall["exposure"])
        taken_P = slope_P > np.log(price) if price else np.ones(len(slope_P), dtype=bool)
        # above any gain of a prompt that is not taken
        first_P = np.where(taken_P, START / 2, 0)[:, None]
        # Only ratios of gains matter. Scaling by the largest keeps them distinct when all prompts
        # are saturated.
        scale_P = START / 4 * np.exp(slope_P - slope_P.max()) / token_prices(view) / speed_P
        gain = saturating_gain(speed_P, scale_P, view)
        none_P = np.zeros(len(slope_P), dtype=np.int64)
        return spend_gains(lambda counts_N: first_P + gain(counts_N), none_P, high, view)

    start = {"exposure": 0.0, "alpha": prior[0], "beta": prior[1], "graded": 0.0}
    lowest = {"alpha": prior[0], "beta": prior[1]}
    memory = Memory(start, learn, {"price": 0.0}, lowest=lowest)
    return policy(decide, estimator=estimator, memory=memory, candidates="all")
