"""HiGHS against CP-SAT, on each form of budget that they solve: who proves the optimum, and in what time?

    python benchmarks/exact_solvers.py [--prompts 128] [--limit 30] [--repeats 3] [--json FILE]

The forms: rollouts alone (concave values); rollouts and tokens; groups of 4 or none (values that are not concave);
quotas by domain; quotas and tokens. The solvers take turns, and seconds are of processor time, so that a busy machine
affects all alike (the limit of a search is in seconds of the clock). "times HiGHS" is the median of the ratios within
turns; where a search was cut short, its gap between value and bound is what counts. `greedy` is shown where it serves
the form, and a min-cost flow (OR-Tools' SimpleMinCostFlow) under quotas.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import budgetalloc as ba

DOMAINS = ["math", "code", "chat", "logic"]


def forms(prompts: int) -> dict[str, tuple[ba.Budget, bool]]:
    """The budgets by name, and whether `greedy` serves them."""
    rollouts, cap = 16 * prompts, 128
    tokens = 1500.0 * rollouts  # of costs from 200 to 4,000: too few for the counts that rollouts alone would buy
    quotas = {"math": (rollouts // 3, rollouts // 2), "code": (0, rollouts // 8), "chat": (rollouts // 8,) * 2}
    return {
        "rollouts": (ba.Budget(rollouts, cap=cap), True),
        "rollouts and tokens": (ba.Budget(rollouts, tokens=tokens, cap=cap), False),
        "groups of 4 or none": (ba.Budget(rollouts // 8, floor=0, min_group=4, cap=cap), True),
        "quotas": (ba.Budget(rollouts, cap=cap, quotas=quotas), True),
        "quotas and tokens": (ba.Budget(rollouts, tokens=tokens, cap=cap, quotas=quotas), False),
    }


def flow(values_PN: NDArray[np.float64], budget: ba.Budget, domains_P: list[str]) -> NDArray[np.int64]:
    """Counts by a min-cost flow from the step over domains and prompts; exact for concave values, in units of 1e-9."""
    from ortools.graph.python import min_cost_flow

    prompts, steps = len(values_PN), values_PN.shape[1] - 1
    gains_PB = -np.rint(np.diff(values_PN, axis=1) * 1e9).astype(np.int64)
    place = {name: 2 + prompts + at for at, name in enumerate(DOMAINS)}
    solver, total = min_cost_flow.SimpleMinCostFlow(), int(budget.rollouts or 0) - budget.fewest * prompts
    into_P = np.array([place[name] for name in domains_P])
    solver.add_arcs_with_capacity_and_unit_cost(
        into_P, np.arange(2, 2 + prompts), np.full(prompts, steps), np.zeros(prompts, dtype=np.int64)
    )
    arcs = solver.add_arcs_with_capacity_and_unit_cost(
        np.repeat(np.arange(2, 2 + prompts), steps), np.ones(prompts * steps, dtype=np.int64),
        np.ones(prompts * steps, dtype=np.int64), gains_PB.ravel(),
    )  # fmt: skip
    for name in DOMAINS:
        base = budget.fewest * domains_P.count(name)
        fewest, most = (max(x - base, 0) for x in (budget.quotas or {}).get(name, (0, total)))
        solver.add_arc_with_capacity_and_unit_cost(0, place[name], fewest, -(10**11))  # taken before all others
        solver.add_arc_with_capacity_and_unit_cost(0, place[name], most - fewest, 0)
    solver.set_nodes_supplies(np.array([0, 1]), np.array([total, -total]))
    assert solver.solve() == solver.OPTIMAL
    return budget.fewest + solver.flows(arcs).reshape(prompts, steps).sum(axis=1)


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    try:
        result = call()
    except ba.BudgetError:
        result = None
    return time.process_time() - start, result


def compare(name: str, prompts: int, limit: float, repeats: int) -> list[dict[str, Any]]:
    """A row for each solver."""
    budget, greedily = forms(prompts)[name]
    rng = np.random.default_rng(0)
    belief = ba.Beta(rng.uniform(0.5, 8.5, prompts), rng.uniform(0.5, 8.5, prompts))
    costs_P = np.round(rng.uniform(200, 4000, prompts)) if budget.tokens else None
    domains_P = [DOMAINS[at] for at in rng.integers(0, len(DOMAINS), prompts)]
    values_PN = ba.mixed_group(belief, budget.grid())
    more: dict[str, Any] = {"domains_P": domains_P} if budget.quotas else {}
    calls: dict[str, Callable[[], Any]] = {}
    if greedily:
        calls["greedy"] = lambda: ba.greedy(values_PN, None, budget, **more)
    if name == "quotas":
        calls["min-cost flow"] = lambda: flow(values_PN, budget, domains_P)
    calls["HiGHS"] = lambda: ba.certify(values_PN, costs_P, budget, **more, time_limit=limit)
    calls["CP-SAT"] = lambda: ba.certify(values_PN, costs_P, budget, **more, time_limit=limit, by="ortools")
    ba.certify(values_PN[:8, :4], None, ba.Budget(24))  # imports
    took: dict[str, list[float]] = {solver: [] for solver in calls}
    answers = {}
    for _ in range(repeats):
        for solver, call in calls.items():
            if solver not in answers or getattr(answers[solver], "optimal", answers[solver] is not None):
                spent, answers[solver] = seconds(call)
                took[solver].append(spent)
    rows = []
    for solver, answer in answers.items():
        row = {"form": name, "solver": solver, "seconds": statistics.median(took[solver])}
        if isinstance(answer, ba.Solution):
            gap = answer.bound / answer.value - 1
            row |= {"value": answer.value, "bound": answer.bound, "gap": gap, "proved": answer.optimal}
        elif answer is not None:
            row["value"] = float(values_PN[np.arange(prompts), np.searchsorted(budget.grid(), answer)].sum())
        row["times"] = statistics.median(a / b for a, b in zip(took[solver], took["HiGHS"], strict=False))
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=128, help="a step has 16 rollouts for each")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for one search")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--forms", nargs="*", choices=forms(8), default=list(forms(8)))
    parser.add_argument("--json", metavar="FILE", help="also write the table to this file")
    options = parser.parse_args()
    print(f"{options.prompts:,} prompts, {16 * options.prompts:,} rollouts, cap 128, limit {options.limit:g} s")
    print(f"{'form':<22}{'solver':<15}{'value':>13}{'seconds':>10}{'times HiGHS':>13}{'gap':>10}  proved")
    table = []
    for name in options.forms:
        for row in compare(name, options.prompts, options.limit, options.repeats):
            gap = f"{row['gap']:.1e}" if "gap" in row else ""
            proved = {True: "yes", False: "no", None: ""}[row.get("proved")]
            value = f"{row['value']:.6f}" if "value" in row else "no counts"
            line = f"{name:<22}{row['solver']:<15}{value:>13}{row['seconds']:>10.4f}{row['times']:>13.4g}"
            print(f"{line}{gap:>10}  {proved}".rstrip(), flush=True)
            table.append(row)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()
