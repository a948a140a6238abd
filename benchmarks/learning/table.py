"""What the tables of learning are made of: curves on one grid, tuned rates, the best uniform, paired differences.

    python benchmarks/learning/table.py [--mix MIX] [RESULTS]    # every policy and rate on the tuning seeds

Success is the exact probability of the right answer on held-out prompts, and "mean" its mean over the rollouts of a
run. Uniform has the group size that is best for the mix on the tuning seeds. Differences are paired by seed, with 95 %
intervals by Student's t. "share" is the share of uniform's rollouts after which a policy's mean curve reaches the end
of uniform's. Its interval holds every share at which the difference between the policy's curve and uniform's end has an
interval that includes 0; its upper end is "never" if that lies beyond the run.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from run import ROLLOUTS, best_rates, mean_success, read

from budgetalloc.offline.intervals import interval, share_reached, stratified_interval

Row = dict[str, Any]  # a run, as `run.py` writes it
Curve = NDArray[np.float64]  # success at each point of the grid
Curves = NDArray[np.float64]  # one row a seed, one column a point
HERE = Path(__file__).parent
STEPS = 150
TABLE_SEEDS = range(100)
TUNING_SEEDS = range(100, 200)


def row(cells: Iterable[object]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def head(names: Iterable[str]) -> list[str]:
    """The first two lines of a Markdown table."""
    titles = tuple(names)
    return [row(titles), "|---" * len(titles) + "|"]


def between(low: float, high: float) -> str:
    """An interval in brackets.

    >>> between(0.1, 0.25), between(0.8, float("inf")), between(float("nan"), float("nan"))
    ('(0.100 to 0.250)', '(0.800 to never)', '(one seed)')
    """
    if np.isnan(low):
        return "(one seed)"
    return "(beyond the run)" if np.isinf(low) else f"({low:.3f} to {f'{high:.3f}' if np.isfinite(high) else 'never'})"


def with_interval(gain_S: NDArray[np.float64]) -> str:
    """The mean of the gains, one per seed, and its interval."""
    return f"{gain_S.mean():+.3f} {between(*interval(gain_S))}"


def share_with_interval(share: tuple[float, float, float]) -> str:
    """A share and its interval; "never" if the end is not reached."""
    middle, *ends = share
    return f"{f'{middle:.2f}' if np.isfinite(middle) else 'never'} {between(*ends)}"


def averaged(gains: list[NDArray[np.float64]]) -> str:
    """The mean over the mixes of the mean over a mix's seeds, with an interval over seeds.

    >>> averaged([np.array([0.1, 0.3]), np.array([0.3, 0.5])])
    '+0.300 (-0.004 to 0.604)'
    """
    return f"{np.mean([gain.mean() for gain in gains]):+.3f} {between(*stratified_interval(gains))}"


def summary(curves: Curves, base: Curves, rollouts: NDArray[np.float64]) -> dict[str, str]:
    """Cells about the `curves` of a policy and `base` of uniform, on the same seeds in the same order."""
    return {
        "final": f"{curves[:, -1].mean():.3f}",
        "mean": f"{curves.mean():.3f}",
        "mean minus uniform's": with_interval((curves - base).mean(axis=1)),
        "to uniform's end": share_with_interval(share_reached(curves, base, rollouts, rollouts[-1])),
    }


def on_grid(run: Row, grid: Curve) -> Curve:
    """Success of a run at these numbers of rollouts, by linear interpolation: policies that resample are measured at
    other points."""
    return np.interp(grid, run["rollouts"], run["expected"])


def of_table(rows: list[Row], mix: str) -> list[Row]:
    """The runs of `STEPS` steps of a mix on the table's seeds, each policy's at its tuned rate; at that of uniform
    groups if it was not tuned on the mix."""
    tuned = best_rates(rows, TUNING_SEEDS)
    usual = tuned.get((best_uniform(rows, mix), mix))
    of_mix = [run for run in rows if run["mix"] == mix and run["seed"] in TABLE_SEEDS and run["steps"] == STEPS]
    return [run for run in of_mix if run["rate"] == tuned.get((run["policy"], mix), usual)]


def collect(rows: list[Row], mix: str) -> tuple[dict[str, dict[int, Curve]], Curve]:
    """The curves of `of_table` by policy and seed, and their grid of generated rollouts."""
    grid = np.arange(0, STEPS + 1, 10) * float(ROLLOUTS)
    curves: dict[str, dict[int, Curve]] = defaultdict(dict)
    for run in of_table(rows, mix):
        curves[run["policy"]][run["seed"]] = on_grid(run, grid)
    return dict(curves), grid


def best_uniform(rows: list[Row], mix: str) -> str:
    """The uniform policy whose group size has the largest mean success on the tuning seeds."""
    tuned, scores = best_rates(rows, TUNING_SEEDS), defaultdict[str, list[float]](list)
    for run in rows:
        name = run["policy"]
        chosen = run["mix"] == mix and run["rate"] == tuned.get((name, mix))
        if chosen and run["seed"] in TUNING_SEEDS and name.startswith("uniform"):
            scores[name].append(mean_success(run))
    return max(scores, key=lambda name: float(np.mean(scores[name])), default="uniform")


def results(runs: dict[int, Row], seeds: list[int]) -> NDArray[np.float64]:
    """Mean success over the rollouts and pass@64 at the end (NaN if not recorded) of these seeds, shape (2, S)."""
    chosen = [runs[seed] for seed in seeds]
    return np.array([[mean_success(run) for run in chosen], [run.get("pass64", [np.nan])[-1] for run in chosen]])


def mean_of(runs: list[Row]) -> float:
    """Mean success over the rollouts and the runs."""
    return float(np.mean([mean_success(run) for run in runs]))


def coverage(runs: list[Row]) -> str:
    """The mean pass@64 at the end of the runs; "unknown" if one of them did not record it."""
    known = all("pass64" in run for run in runs)
    return f"{np.mean([run['pass64'][-1] for run in runs]):.3f}" if known else "unknown"


def tuning(rows: list[Row], mix: str) -> str:
    """The runs of a mix on the tuning seeds: a line for each policy at each rate, the largest mean success first."""
    runs: dict[tuple[str, float], list[Row]] = defaultdict(list)
    for run in sorted(rows, key=lambda run: int(run["seed"])):
        if run["mix"] == mix and run["seed"] in TUNING_SEEDS:
            runs[run["policy"], run["rate"]].append(run)
    lines = head(("policy", "rate", "seeds", "start", "ends", "mean", "pass@64"))
    for (policy, rate), of in sorted(runs.items(), key=lambda item: -mean_of(item[1])):
        seeds, ends = ", ".join(str(run["seed"]) for run in of), ", ".join(f"{run['expected'][-1]:.3f}" for run in of)
        start = np.mean([run["expected"][0] for run in of])
        lines.append(row((policy, f"{rate:g}", seeds, f"{start:.3f}", ends, f"{mean_of(of):.3f}", coverage(of))))
    return "\n".join(lines)


def explored(rows: list[Row]) -> str:
    """Mean success of the variants in `explored.jsonl`, best first, with the standard error over seeds and pass@64.
    Some rows hold means, and some the curves of `run.py`."""
    tried: dict[tuple[str, float, str], list[Row]] = defaultdict(list)
    for run in rows:
        tried[run["mix"], run["rate"], run["policy"]].append(run)
    means = {key: np.array([run.get("mean") or mean_success(run) for run in of]) for key, of in tried.items()}
    lines = head(("mix", "rate", "what", "seeds", "mean +- standard error", "pass@64"))
    for (mix, rate, name), mean_S in sorted(means.items(), key=lambda item: (item[0][0], -float(item[1].mean()))):
        error = f" +- {mean_S.std(ddof=1) / len(mean_S) ** 0.5:.3f}" if len(mean_S) > 1 else ""
        ends = [np.ravel(run.get("pass64"))[-1] for run in tried[mix, rate, name]]
        pass64 = [end for end in ends if end is not None]
        known = f"{np.mean(pass64):.3f}" if len(pass64) == len(mean_S) else "unknown"
        lines.append(row((mix, f"{rate:g}", name, len(mean_S), f"{mean_S.mean():.3f}{error}", known)))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=HERE / "results.jsonl")
    parser.add_argument("--mix", action="append", help="these mixes only")
    args = parser.parse_args()
    rows = read(args.results)
    mixes = args.mix or list(dict.fromkeys(run["mix"] for run in rows))
    for mix in mixes:
        print(f"\n## {mix}, tuning seeds\n\n{tuning(rows, mix)}")
    tried = [run for run in read(HERE / "explored.jsonl") if run["mix"] in mixes]
    print(f"\n## Explored, on tuning seeds\n\n{explored(tried)}")


if __name__ == "__main__":
    main()
