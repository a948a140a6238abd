"""Does the default hold what it promises? Beside uniform at its best, on the table's seeds, mix by mix.

    python benchmarks/learning/verdict.py [--policy adaptive] [RESULTS]
    python benchmarks/learning/verdict.py --rivals        # beside the published methods that are run on all mixes
    python benchmarks/learning/verdict.py --rivals --mix u_shape --mix hard_once      # on these at least

Uniform has the group size and the rate that are best for the mix on the tuning seeds. All differences are paired over
seeds, at each policy's tuned rate; intervals are 95 % bootstraps over seeds. "share" is the share of uniform's rollouts
after which the policy's mean curve reaches the end of uniform's; a policy that never does counts as 1 in the geometric
mean, which so errs in the policy's favour: the mixes where that is so are counted beside it.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mixes import MIXES
from numpy.typing import NDArray
from run import GENERATIONS, best_rates, read
from table import (
    TUNING_SEEDS,
    averaged,
    best_uniform,
    collect,
    difference,
    interval,
    of_table,
    share_with_interval,
    shares,
    with_interval,
)

_COVERAGE = "pass64"
MEASURES = "mean", "pass@64"
HEAD = (
    *("mix", "seeds", "start", "uniform: group, rate", "mean", "pass@64", "`{}()`: rate", "mean", "pass@64"),
    *("mean less uniform's", "pass@64 less uniform's", "share"),
)
CHECKED = ("mean may be lower", "pass@64 is lower", "never reached", "fewer than two seeds")
MEAN_MAY_FALL, PASS64_MAY_FALL = 0.01, 0.01


def paired(own: dict[int, Any], base: dict[int, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The values of both on the seeds that both have, in the same order."""
    seeds = sorted(own.keys() & base.keys())
    return np.array([own[seed] for seed in seeds]), np.array([base[seed] for seed in seeds])


def verdict(rows: list[dict[str, Any]], name: str) -> str:
    """The table by rising gain, the geometric mean of the shares, and the mixes on which a promise is not kept.

    The mean may be lower where the interval of the difference goes below -0.01; pass@64 is where its mean does.
    """
    tuned = best_rates(rows, TUNING_SEEDS)
    lines: list[tuple[float, str]] = []
    all_shares: list[list[float]] = []
    lower_mean, lower_coverage, never, few = fails = [list[str]() for _ in CHECKED]
    for mix in dict.fromkeys(row["mix"] for row in rows):
        curves, grid = collect(rows, mix)
        uniform = best_uniform(rows, mix, {row["policy"] for row in rows})
        own, base = paired(curves.get(name, {}), curves.get(uniform, {}))
        if len(own) < 2:
            few.append(mix)
            continue
        gains = difference(own.mean(axis=1) - base.mean(axis=1))
        coverage, pass64 = "not recorded", ["not recorded"] * 2
        both = np.stack(paired(values_of(rows, mix, name), values_of(rows, mix, uniform)))[:, :, 1]
        own_ends, base_ends = both[:, np.isfinite(both).all(axis=0)]
        if len(own_ends) > 1:
            rises = difference(own_ends - base_ends)
            coverage = with_interval(rises)
            pass64 = [f"{base_ends.mean():.3f}", f"{own_ends.mean():.3f}"]
            if rises[0] < -PASS64_MAY_FALL:
                lower_coverage.append(mix)
        share = shares(own, base, grid)
        if float(np.percentile(gains[1:], 2.5, method="nearest")) <= -MEAN_MAY_FALL:
            lower_mean.append(mix)
        if not np.isfinite(share[0]):
            never.append(mix)
        all_shares.append([min(x, 1.0) for x in share])
        cells = [mix, str(len(own)), f"{own[:, 0].mean():.3f}"]
        cells += [f"{GENERATIONS.get(uniform, 8)}, {tuned[uniform, mix]:g}", f"{base.mean():.3f}", pass64[0]]
        cells += [f"{tuned[name, mix]:g}", f"{own.mean():.3f}", pass64[1]]
        cells += [with_interval(gains), coverage, share_with_interval(share)]
        lines.append((gains[0], f"| {' | '.join(cells)} |"))
    geometric = np.exp(np.log(np.array(all_shares)).mean(axis=0))
    text = [f"| {' | '.join(HEAD)} |".format(name), "|---" * len(HEAD) + "|", *(line for _, line in sorted(lines))]
    text += ["", f"Geometric mean of the shares: {geometric[0]:.2f} ({interval(list(geometric[1:]))})."]
    for what, mixes in zip(CHECKED, fails, strict=True):
        text.append(f"{what}: {', '.join(mixes) or 'on no mix'}.")
    return "\n".join(text)


def rivals(rows: list[dict[str, Any]], name: str, mixes: Sequence[str] = ()) -> str:
    """The policy beside each published method with runs on all of these mixes, else on all that the policy has: mean
    success over the run and pass@64 at the end, less the method's, over the mixes and where they are least; paired over
    seeds."""
    of_name = of_mixes(rows, name)
    own = {mix: of_name[mix] for mix in mixes or of_name}
    head = "method", "runs", *(f"{what}{where}" for what in MEASURES for where in (" less its", ", least"))
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for rival in sorted({row["policy"] for row in rows}):
        its = of_mixes(rows, rival)
        if rival == name or rival.startswith("uniform") or not own.keys() <= its.keys():
            continue
        cells = [rival, str(sum(len(own[mix].keys() & its[mix].keys()) for mix in own))]
        for at in range(len(MEASURES)):
            pairs = {mix: paired(own[mix], its[mix]) for mix in own}
            gains = {mix: (mine - other)[:, at] for mix, (mine, other) in pairs.items()}
            gains = {mix: gain[np.isfinite(gain)] for mix, gain in gains.items()}
            gains = {mix: gain for mix, gain in gains.items() if len(gain)}
            if not gains:
                cells += ["not recorded"] * 2
                continue
            least = min(gains, key=lambda mix: float(gains[mix].mean()))
            few = "" if len(gains) == len(own) else f", {len(gains)} mixes"
            cells += [averaged(list(gains.values())) + few, f"{gains[least].mean():+.3f} on {least}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def of_mixes(rows: list[dict[str, Any]], name: str) -> dict[str, dict[int, NDArray[np.float64]]]:
    """`values_of` each mix on which the policy has runs on the table's seeds."""
    found = {
        mix: values_of(rows, mix, name) for mix in dict.fromkeys(row["mix"] for row in rows if row["policy"] == name)
    }
    return {mix: values for mix, values in found.items() if values}


def values_of(rows: list[dict[str, Any]], mix: str, name: str) -> dict[int, NDArray[np.float64]]:
    """Mean success over a run and pass@64 at its end (NaN if not recorded), by seed of the table."""
    curve = collect(rows, mix)[0].get(name, {})
    ends = {row["seed"]: row["curve"][-1] for row in of_table(rows, mix) if row["policy"] == name}
    return {seed: np.array([curve[seed].mean(), end.get(_COVERAGE, np.nan)]) for seed, end in ends.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=Path(__file__).with_name("results.jsonl"))
    parser.add_argument("--policy", default="adaptive")
    parser.add_argument("--rivals", action="store_true", help="beside the published methods instead of uniform")
    parser.add_argument("--mix", action="append", choices=MIXES, default=[], help="those run on these mixes")
    args = parser.parse_args()
    rows = read(args.results)
    print(rivals(rows, args.policy, args.mix) if args.rivals else verdict(rows, args.policy))


if __name__ == "__main__":
    main()
