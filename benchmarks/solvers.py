"""The greedy solver against a heap, a dynamic program, HiGHS and OR-Tools: the same values, side by side.

    python benchmarks/solvers.py [--quick] [--json FILE]

Times are medians of runs that take turns, so that a busy moment of the machine affects all solvers. "with values" adds
the time to compute the values of the counts, which all solvers need.
"""

import argparse
import heapq
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import budgetalloc as ba

FLOOR = 2
# Prompts, rollouts, cap, repeats of the fast solvers, repeats of the dynamic program, seconds for each exact solver.
SIZES = [
    (128, 1_024, 64, 21, 3, 10.0),
    (512, 8_192, 128, 21, 3, 60.0),
    (100_000, 800_000, 64, 5, 0, 60.0),
]
MOST_CELLS = 2_000_000  # booleans that OR-Tools' Python model holds within a few gigabytes
EXACT = {"HiGHS": "highs", "OR-Tools": "ortools"}
VALUES = {"mixed_group": ba.mixed_group, "success_gain": ba.success_gain}


def heap_greedy(values_PN: NDArray[np.float64], rollouts: int) -> NDArray[np.int64]:
    """The textbook greedy: one rollout at a time to the prompt whose next one gains most. Exact for concave values."""
    gains = np.diff(values_PN, axis=1)
    counts_P = [FLOOR] * len(gains)
    heap = [(-gain, row) for row, gain in enumerate(gains[:, 0].tolist())]
    heapq.heapify(heap)
    last = gains.shape[1] - 1
    for _ in range(rollouts - FLOOR * len(gains)):
        _, row = heap[0]
        counts_P[row] += 1
        at = counts_P[row] - FLOOR
        if at > last:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (-float(gains[row, at]), row))
    return np.array(counts_P)


def dynamic_program(values_PN: NDArray[np.float64], rollouts: int) -> NDArray[np.int64]:
    """The multiple-choice knapsack, exact for any values: for each prompt and choice one pass over all budgets."""
    prompts, choices = values_PN.shape
    extra = rollouts - FLOOR * prompts
    best = np.full(extra + 1, -np.inf)
    best[0] = 0.0
    choice_PB = np.zeros((prompts, extra + 1), dtype=np.int16)
    for row in range(prompts):
        here = best + values_PN[row, 0]
        for k in range(1, min(choices, extra + 1)):
            candidate = best[:-k] + values_PN[row, k]
            better = candidate > here[k:]
            here[k:][better] = candidate[better]
            choice_PB[row, k:][better] = k
        best = here
    counts_P = np.zeros(prompts, dtype=np.int64)
    left = extra
    for row in range(prompts - 1, -1, -1):
        counts_P[row] = FLOOR + choice_PB[row, left]
        left -= choice_PB[row, left]
    return counts_P


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def compare(size: tuple[int, int, int, int, int, float], value: str, quick: bool) -> list[dict[str, Any]]:
    """One table: a row for each solver."""
    prompts, rollouts, cap, repeats, dp_repeats, limit = size
    rng = np.random.default_rng(0)
    belief = ba.Beta(rng.uniform(0.5, 8.5, prompts), rng.uniform(0.5, 8.5, prompts))
    budget = ba.Budget(rollouts=rollouts, floor=FLOOR, cap=cap)
    solvers: dict[str, tuple[int, Callable[[NDArray[np.float64]], NDArray[np.int64]]]] = {
        "greedy": (repeats, lambda values_PN: ba.greedy(values_PN, None, budget)),
        "heap": (min(repeats, 5), lambda values_PN: heap_greedy(values_PN, rollouts)),
        "dynamic program": (dp_repeats, lambda values_PN: dynamic_program(values_PN, rollouts)),
    }
    priced, spent = [], {name: [] for name in solvers}
    counts = {}
    for turn in range(2 if quick else repeats):
        took, values_PN = seconds(lambda: VALUES[value](belief, budget.grid()))
        priced.append(took)
        for name, (times, solve) in solvers.items():
            if turn < times and not (quick and turn and name != "greedy"):
                took, counts[name] = seconds(lambda solve=solve, table=values_PN: solve(table))
                spent[name].append(took)
    pricing = statistics.median(priced)
    rows = []
    for name in solvers:
        if not spent[name]:
            cells = prompts * (rollouts - FLOOR * prompts)
            steps, gigabytes = cells * values_PN.shape[1], cells * 2 / 1e9
            note = f"skipped: {steps:.0e} steps, and {gigabytes:.0f} GB to trace the choices back"
            rows.append({"solver": name, "note": note})
            continue
        assert counts[name].sum() == rollouts
        total = float(values_PN[np.arange(prompts), counts[name] - FLOOR].sum())
        took = statistics.median(spent[name])
        ratio = statistics.median(s / g for s, g in zip(spent[name], spent["greedy"], strict=False))
        rows.append({"solver": name, "value": total, "seconds": took, "with values": took + pricing, "times": ratio})
    for name in EXACT:
        rows.append(
            certified(name, values_PN, budget, 5.0 if quick else limit, statistics.median(spent["greedy"]), pricing)
        )
    best = next(r["value"] for r in rows if r["solver"] == "greedy")
    exact = [r["value"] for r in rows if "value" in r and r["solver"] not in EXACT]
    assert np.allclose(exact, best, rtol=1e-9), exact
    return rows


def certified(
    name: str, values_PN: NDArray[np.float64], budget: ba.Budget, limit: float, greedy: float, pricing: float
) -> dict[str, Any]:
    """An exact solver, once; over the first columns of too wide a table, which must hold the counts of `greedy`."""
    columns = min(values_PN.shape[1], max(MOST_CELLS // len(values_PN), 1))
    note = "" if columns == values_PN.shape[1] else f"counts up to {columns + FLOOR - 1} only; "
    took, best = seconds(lambda: ba.certify(values_PN[:, :columns], None, budget, time_limit=limit, by=EXACT[name]))
    if best.bound == np.inf:  # the counts are those of `greedy`
        return {"solver": name, "note": f"{note}proved nothing within {limit:g} s"}
    state = "optimal" if best.optimal else f"cut short after {limit:g} s"
    note += f"{state}, bound {best.bound:.6f}, gap {best.bound / best.value - 1:.1e}"
    row = {"solver": name, "value": best.value, "bound": best.bound, "seconds": took}
    return {**row, "with values": took + pricing, "times": took / greedy, "note": note}


def show(rows: list[dict[str, Any]]) -> None:
    print(f"{'solver':<16}{'value':>16}{'seconds':>12}{'with values':>13}{'times greedy':>14}  note")
    for row in rows:
        if "value" not in row:
            print(f"{row['solver']:<16}{'':55}  {row['note']}")
            continue
        print(
            f"{row['solver']:<16}{row['value']:>16.6f}{row['seconds']:>12.4f}{row['with values']:>13.4f}"
            f"{row['times']:>14.1f}  {row.get('note', '')}".rstrip()
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write the tables to this file")
    parser.add_argument(
        "--quick", action="store_true", help="few repeats, 5 s for each exact solver, not the largest size"
    )
    options = parser.parse_args()
    tables = []
    for size in SIZES[:2] if options.quick else SIZES:
        for value in VALUES if size[0] < 100_000 else ["mixed_group"]:
            prompts, rollouts, cap = size[:3]
            print(f"\n{prompts:,} prompts, {rollouts:,} rollouts, cap {cap}, value {value}", flush=True)
            rows = compare(size, value, options.quick)
            show(rows)
            tables.append({"prompts": prompts, "rollouts": rollouts, "cap": cap, "value": value, "rows": rows})
    if options.json:
        with open(options.json, "w") as file:
            json.dump(tables, file, indent=1)


if __name__ == "__main__":
    main()
