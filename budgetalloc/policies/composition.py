"""Policies composed of a belief, a value and a solver."""

from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.posterior import Belief, FloatArray, Point
from budgetalloc.budget import Budget, IntArray, rollouts_alone
from budgetalloc.errors import (
    BudgetError,
    InputError,
    check_choice,
    check_function,
    check_number,
    keywords,
    nearest_name,
    short_repr,
)
from budgetalloc.policies.interface import Needs, View, function_name
from budgetalloc.policies.policy import Policy
from budgetalloc.solvers.exact import highs, ortools, priced
from budgetalloc.solvers.greedy import greedy
from budgetalloc.solvers.interface import Solver
from budgetalloc.solvers.proportional import proportional
from budgetalloc.values import Value, mixed_group, success_gain

_VALUES = ("ba.mixed_group", "ba.pass_at_n", "ba.variance", "ba.success_gain")
_SOLVERS = ("ba.greedy", "ba.highs", "ba.ortools")
_FIRST_LIMIT = 64  # largest count of the first table; few prompts get more
_FIRST_CELLS = 1_600_000  # most values of the first table
_EXACT_CELLS = 4_000  # most values for which HiGHS decides by default
_MOST_CELLS = 200_000_000  # most values of any table, 8 bytes each


@keywords
def uniform(
    *,
    prior: tuple[float, float] = (0.5, 0.5),
    discount: float = 1.0,
    idle: float = 1.0,
    seed: int = 0,
) -> Policy:
    """Gives every prompt the same count, as plain GRPO does. Attached to a trainer, this policy
    does not change the training.

    The remainder goes to prompts redrawn at each step. The estimator only provides metrics.

    Args:
        prior, discount, idle: As in `BetaEstimator`.
        seed: Seeds the ties.

    >>> from budgetalloc import Budget
    >>> uniform().allocate(["a", "b", "c", "d"], Budget(rollouts=32))
    array([8, 8, 8, 8])
    """

    def decide(view: View) -> IntArray:
        if rollouts_alone(view.budget) is None:
            return spend(view.belief_P, _fair_share(view), view, None)
        return proportional(np.ones(len(view.belief_P)), None, view.budget)

    estimator = BetaEstimator(prior=prior, discount=discount, idle=idle)
    name = f"uniform({_settings(estimator)}, seed={seed})"
    return Policy(name, decide, estimator, seed, Needs(keep_batch=True))


@keywords
def knapsack(
    *,
    value: Value = mixed_group,
    belief: Literal["posterior", "mean"] = "posterior",
    solver: Solver | None = None,
    time_limit: float | None = None,
    prior: tuple[float, float] = (0.5, 0.5),
    discount: float = 0.9,
    idle: float = 1.0,
    seed: int = 0,
) -> Policy:
    """Spends the budget where the value expected under the belief is largest. Use it to move
    rollouts between the prompts of a batch.

    Over a pool use `thompson`: this rule does not explore, and over a large pool keeps choosing
    prompts that it has seen.

    Args:
        value: The value of n rollouts of a prompt, such as `mixed_group`.
        belief: "posterior", the expectation under the Beta; "mean", the value at its mean.
        solver: None is `greedy`. If tokens are limited together with rollouts or quotas, it is
            `highs`, or for rollouts and more than 4,000 values a price on tokens, which is nearly
            exact (`solvers.lagrangian`).
        time_limit: Seconds for a decision of `ba.highs` or `ba.ortools`; by default 10.
        prior, discount, idle: As in `BetaEstimator`.
        seed: Seeds the ties.

    >>> from budgetalloc import Budget
    >>> policy = knapsack(seed=1)
    >>> policy.observe(["solved"] * 8 + ["hopeless"] * 8 + ["half"] * 8,
    ...     [1] * 8 + [0] * 8 + [0, 1] * 4)
    >>> policy.allocate(["solved", "hopeless", "half", "new"], Budget(rollouts=32))
    array([8, 8, 7, 9])
    """
    check_choice("belief", belief, ("posterior", "mean"))
    _check_rule(value, solver)
    if time_limit is not None:
        if solver not in (highs, ortools):
            advice = "only solver=ba.highs and solver=ba.ortools search for a time."
            raise InputError("time_limit", advice, time_limit)
        check_number("time_limit", time_limit, 0, 1e6, without=(0,))
        solver = partial(solver, time_limit=time_limit)

    def decide(view: View) -> IntArray:
        believed: Belief = view.belief_P
        if belief == "mean":
            believed = Point(believed.mean, believed.spread_P)
        return spend(believed, per_cost(value, view.priced), view, solver)

    estimator = BetaEstimator(prior=prior, discount=discount, idle=idle)
    name = (
        f"knapsack(value={_name(value)}, belief={belief!r}, {_of_solver(solver)}"
        f"{_settings(estimator)}, seed={seed})"
    )
    return Policy(name, decide, estimator, seed, Needs(baseline="group", costs=True))


@keywords
def thompson(
    *,
    value: Value = success_gain,
    solver: Solver | None = None,
    prior: tuple[float, float] = (0.5, 0.5),
    discount: float = 0.7,
    idle: float = 0.999,
    seed: int = 0,
) -> Policy:
    """Draws every prompt's rate from its belief, then spends the budget as if the draws were the
    true rates. Use it over a pool: prompts with little evidence sometimes get a draw of high value.

    VADE (arXiv 2511.18902) and MoPPS (2507.04632) select prompts by Thompson sampling; here the
    draws also determine the counts.

    Args:
        value, solver, prior, discount, idle: As in `knapsack`.
        seed: Seeds the draws and the ties.

    >>> from budgetalloc import Budget
    >>> policy = thompson(seed=0)
    >>> policy.allocate(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    array([5, 0, 6, 5])
    """
    _check_rule(value, solver)

    def decide(view: View) -> IntArray:
        return spend(view.belief_P.sample(view.rng), per_cost(value, view.priced), view, solver)

    estimator = BetaEstimator(prior=prior, discount=discount, idle=idle)
    name = (
        f"thompson(value={_name(value)}, {_of_solver(solver)}{_settings(estimator)}, seed={seed})"
    )
    needs = Needs(candidates="all", baseline="group", costs=True)
    return Policy(name, decide, estimator, seed, needs)


def spend(belief: Belief, value: Value, view: View, solver: Solver | None) -> IntArray:
    """Counts of largest total value. The table of values doubles until all counts are below its
    width: for concave values they are then optimal without the limit too."""
    budget = view.budget
    large = len(belief) * budget.counts > _EXACT_CELLS
    solve = solver or greedy
    if solver is None and budget.tokens is not None:
        if budget.rollouts is not None and large:
            solve = priced
        elif budget.rollouts is not None or budget.quotas is not None:
            solve = highs
    domains = {"domains_P": view.domains_P} if budget.quotas is not None else {}
    limit = budget.largest_group
    if solve is greedy and budget.rollouts is not None:
        first = min(_FIRST_LIMIT, _FIRST_CELLS // len(belief))
        limit = max(first, 2 * budget.smallest_group, -(-2 * budget.rollouts // len(belief)))
    while True:
        columns = min(limit, budget.largest_group) // budget.quantum
        if len(belief) * columns > _MOST_CELLS:
            raise BudgetError(
                f"{budget}: pricing {columns} counts of {len(belief)} prompts needs "
                f"{len(belief) * columns * 8 / 1e9:.0f} GB. Set cap=, such as cap={_FIRST_LIMIT}."
            )
        counts_N = budget.grid(limit)
        costs_P = view.costs_P if budget.tokens is not None else None
        values_PN = value(belief, counts_N)
        try:
            counts_P = solve(values_PN, costs_P, budget, **domains)
        except BudgetError:
            if not domains or limit >= budget.largest_group:
                raise
            limit *= 2  # a domain's quota may need larger groups than the table holds
            continue
        if not isinstance(counts_P, np.ndarray) or (
            counts_P.shape != (len(belief),) or counts_P.dtype.kind not in "iu"
        ):
            raise InputError(
                f"solver={_name(solve)}",
                f"returned {short_repr(counts_P)}: return an integer count for each prompt.",
            )
        if limit >= budget.largest_group or counts_P.max() < counts_N[-1]:
            return counts_P
        limit *= 2


def _fair_share(view: View) -> Value:
    """A value whose gains per token are equal for all prompts and fall with n, so that counts
    differ by at most one."""
    two_resources = view.budget.rollouts is not None
    price_P = np.ones(len(view.belief_P)) if two_resources or view.costs_P is None else view.costs_P

    def value(belief: Belief, counts_N: ArrayLike) -> FloatArray:
        counts = np.asarray(counts_N, dtype=np.float64)
        return np.outer(price_P, counts * (2 * view.budget.largest_group - counts))

    return value


def _check_rule(value: Any, solver: Any) -> None:
    for name, given, known in (("value", value, _VALUES), ("solver", solver, _SOLVERS)):
        if isinstance(given, str):
            near = nearest_name(given, known)
            raise InputError(name, f"give the function, one of {', '.join(known)}{near}", given)
    check_function("value", value, "(belief, counts_N) -> values_PN, such as ba.mixed_group")
    if solver is not None:
        check_function(
            "solver", solver, "(values_PN, costs_P, budget) -> counts_P, such as ba.greedy"
        )


def _name(value: Value | Solver) -> str:
    return function_name(value)


def _of_solver(solver: Solver | None) -> str:
    """The solver in a policy's name, if there is one."""
    return "" if solver is None else f"solver={_name(solver)}, "


def _settings(estimator: BetaEstimator) -> str:
    return f"prior={estimator.prior!r}, discount={estimator.discount}, idle={estimator.idle}"


def least_groups(prompt_costs_P: FloatArray, costs_P: FloatArray, budget: Budget) -> IntArray:
    """The smallest group worth its prompt: sqrt(cost of the prompt / cost of a rollout), as a power
    of two, shape (P,).

    With a variance b between prompts and w within a prompt, groups of sqrt(prompt / rollout * w /
    b) have the least variance for their cost (Cochran, Sampling Techniques, 1977, sec. 10.6). We
    assume w = b.

    Args:
        prompt_costs_P: Cost of each prompt, once a group, at least 0, shape (P,).
        costs_P: Cost of one rollout, positive, shape (P,).
        budget: Bounds the group sizes.

    >>> least_groups(np.array([0, 400, 4000, 40000.0]), np.full(4, 400.0),
    ...     Budget(256, floor=0, min_group=1, cap=64))
    array([1, 1, 4, 8])
    """
    ideal_P = 0.5 * np.log2(np.maximum(prompt_costs_P / costs_P, 1.0))
    most = 2.0 ** np.floor(np.log2(budget.largest_group))
    least_P = np.minimum(2.0 ** np.rint(ideal_P), most).astype(np.int64)
    return np.asarray(
        np.maximum(-(-least_P // budget.quantum) * budget.quantum, budget.smallest_group)
    )


def per_cost(value: Value, costs: tuple[FloatArray, FloatArray] | None) -> Value:
    """The value of n rollouts with each gain divided by its cost, in units of the mean cost of a
    rollout.

    Up to the group with the largest value per cost, every rollout gains that group's value per
    cost. A further rollout gains its own value per its own cost. Concave values stay concave.

    Args:
        value: The value of n rollouts.
        costs: Cost of each prompt once a group, and of one rollout, shape (P,) each. With None,
            `value` is returned.

    >>> from budgetalloc import Point, mixed_group
    >>> both = per_cost(mixed_group, (np.array([0.0, 900.0]), np.array([100.0, 100.0])))
    >>> both(Point([0.5, 0.5]), [0, 2, 3, 4, 5]).round(3)  # the second prompt is long: groups of 4
    array([[0.   , 0.5  , 0.75 , 0.875, 0.938],
           [0.   , 0.135, 0.202, 0.269, 0.332]])
    """
    if costs is None:
        return value
    once_P1, each_P1 = (x[:, None] / costs[1].mean() for x in costs)
    # Prompts of equal value receive whole groups one at a time: half a group would pay for the
    # whole prompt.
    before_P1 = 1 + 1e-6 * np.linspace(1.0, 0.0, len(each_P1))[:, None]

    def priced(belief: Belief, counts_N: ArrayLike) -> FloatArray:
        counts_N, values_PN = np.asarray(counts_N, dtype=np.float64), value(belief, counts_N)
        own_PN = values_PN / each_P1
        # every prompt gets a group, or prompts cost nothing
        if counts_N[0] or len(counts_N) == 1 or not once_P1.any():
            return np.asarray(own_PN)
        rate_PN = values_PN[:, 1:] / (once_P1 + each_P1 * counts_N[1:])
        best_P1 = 1 + np.argmax(rate_PN, axis=1, keepdims=True)
        rate_P1 = np.take_along_axis(rate_PN, best_P1 - 1, axis=1) * before_P1
        group_P1 = counts_N[best_P1]
        further_PN = own_PN - np.take_along_axis(own_PN, best_P1, axis=1)
        further_PN = np.where(counts_N > group_P1, further_PN, 0.0)
        shared_PN = rate_P1 * np.minimum(counts_N, group_P1) + further_PN
        return np.asarray(np.where(once_P1 > 0, shared_PN, own_PN))

    return priced


def top(scores_P: FloatArray, group: int) -> Value:
    """The value with which a solver gives `group` rollouts each to the prompts with the highest
    (positive) scores.

    Each rollout up to `group` adds the score, further rollouts nothing: a surplus is spread after
    all groups are full.

    >>> from budgetalloc import Budget, Point, greedy
    >>> budget, belief = Budget(rollouts=10, floor=0, cap=8), Point([0.5, 0.5, 0.5])
    >>> greedy(top(np.array([0.1, 0.3, 0.2]), 4)(belief, budget.grid()), None, budget)
    array([2, 4, 4])
    """

    def value(belief: Belief, counts_N: ArrayLike) -> FloatArray:
        return np.outer(scores_P, np.minimum(np.asarray(counts_N, dtype=np.float64), group))

    return value
