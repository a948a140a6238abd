"""What twice the best learning rate does to a policy and to uniform with its best group, on the tuning seeds.

    python benchmarks/learning/twice.py [--policy adaptive]
    python benchmarks/learning/run.py --out benchmarks/learning/twice.jsonl --rate 6e-4 --mix u_shape \
        --policy adaptive --policy uniform2 --seed 100 --seed 101

The rate is the lowest with runs of both that is at least twice the policy's own. The runs at such rates are in a file
of their own, `twice.jsonl`: they check a rate that the table has, and do not choose it.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from run import GENERATIONS, best_rates, mean_success, read
from table import TUNING_SEEDS, best_uniform

HEAD = (
    *("mix", "rate", "uniform: group, best rate", "mean", "mean at this rate", "ends at this rate"),
    *("`{}()`: best rate", "mean", "mean at this rate", "ends at this rate"),
)


def twice(rows: list[dict[str, Any]], checks: list[dict[str, Any]], name: str) -> str:
    """A row a mix: mean success over the run at the best rate and at the higher one, and each seed's success at the end
    of the latter."""
    tuned = best_rates(rows, TUNING_SEEDS)
    runs: dict[tuple[str, str, float], dict[int, list[dict[str, Any]]]] = {}
    for row in (*rows, *checks):
        if row["seed"] in TUNING_SEEDS:
            runs.setdefault((row["policy"], row["mix"], row["rate"]), {})[row["seed"]] = row["curve"]
    lines = [f"| {' | '.join(HEAD)} |".format(name), "|---" * len(HEAD) + "|"]
    for mix in dict.fromkeys(row["mix"] for row in rows if row["policy"] == name):
        uniform = best_uniform(rows, mix, {row["policy"] for row in rows})
        both = [{rate for policy, on, rate in runs if (policy, on) == (which, mix)} for which in (name, uniform)]
        rates = [rate for rate in set.intersection(*both) if rate > 1.99 * tuned[name, mix]]  # rates are rounded
        if not rates:
            continue
        cells = [mix, f"{min(rates):g}"]
        for policy in (uniform, name):
            at_best, at_this = runs[policy, mix, tuned[policy, mix]], runs[policy, mix, min(rates)]
            group = f"{GENERATIONS.get(policy, 8)}, " if policy == uniform else ""
            cells.append(f"{group}{tuned[policy, mix]:g}")
            cells += [f"{np.mean([mean_success(curve) for curve in run.values()]):.3f}" for run in (at_best, at_this)]
            cells.append(", ".join(f"{at_this[seed][-1]['expected']:.3f}" for seed in sorted(at_this)))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="adaptive")
    here = Path(__file__).parent
    print(twice(read(here / "results.jsonl"), read(here / "twice.jsonl"), parser.parse_args().policy))


if __name__ == "__main__":
    main()
