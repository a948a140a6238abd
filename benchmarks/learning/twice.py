"""What twice the best learning rate does to a policy and to uniform with its best group, on the tuning seeds.

    python benchmarks/learning/twice.py [--policy sampled]
    python benchmarks/learning/run.py --out benchmarks/learning/twice.jsonl --rate 6e-4 --mix u_shape \
        --policy sampled --policy uniform2 --seed 100 --seed 101

The rate is the lowest with runs of both that is at least twice the policy's own. The runs at such rates are in a file
of their own, `twice.jsonl`: they check a rate that the table has, and do not choose it.
"""

import argparse
from collections import defaultdict

from run import GENERATIONS, best_rates, read
from table import HERE, TUNING_SEEDS, Row, best_uniform, head, mean_of, row

HEAD = (
    *("mix", "rate", "uniform: group, best rate", "mean", "mean at this rate", "ends at this rate"),
    *("`{}()`: best rate", "mean", "mean at this rate", "ends at this rate"),
)


def twice(rows: list[Row], checks: list[Row], name: str) -> str:
    """A row a mix: mean success over the run at the best rate and at the higher one, and each seed's success at the end
    of the latter."""
    tuned = best_rates(rows, TUNING_SEEDS)
    runs: dict[tuple[str, str, float], dict[int, Row]] = defaultdict(dict)
    for run in (*rows, *checks):
        if run["seed"] in TUNING_SEEDS:
            runs[run["policy"], run["mix"], run["rate"]][run["seed"]] = run
    lines = head(title.format(name) for title in HEAD)
    for mix in dict.fromkeys(run["mix"] for run in rows if run["policy"] == name):
        uniform = best_uniform(rows, mix)
        both = [{rate for policy, on, rate in runs if (policy, on) == (which, mix)} for which in (name, uniform)]
        rates = [rate for rate in set.intersection(*both) if rate > 1.99 * tuned[name, mix]]  # rates are rounded
        if not rates:
            continue
        cells = [mix, f"{min(rates):g}"]
        for policy in (uniform, name):
            at_best, at_this = runs[policy, mix, tuned[policy, mix]], runs[policy, mix, min(rates)]
            group = f"{GENERATIONS.get(policy, 8)}, " if policy == uniform else ""
            cells.append(f"{group}{tuned[policy, mix]:g}")
            cells += [f"{mean_of(list(of.values())):.3f}" for of in (at_best, at_this)]
            cells.append(", ".join(f"{at_this[seed]['expected'][-1]:.3f}" for seed in sorted(at_this)))
        lines.append(row(cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="sampled")
    print(twice(read(HERE / "results.jsonl"), read(HERE / "twice.jsonl"), parser.parse_args().policy))


if __name__ == "__main__":
    main()
