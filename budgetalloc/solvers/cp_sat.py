"""CP-SAT of OR-Tools, an extra: budgetalloc[ortools]."""

import math
import time

import numpy as np

from budgetalloc.errors import imported
from budgetalloc.solvers.problem import Answer, Problem

__all__ = ["by_cp_sat"]

# CP-SAT needs integers: values are rounded to multiples of 1 / _UNITS of the largest
_UNITS = 10**9


def by_cp_sat(problem: Problem) -> Answer:
    """CP-SAT's answer, by one worker. Raises `UnsupportedError` if OR-Tools is not installed."""
    instead = " Or use HiGHS, which is always installed: solver=ba.highs, certify(by='highs')."
    cp_model = imported("ortools.sat.python.cp_model", "CP-SAT", "ortools", instead)
    values_PN, counts_N, budget = problem.values_PN, problem.counts_N, problem.budget
    end = time.monotonic() + problem.time_limit
    model, pick_PN = cp_model.CpModel(), []
    for _ in values_PN:
        row = [model.new_bool_var("") for _ in counts_N]
        model.add_exactly_one(row)
        pick_PN.append(row)
        if time.monotonic() > end:  # a large model takes longer than the search may
            return None, math.inf, False
    rollouts_P = [cp_model.LinearExpr.weighted_sum(row, counts_N.tolist()) for row in pick_PN]
    if budget.rollouts is not None:
        model.add(sum(rollouts_P) == int(budget.rollouts))
    if problem.prices is not None:
        price_P, limit = problem.prices
        model.add(cp_model.LinearExpr.weighted_sum(rollouts_P, price_P) <= limit)
    for at_P, fewest, most in problem.quotas:
        model.add_linear_constraint(sum(rollouts_P[at] for at in at_P.tolist()), fewest, most)
    if problem.max_prompts is not None:
        model.add(sum(row[0].negated() for row in pick_PN) <= problem.max_prompts)

    unit = float(np.abs(values_PN).max()) / _UNITS or 1.0
    scaled_PN = np.rint(values_PN / unit).astype(np.int64)
    worth_P = [
        cp_model.LinearExpr.weighted_sum(row, v.tolist())
        for row, v in zip(pick_PN, scaled_PN, strict=True)
    ]
    model.maximize(sum(worth_P))
    for row, start in zip(pick_PN, problem.start_P.tolist(), strict=True):
        for at, x in enumerate(row):
            model.add_hint(x, at == start)
    search = cp_model.CpSolver()
    search.parameters.max_time_in_seconds = max(end - time.monotonic(), 0.0)
    search.parameters.num_workers = 1
    search.parameters.random_seed = problem.seed
    search.parameters.relative_gap_limit = 1e-9  # the rounding of values to integers
    status = search.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, math.inf, status == cp_model.INFEASIBLE
    chosen_P = np.array([[search.boolean_value(x) for x in row] for row in pick_PN]).argmax(axis=1)
    # each value was rounded by at most half a unit
    bound = (search.best_objective_bound + 0.5 * len(values_PN)) * unit
    return chosen_P, bound, status == cp_model.OPTIMAL
