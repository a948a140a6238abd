"""Do the figures of a report on a uniform run rank the gain that `sampled(groups=2)` has on the same mix?

    python benchmarks/learning/gain_ranking.py                          # the ranking, from gain_ranking.json
    python benchmarks/learning/gain_ranking.py --log u_shape --group 8  # one of the runs again: its figures

The runs: uniform with groups of 8, and uniform with the group size that is best for the mix, each at its tuned rate,
with seed 0, on the twelve mixes of the table. The gain is the mean over seeds of the default's mean success less that
of uniform at its best, as in `verdict.py`. `foreseen` is, of the rollouts without gradient, the share
whose group was predicted to be so with a probability of at least 0.9. It does not rank the gains, so the report
does not show it.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from mixes import MIXES
from run import GENERATIONS, ROLLOUTS, best_rates, read
from scipy.stats import spearmanr
from table import TUNING_SEEDS, best_uniform

import budgetalloc as ba

HERE = Path(__file__).parent
FIGURES = ("foreseen", "wasted", "explained", "all_fail", "never_solved", "success")


def train_uniform(mix: str, group: int | None, ledger: Path, steps: int = 150) -> str:
    """Trains uniform on a mix at its tuned rate, seed 0, with a ledger; returns its name. No group: the mix's best."""
    from train import train

    from budgetalloc.trl import AdaptiveGRPOCallback

    rows = read(HERE / "results.jsonl")
    name = best_uniform(rows, mix) if group is None else f"uniform{group}"
    name = "uniform" if name == "uniform8" else name
    train(
        lambda trainer: trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.uniform(seed=0), ledger=ledger)),
        steps=steps,
        eval_every=steps,
        prompts=ROLLOUTS // GENERATIONS.get(name, 8),
        generations=GENERATIONS.get(name, 8),
        learning_rate=best_rates(rows, TUNING_SEEDS)[name, mix],
        seed=0,
        **MIXES[mix].task(0),
        threads=1,
        progress=False,
    )
    return name


def logged(mix: str, group: int | None, steps: int = 150) -> dict[str, Any]:
    """The figures of the report on one uniform run, which is trained for that."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger.jsonl"
        name = train_uniform(mix, group, ledger, steps)
        seen = json.loads(ba.report.as_json(ba.report.report(ledger, policies=())))
    kept = {"wasted": "share_wasted", "all_fail": "share_all_fail", "explained": "explained", "success": "success"}
    figures = {figure: round(seen[key], 4) for figure, key in kept.items()}
    return {"mix": mix, "policy": name} | figures | {"never_solved": round(seen["never_solved"] / seen["prompts"], 4)}


def ranked(runs: list[dict[str, Any]], draws: int = 4000) -> list[str]:
    """Spearman's rho of each figure with the gain, with a 95 % bootstrap over mixes, as rows of a table."""
    gain_M, rng, lines = np.array([run["gain"] for run in runs]), np.random.default_rng(0), []
    for figure in FIGURES:
        value_M = np.array([run[figure] for run in runs])
        if len(set(value_M)) == 1:
            lines.append(f"| {figure} | {value_M[0]:g} on every mix |")
            continue
        found = []
        for at in rng.integers(0, len(runs), (draws, len(runs))):
            if len(set(value_M[at])) > 1 and len(set(gain_M[at])) > 1:
                found.append(spearmanr(value_M[at], gain_M[at]).statistic)
        low, high = np.quantile(found, [0.025, 0.975])
        rho = spearmanr(value_M, gain_M).statistic
        lines.append(f"| {figure} | {rho:+.2f} ({low:+.2f} to {high:+.2f}) |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", choices=MIXES, help="train uniform on this mix and print the figures of its report")
    parser.add_argument("--group", type=int, choices=(2, 4, 8, 16), help="group size; default: the best of the mix")
    args = parser.parse_args()
    if args.log:
        print(json.dumps(logged(args.log, args.group)))
        return
    for which, runs in json.loads((HERE / "gain_ranking.json").read_text()).items():
        print(f"| uniform, {which} | rho with the gain (95 %) |\n|---|---|", *ranked(runs), "", sep="\n")


if __name__ == "__main__":
    main()
