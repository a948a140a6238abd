"""Does a policy harm, if nothing else is changed? It is compared with uniform groups at *their* rate and best size.

    python benchmarks/learning/harm.py [--policy adaptive] [RESULTS ...]

Per pool: mean success over the run, success at the end and pass@64 at the end, minus those of uniform groups, paired
over the table's seeds, with 95 % intervals by Student's t. A pool is harmed if one of the three is below uniform beyond
its interval. Without any differences, one of 40 intervals lies below 0 by chance.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mixes import MIXES, SHAPES
from numpy.typing import NDArray
from run import GENERATIONS, best_rates, mean_success, read
from table import HERE, STEPS, TABLE_SEEDS, TUNING_SEEDS, Row, best_uniform, head, row, with_interval
from verdict import paired

from budgetalloc.offline.intervals import interval

MEASURES = "mean", "end", "pass@64"
SHAPES_TUNED = "uniform4", 3e-4  # of the shapes, on tuning seeds


@dataclass(frozen=True)
class Pool:
    """Differences of a policy from uniform groups, shape (3, S), and the uniform groups' own values, in `MEASURES`."""

    name: str
    group: int
    rate: float
    gains: NDArray[np.float64]
    base: NDArray[np.float64]

    @property
    def harmed(self) -> list[str]:
        """The measures that are below uniform's beyond their interval."""
        return [what for what, gain_S in zip(MEASURES, self.gains, strict=True) if interval(gain_S)[1] < 0]


def pools(rows: list[Row], policy: str) -> Iterator[Pool]:
    """Every pool with at least two seeds of the policy and of uniform groups, at the rate of the latter."""
    tuned = best_rates(rows, TUNING_SEEDS)
    for mix in MIXES | SHAPES:
        uniform, rate = SHAPES_TUNED
        if mix in MIXES:
            uniform = best_uniform(rows, mix)
            rate = tuned.get((uniform, mix), rate)
        found: dict[str, dict[int, NDArray[np.float64]]] = {policy: {}, uniform: {}}
        for run in rows:
            at = run["mix"], run["rate"], run["steps"]
            if at == (mix, rate, STEPS) and run["policy"] in found and run["seed"] in TABLE_SEEDS:
                values = [mean_success(run), run["expected"][-1], run.get("pass64", [np.nan])[-1]]
                found[run["policy"]][run["seed"]] = np.array(values)
        own, base = paired(found[policy], found[uniform])
        if len(own) > 1:
            yield Pool(mix, GENERATIONS.get(uniform, 8), rate, (own - base).T, base.T)


def table(compared: Sequence[Pool]) -> str:
    """A line for each pool, and which are harmed."""
    lines = head(
        ("pool", "seeds", "uniform: group, rate", *MEASURES, *(f"{what} minus uniform's" for what in MEASURES))
    )
    for pool in compared:
        cells = [pool.name, str(pool.gains.shape[1]), f"{pool.group}, {pool.rate:g}"]
        cells += [f"{value:.3f}" for value in pool.base.mean(axis=1)]
        lines.append(row([*cells, *map(with_interval, pool.gains)]))
    harmed = [f"`{pool.name}` ({', '.join(pool.harmed)})" for pool in compared if pool.harmed]
    worst = min((interval(gain_S)[1], pool.name) for pool in compared for gain_S in pool.gains)
    of = f"of {len(compared)} pools"
    lines += ["", f"- **Below uniform's**: {f'{len(harmed)} {of}: ' + ', '.join(harmed) if harmed else f'none {of}'}."]
    lines += [f"- **The lowest upper end of an interval**: {worst[0]:+.3f} on `{worst[1]}`."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = [HERE / "results.jsonl", HERE / "table.jsonl"]
    parser.add_argument("results", nargs="*", type=Path, default=default)
    parser.add_argument("--policy", default="adaptive")
    args = parser.parse_args()
    print(table(list(pools([run for path in args.results for run in read(path)], args.policy))))


if __name__ == "__main__":
    main()
