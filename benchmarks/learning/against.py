"""Success against rollouts, tokens and seconds: where rollouts differ in length, equal rollouts are not equal costs.

    python benchmarks/learning/against.py --mix chain --policy sampled --policy sampled_tokens [RESULTS]

For each of the three, the mean held-out success over a run up to what the cheapest of the compared runs spent, by the
trapezoid rule, and in brackets the difference to the first policy: the mean and each seed's. Tokens are those of the
completions. Seconds are of the clock, and mean little if the machine had other work. Only seeds of the table and
numbers of steps that all policies have are compared, each policy at its tuned rate, or if it was not tuned at the one
that it was run with.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from mixes import MIXES
from run import RIVALS, best_rates, read
from table import TABLE_SEEDS, TUNING_SEEDS

COSTS = ("rollouts", "tokens", "seconds")
Row = dict[str, Any]


def mean_up_to(run: Row, cost: str, most: float) -> float:
    """The mean of the success over a cost from the start of the run to `most`.

    >>> run = {"tokens": [0, 100, 200], "expected": [0.2, 0.4, 0.4]}
    >>> round(mean_up_to(run, "tokens", 150), 4)  # 0.3 over 100 tokens, then 0.4 over 50
    0.3333
    """
    spent, success = np.array(run[cost], dtype=float), np.array(run["expected"])
    first = float(spent[0])
    ends = np.append(spent[spent < most], most)
    return float(np.trapezoid(np.interp(ends, spent, success), ends) / (most - first))


def compared(rows: list[Row], mix: str, policies: list[str]) -> str:
    """The table, one row for each policy."""
    tuned = best_rates(rows, TUNING_SEEDS)
    runs: dict[str, dict[tuple[int, int], Row]] = {name: {} for name in policies}
    for row in rows:
        name, rate = row["policy"], row["rate"]
        if name in runs and (row["mix"], rate) == (mix, tuned.get((name, mix), rate)) and row["seed"] in TABLE_SEEDS:
            runs[name][row["seed"], row["steps"]] = row
    shared = sorted(set.intersection(*(set(each) for each in runs.values())))
    if not shared:
        raise SystemExit(f"No seed of {mix} that all of {', '.join(policies)} were run with.")
    steps = ", ".join(sorted({str(at[1]) for at in shared}))
    lines = [
        f"{mix}: {len(shared)} seeds ({', '.join(str(at[0]) for at in shared)}), {steps} steps",
        "",
        "| policy | rate | end | tokens a rollout | over rollouts | over tokens | over seconds |",
        "|---" * 7 + "|",
    ]
    for name in policies:
        mine = [runs[name][at] for at in shared]
        cells = [name, f"{mine[0]['rate']:g}", f"{np.mean([run['expected'][-1] for run in mine]):.3f}"]
        cells.append(f"{np.mean([run['tokens'][-1] / run['rollouts'][-1] for run in mine]):.2f}")
        for cost in COSTS:
            own, base = [], []
            for at in shared:
                most = min(runs[each][at][cost][-1] for each in policies)
                own.append(mean_up_to(runs[name][at], cost, most))
                base.append(mean_up_to(runs[policies[0]][at], cost, most))
            gains = np.subtract(own, base)
            less = "" if name == policies[0] else f" ({gains.mean():+.3f}: {', '.join(f'{x:+.3f}' for x in gains)})"
            cells.append(f"{np.mean(own):.3f}{less}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=Path(__file__).with_name("results.jsonl"))
    parser.add_argument("--mix", choices=MIXES, default="chain")
    parser.add_argument("--policy", action="append", choices=RIVALS, required=True, help="the first is the control")
    args = parser.parse_args()
    print(compared(read(args.results), args.mix, args.policy))


if __name__ == "__main__":
    main()
