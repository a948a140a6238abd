"""Tables and curves of a results file, mix by mix: success against everything generated, with intervals over seeds.

    python benchmarks/learning/table.py [RESULTS]
    python benchmarks/learning/table.py --out FOLDER      # and draws the curves there
    python benchmarks/learning/table.py --tuning [--mix MIX] [RESULTS]    # the runs on the tuning seeds, at every rate

The second table of a mix has the other measures, of the runs that recorded them.

"final" and "mean" are held-out success at the end and over the run. Success is the exact probability of the right
answer, without sampling noise. "to uniform's end" is the share of all generated rollouts after which a policy's mean
curve reaches the final value of uniform's mean curve. Uniform has the group size that is best for the mix on the tuning
seeds. Intervals are 95 % by Student's t over seeds. The interval of a share holds every share at which the difference
between the policy's curve and uniform's end has an interval that includes 0. Its upper end is "never" if that lies
beyond the run.
"""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measures import lines
from numpy.typing import NDArray
from run import ROLLOUTS, best_rates, mean_success, read

from budgetalloc.offline.intervals import interval, share_reached, stratified_interval

Curve = NDArray[np.float64]  # success at each point of the grid
Curves = NDArray[np.float64]  # one row a seed, one column a point
STEPS = 150
TABLE_SEEDS = range(100)
TUNING_SEEDS = range(100, 200)
BEST = "the best uniform"
HEAD = ("policy", "rate", "seeds", "tokens a rollout", "final", "mean", "mean less uniform's", "to uniform's end")
DRAWN = 7
"""Policies in a picture: this many of the best, and the best uniform."""


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


def summary(curves: Curves, base: Curves, rollouts: NDArray[np.float64]) -> dict[str, str]:
    """One row of the table: `curves` of a policy and `base` of uniform, on the same seeds in the same order."""
    return {
        "final": f"{curves[:, -1].mean():.3f}",
        "mean": f"{curves.mean():.3f}",
        "mean less uniform's": with_interval((curves - base).mean(axis=1)),
        "to uniform's end": share_with_interval(share_reached(curves, base, rollouts, rollouts[-1])),
    }


def current(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs of policies that can still be run. Names that end in `_0.1` are runs of older code, for notebook 05.

    >>> current([{"policy": "adaptive"}, {"policy": "adaptive_0.1"}])
    [{'policy': 'adaptive'}]
    """
    return [row for row in rows if not row["policy"].endswith("_0.1")]


def collect(rows: list[dict[str, Any]], mix: str) -> tuple[dict[str, dict[int, Curve]], Curve]:
    """Curves of the table's seeds at each policy's tuned rate, by policy and seed, on one grid of generated rollouts.

    Curves are interpolated linearly, because policies that resample are measured at other points.
    """
    grid = np.arange(0, STEPS + 1, 10) * float(ROLLOUTS)
    curves: dict[str, dict[int, Curve]] = {}
    for row in of_table(rows, mix):
        curves.setdefault(row["policy"], {})[row["seed"]] = on_grid(row, grid)
    return curves, grid


def on_grid(row: dict[str, Any], grid: Curve) -> Curve:
    """Success of a run at these numbers of rollouts."""
    points = row["curve"]
    return np.interp(grid, [p["rollouts"] for p in points], [p["expected"] for p in points])


def of_table(rows: list[dict[str, Any]], mix: str) -> list[dict[str, Any]]:
    """The runs of `STEPS` steps of a mix on the table's seeds, each policy's at its tuned rate."""
    tuned = best_rates(rows, TUNING_SEEDS)
    of_mix = [row for row in rows if row["mix"] == mix and row["seed"] in TABLE_SEEDS and row["steps"] == STEPS]
    return [row for row in of_mix if row["rate"] == tuned.get((row["policy"], mix))]


def best_uniform(rows: list[dict[str, Any]], mix: str, names: Iterable[str]) -> str:
    """The uniform policy among these whose group size has the largest mean success on the tuning seeds."""
    tuned, scores = best_rates(rows, TUNING_SEEDS), dict[str, list[float]]()
    of_mix = [row for row in rows if row["mix"] == mix and row["seed"] in TUNING_SEEDS]
    for row in of_mix:
        name = row["policy"]
        if name in names and name.startswith("uniform") and row["rate"] == tuned[name, mix]:
            scores.setdefault(name, []).append(mean_success(row["curve"]))
    return max(scores, key=lambda name: float(np.mean(scores[name])), default="uniform")


def tokens_a_rollout(rows: list[dict[str, Any]], name: str, mix: str) -> float:
    """Completion tokens per rollout over a policy's runs."""
    ends = [row["curve"][-1] for row in rows if row["policy"] == name and row["mix"] == mix]
    return float(sum(end["tokens"] for end in ends) / sum(end["rollouts"] for end in ends))


def over_mixes(
    tables: dict[str, dict[str, dict[int, Curve]]], name: str, other: str, bases: dict[str, str] | None = None
) -> str:
    """Mean success of one policy less another's, averaged over mixes, with an interval; paired over seeds.

    `BEST` is uniform with the best group size on the mix, named by `bases`.
    """
    gains = []
    for mix, curves in tables.items():
        first, second = (curves[bases[mix] if bases and which == BEST else which] for which in (name, other))
        seeds = sorted(set(first) & set(second))
        gains.append(np.array([(first[seed] - second[seed]).mean() for seed in seeds]))
    return averaged(gains)


def averaged(gains: list[NDArray[np.float64]]) -> str:
    """The mean over the mixes of the mean over a mix's seeds, with an interval over seeds.

    >>> averaged([np.array([0.1, 0.3]), np.array([0.3, 0.5])])
    '+0.300 (-0.004 to 0.604)'
    """
    return f"{np.mean([gain.mean() for gain in gains]):+.3f} {between(*stratified_interval(gains))}"


def explored(rows: list[dict[str, Any]]) -> str:
    """Mean success of the variants in `explored.jsonl`, best first, with the standard error over seeds and pass@64 at
    the end."""
    tried: dict[tuple[str, float, str], list[dict[str, Any]]] = {}
    for row in rows:
        tried.setdefault((row["mix"], row["rate"], row["policy"]), []).append(row)
    lines = ["| mix | rate | what | seeds | mean +- standard error | pass@64 |", "|---|---|---|---|---|---|"]
    for (mix, rate, name), of in sorted(tried.items(), key=lambda item: (item[0][0], -mean_of(item[1]))):
        means = [mean_success(row["curve"]) for row in of]
        error = f" +- {np.std(means, ddof=1) / len(of) ** 0.5:.3f}" if len(of) > 1 else ""
        lines.append(f"| {mix} | {rate:g} | {name} | {len(of)} | {np.mean(means):.3f}{error} | {coverage(of)} |")
    return "\n".join(lines)


Runs = dict[tuple[str, float], list[dict[str, Any]]]  # by policy and rate


def tuned_on(rows: list[dict[str, Any]], mix: str) -> Runs:
    """The runs of a mix on the tuning seeds, by policy and rate; the largest mean success first."""
    runs: Runs = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        if row["mix"] == mix and row["seed"] in TUNING_SEEDS:
            runs.setdefault((row["policy"], row["rate"]), []).append(row)
    return dict(sorted(runs.items(), key=lambda item: -mean_of(item[1])))


def mean_of(runs: list[dict[str, Any]]) -> float:
    """Mean success over the rollouts and the runs."""
    return float(np.mean([mean_success(row["curve"]) for row in runs]))


def coverage(runs: list[dict[str, Any]]) -> str:
    """The mean pass@64 at the end of the runs; "unknown" if one of them did not record it."""
    known = all("pass64" in row["curve"][-1] for row in runs)
    return f"{np.mean([row['curve'][-1]['pass64'] for row in runs]):.3f}" if known else "unknown"


def tuning(rows: list[dict[str, Any]], mix: str) -> str:
    """The runs of a mix on the tuning seeds: two tables, a line for each policy at each rate."""
    runs = {f"{policy} at {rate:g}": of for (policy, rate), of in tuned_on(rows, mix).items()}
    table = ["| policy | seeds | start | ends | mean |", "|---|---|---|---|---|"]
    for name, of in runs.items():
        start = np.mean([row["curve"][0]["expected"] for row in of])
        ends = ", ".join(f"{row['curve'][-1]['expected']:.3f}" for row in of)
        seeds = ", ".join(str(row["seed"]) for row in of)
        table.append(f"| {name} | {seeds} | {start:.3f} | {ends} | {mean_of(of):.3f} |")
    return "\n".join([*table, "", *lines(runs)])


def against_uniform(rows: list[dict[str, Any]], name: str = "adaptive") -> str:
    """A policy on the tuning seeds of every mix, at each of its rates, compared with uniform at its best group size and
    rate; pass@64 is at the end of the run."""
    measured = ("runs", "mean", "pass@64")
    head = ("mix", "start", "uniform's group, rate", *measured, f"{name}'s rate", *measured)
    table = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for mix in dict.fromkeys(row["mix"] for row in rows):
        runs = tuned_on(rows, mix)
        uniform = next((key for key in runs if key[0].startswith("uniform")), None)
        own = [key for key in runs if key[0] == name]
        if uniform is None or not own:
            continue
        start = f"{runs[uniform][0]['curve'][0]['expected']:.3f}"
        group = f"{uniform[0].removeprefix('uniform') or 8}, {uniform[1]:g}"
        for key in own:
            cells = [f"{key[1]:g}", *_short(runs[key])]
            table.append("| " + " | ".join([mix, start, group, *_short(runs[uniform]), *cells]) + " |")
    return "\n".join(table)


def _short(runs: list[dict[str, Any]]) -> list[str]:
    return [str(len(runs)), f"{mean_of(runs):.3f}", coverage(runs)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=Path(__file__).with_name("results.jsonl"))
    parser.add_argument("--out", type=Path, help="draw the curves of each mix into this folder")
    parser.add_argument("--explored", type=Path, default=Path(__file__).with_name("explored.jsonl"))
    parser.add_argument("--tuning", action="store_true", help="the runs on the tuning seeds, nothing else")
    parser.add_argument("--mix", action="append", help="with --tuning: these mixes only")
    args = parser.parse_args()
    rows = current(read(args.results))
    if args.tuning:
        print(against_uniform(rows))
        for mix in args.mix or dict.fromkeys(row["mix"] for row in rows):
            print(f"\n## {mix}, tuning seeds\n\n{tuning(rows, mix)}")
        return
    for heading, text in sections(rows, read(args.explored)):
        print(f"\n{heading}\n\n{text}")
    if args.out is None:
        return
    args.out.mkdir(parents=True, exist_ok=True)
    for mix in dict.fromkeys(row["mix"] for row in rows):
        if best_first := ordered(rows, mix):
            base = best_uniform(rows, mix, best_first)
            drawn_first = dict([*list(best_first.items())[:DRAWN], (base, best_first[base])])
            draw(drawn_first, collect(rows, mix)[1], mix, args.out / f"{mix}.png")


def ordered(rows: list[dict[str, Any]], mix: str) -> dict[str, dict[int, Curve]]:
    """The curves of a mix by policy and seed, the largest mean success first; empty if uniform has none."""
    curves, _ = collect(rows, mix)
    if not any(name.startswith("uniform") for name in curves):
        return {}
    return dict(sorted(curves.items(), key=lambda item: -float(np.mean(list(item[1].values())))))


def sections(rows: list[dict[str, Any]], tried: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Headings, and the tables below each: one for each mix, all mixes together, and what was tried."""
    tuned = best_rates(rows, TUNING_SEEDS)
    tables, bases = {}, {}
    for mix in dict.fromkeys(row["mix"] for row in rows):
        if not (curves := ordered(rows, mix)):
            continue
        tables[mix], bases[mix], rollouts = curves, best_uniform(rows, mix, curves), collect(rows, mix)[1]
        text = [f"The best uniform: {bases[mix]}.", ""]
        text += [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
        best = curves[bases[mix]]
        for name, by_seed in curves.items():
            seeds = sorted(set(by_seed) & set(best))
            own, base = (np.array([which[seed] for seed in seeds]) for which in (by_seed, best))
            cells = [f"{tuned[name, mix]:g}", str(len(seeds)), f"{tokens_a_rollout(rows, name, mix):.2f}"]
            text.append(f"| {name} | " + " | ".join([*cells, *summary(own, base, rollouts).values()]) + " |")
        runs = of_table(rows, mix)
        text += ["", *lines({name: [row for row in runs if row["policy"] == name] for name in curves})]
        yield f"## {mix}", "\n".join(text).rstrip()
    text = ["| policy | mixes | mean less uniform's | adaptive's mean less its |", "|---|---|---|---|"]
    for name in dict.fromkeys(name for mix in tables for name in collect(rows, mix)[0]):
        ran = {mix: curves for mix, curves in tables.items() if name in curves and "adaptive" in curves}
        if ran:
            gain, ahead = over_mixes(ran, name, BEST, bases), over_mixes(ran, "adaptive", name)
            text.append(f"| {name} | {len(ran)} | {gain} | {ahead} |")
    yield "## Over the mixes", "\n".join(text)
    if tried:
        yield "## Explored, on tuning seeds", explored(tried)


def draw(curves: dict[str, dict[int, Curve]], rollouts: Curve, mix: str, path: Path) -> None:
    """Mean curves with 95 % intervals over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for name, by_seed in curves.items():
        table = np.array(list(by_seed.values()))
        middle = table.mean(axis=0)
        (line,) = axis.plot(rollouts / 1000, middle, label=f"{name} ({len(table)} seeds)")
        if len(table) > 1:
            low, high = np.array([interval(values) for values in table.T]).T
            axis.fill_between(rollouts / 1000, low, high, color=line.get_color(), alpha=0.15)
    axis.set(xlabel="rollouts generated (thousands)", ylabel="held-out success", title=mix)
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
