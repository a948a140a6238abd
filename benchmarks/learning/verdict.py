"""Compares a policy with uniform at its best group size and rate, mix by mix, on the table's seeds.

    python benchmarks/learning/verdict.py [--policy adaptive] [RESULTS ...]
    python benchmarks/learning/verdict.py --rivals        # with the published methods that are run on all mixes
    python benchmarks/learning/verdict.py --rivals --mix u_shape --mix hard_once      # on these at least

Uniform has the group size and the rate that are best for the mix on the tuning seeds. All differences are paired over
seeds, at each policy's tuned rate, or at uniform's if the policy was not tuned on the mix, as `adaptive` was not;
intervals are Student's t over seeds (95 %). A policy is called higher or lower only
where the interval, to the three digits printed, excludes 0; elsewhere no difference was seen. "share" is the share of
uniform's rollouts after which the policy's mean curve reaches the end of uniform's. A share that is never reached
counts as 1 in the geometric mean, which favours the policy; these mixes are listed. The interval of the geometric mean
is Student's t of the logarithms over the mixes.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from equal_success import at_equal_success
from mixes import MIXES, SIZED
from numpy.typing import NDArray
from run import GENERATIONS, best_rates, read
from table import (
    HERE,
    TUNING_SEEDS,
    Curve,
    Row,
    averaged,
    best_uniform,
    between,
    collect,
    head,
    of_table,
    row,
    share_with_interval,
    with_interval,
)

from budgetalloc.offline.intervals import interval, share_reached

MEASURES = "mean", "pass@64"
HEAD = (
    *("mix", "seeds", "start", "uniform: group, rate", "mean", "pass@64", "`{}()`: rate", "mean", "pass@64"),
    *("mean minus uniform's", "pass@64 minus uniform's", "share", "pass@64 at equal success"),
)
SHORT = (
    *("mix", "before training", "uniform", "`{}()`", "difference (95 % interval)"),
    *("coverage, uniform", "coverage, `{}()`"),
)
_SHORT_CELLS = (0, 2, 4, 7, 9, 5, 8)  # of a row of the long table
NAMED = 3
"""Up to this many mixes are listed by name."""


def paired(own: dict[int, Curve], base: dict[int, Curve]) -> NDArray[np.float64]:
    """The values of both on the seeds that both have, in the same order, shape (2, S, ...)."""
    seeds = sorted(own.keys() & base.keys())
    return np.array([[of[seed] for seed in seeds] for of in (own, base)])


def verdict(rows: list[Row], name: str, short: bool = False) -> str:
    """The table by rising gain, and what it says in sentences. `short`: the columns that the README has."""
    tuned = best_rates(rows, TUNING_SEEDS)
    lines: list[tuple[float, list[str]]] = []
    gains: dict[str, NDArray[np.float64]] = {}  # by mix, one per seed
    rises: dict[str, NDArray[np.float64]] = {}
    equal: dict[str, NDArray[np.float64]] = {}
    reached: dict[str, float] = {}
    few: list[str] = []
    for mix in dict.fromkeys(run["mix"] for run in rows):
        curves, grid = collect(rows, mix)
        uniform = best_uniform(rows, mix)
        both = paired(curves.get(name, {}), curves.get(uniform, {}))
        if both.shape[1] < 2:
            few.append(mix)
            continue
        own, base = both
        gains[mix] = own.mean(axis=1) - base.mean(axis=1)
        coverage, pass64, at_equal = "not recorded", ["not recorded"] * 2, "not recorded"
        ends_2S = paired(values_of(rows, mix, name), values_of(rows, mix, uniform))[:, :, 1]
        own_ends, base_ends = ends_2S[:, np.isfinite(ends_2S).all(axis=0)]
        if len(own_ends) > 1:
            rises[mix] = own_ends - base_ends
            coverage = with_interval(rises[mix])
            pass64 = [f"{base_ends.mean():.3f}", f"{own_ends.mean():.3f}"]
            equal[mix] = equal_success(rows, mix, name, uniform)
            at_equal = with_interval(equal[mix])
        share = share_reached(own, base, grid, grid[-1])
        reached[mix] = share[0]
        cells = [mix, str(len(own)), f"{own[:, 0].mean():.3f}"]
        cells += [f"{GENERATIONS.get(uniform, 8)}, {tuned[uniform, mix]:g}", f"{base.mean():.3f}", pass64[0]]
        cells += [f"{tuned.get((name, mix), tuned[uniform, mix]):g}", f"{own.mean():.3f}", pass64[1]]
        cells += [with_interval(gains[mix]), coverage, share_with_interval(share), at_equal]
        lines.append((float(gains[mix].mean()), [cells[at] for at in _SHORT_CELLS] if short else cells))
    text = [line.replace("{}", name) for line in head(SHORT if short else HEAD)]
    text += [row(cells) for _, cells in sorted(lines)]
    text += ["", counted("Mean success over the run", gains), counted("Coverage at the end (pass@64)", rises)]
    text += [counted("Coverage at equal success", equal)] if equal else []
    text += [saved(reached)] if reached else []
    text += [f"- **Left out** (fewer than two seeds of 150 steps): {_listed(few)}."] if few and not short else []
    return "\n".join(text)


def equal_success(rows: list[Row], mix: str, name: str, base: str) -> NDArray[np.float64]:
    """`at_equal_success` of two policies on each seed of the table that both recorded."""
    runs: dict[str, dict[int, tuple[list[float], list[float]]]] = {name: {}, base: {}}
    for run in of_table(rows, mix):
        if run["policy"] in runs and len(run.get("pass64", ())) == len(run["expected"]):
            runs[run["policy"]][run["seed"]] = run["expected"], run["pass64"]
    seeds = sorted(runs[name].keys() & runs[base].keys())
    gains_S = np.array([at_equal_success(runs[name][seed], runs[base][seed]) for seed in seeds])
    return gains_S[np.isfinite(gains_S)]


def counted(what: str, gains: dict[str, NDArray[np.float64]]) -> str:
    """On how many mixes a measure is higher, lower, or neither: a difference counts if its interval excludes 0.

    >>> gains = {"a": np.array([0.1, 0.11]), "b": np.array([0.3, 0.31]), "c": np.array([-0.1, 0.2])}
    >>> counted("Success", gains)
    '- **Success**: higher on 2 of 3 mixes, by 0.105 to 0.305. Lower on none. No difference was seen on 1 (`c`).'
    """
    called: dict[str, list[str]] = {"higher": [], "lower": [], "neither": []}
    for mix in sorted(gains, key=lambda mix: float(gains[mix].mean())):
        low, high = (round(end, 3) for end in interval(gains[mix]))
        called["higher" if low > 0 else "lower" if high < 0 else "neither"].append(mix)
    texts = {}
    for how, mixes in called.items():
        sizes = sorted({f"{abs(float(gains[mix].mean())):.3f}" for mix in mixes})
        by = f", by {sizes[0]}{f' to {sizes[-1]}' if len(sizes) > 1 else ''}" if sizes and how != "neither" else ""
        names = f" ({_listed(mixes)})" if mixes and how != "higher" and len(mixes) <= NAMED else ""
        texts[how] = f"{len(mixes) or 'none'}{f' of {len(gains)} mixes' if how == 'higher' else ''}{by}{names}."
    return (
        f"- **{what}**: higher on {texts['higher']} Lower on {texts['lower']} No difference was seen on "
        f"{texts['neither']}"
    )


def saved(reached: dict[str, float]) -> str:
    """The geometric mean of the shares, those that are never reached as 1, with its interval over the mixes.

    >>> print(saved({"a": 0.5, "b": 0.6, "c": float("inf")}).replace(". ", ".\\n"))
    - **Rollouts to uniform's final success**: 0.67 (0.274 to 1.634) of uniform's, as a geometric mean over the mixes.
    Never reached on 1 (`c`), counted as 1.
    """
    logs = np.log(np.minimum(list(reached.values()), 1.0))
    never = [mix for mix, share in reached.items() if not np.isfinite(share)]
    low, high = interval(logs)
    text = f"{np.exp(logs.mean()):.2f} {between(float(np.exp(low)), float(np.exp(high)))} of uniform's"
    not_reached = f" Never reached on {len(never)} ({_listed(never)}), counted as 1." if never else ""
    return f"- **Rollouts to uniform's final success**: {text}, as a geometric mean over the mixes.{not_reached}"


def _listed(mixes: Sequence[str]) -> str:
    return ", ".join(f"`{mix}`" for mix in mixes)


def rivals(rows: list[Row], name: str) -> str:
    """Compares the policy with each published method that has runs on all mixes of the policy.

    The differences of mean success and of pass@64 are paired over seeds, averaged over the mixes, and shown for the
    policy's worst mix.
    """
    own = of_mixes(rows, name)
    lines = head(
        ("method", "runs", *(cell for what in MEASURES for cell in (f"{what} minus the method's", "on its worst mix")))
    )
    for rival in sorted({run["policy"] for run in rows}):
        its = of_mixes(rows, rival)
        if rival.startswith(("adaptive", "sampled", "uniform")) or not own.keys() <= its.keys():
            continue
        cells = [rival, str(sum(len(own[mix].keys() & its[mix].keys()) for mix in own))]
        pairs = {mix: paired(own[mix], its[mix]) for mix in own}
        for at in range(len(MEASURES)):
            gains = {mix: (mine - other)[:, at] for mix, (mine, other) in pairs.items()}
            gains = {mix: gain[np.isfinite(gain)] for mix, gain in gains.items()}
            gains = {mix: gain for mix, gain in gains.items() if len(gain)}
            if not gains:
                cells += ["not recorded"] * 2
                continue
            least = min(gains, key=lambda mix: float(gains[mix].mean()))
            few = "" if len(gains) == len(own) else f", {len(gains)} {'mix' if len(gains) == 1 else 'mixes'}"
            cells += [averaged(list(gains.values())) + few, f"{gains[least].mean():+.3f} on {least}"]
        lines.append(row(cells))
    return "\n".join(lines)


def of_mixes(rows: list[Row], name: str) -> dict[str, dict[int, Curve]]:
    """`values_of` each mix on which the policy has runs on the table's seeds."""
    found = {mix: values_of(rows, mix, name) for mix in dict.fromkeys(x["mix"] for x in rows if x["policy"] == name)}
    return {mix: values for mix, values in found.items() if values}


def values_of(rows: list[Row], mix: str, name: str) -> dict[int, Curve]:
    """Mean success over a run and pass@64 at its end (NaN if not recorded), by seed of the table."""
    curve = collect(rows, mix)[0].get(name, {})
    runs = [run for run in of_table(rows, mix) if run["policy"] == name]
    return {run["seed"]: np.array([curve[run["seed"]].mean(), run.get("pass64", [np.nan])[-1]]) for run in runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="*", type=Path, default=[HERE / "results.jsonl", HERE / "table.jsonl"])
    parser.add_argument("--policy", default="adaptive")
    parser.add_argument("--rivals", action="store_true", help="compare with the published methods instead of uniform")
    parser.add_argument("--mix", action="append", choices=[*MIXES, *SIZED], help="default: all")
    args = parser.parse_args()
    rows = [run for path in args.results for run in read(path) if run["mix"] in (args.mix or MIXES | SIZED)]
    print(rivals(rows, args.policy) if args.rivals else verdict(rows, args.policy))


if __name__ == "__main__":
    main()
