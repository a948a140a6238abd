"""Which figure of a replay or a simulation ranks policies as real training does?

    python benchmarks/learning/replay_ranking.py                             # the table, from replay_ranking.jsonl
    python benchmarks/learning/replay_ranking.py --measure --logs runs/logs  # makes the logs and that file: 30 minutes

Learning is the mean held-out success over a run with equal generated rollouts, at the policy's tuned rate, on the
table's seeds (on tuning seeds where it has no others), as in the files of `CURVES`. Each of the twelve mixes has the
log that a user would have: `uniform()` in groups of 8 at its tuned rate, seed 0, 150 steps of 256 rollouts. Every
policy with a learning curve on the mix is replayed on it (`Replay`, seed 0) until it has generated a third as many
rollouts. A figure is the mean over these, or over steps of 256 of them:

- `mixed`: the share of rollouts in groups with unequal rewards; `groups`: the number of these groups in a step.
- `signal`: 4 times the variance of the prompt's logged rewards in visits v-2 to v+2 (`Replay.variances`).
- `hard_signal`: that times 1 - p, p being the mean of these rewards (`Replay.rates`).
- `prompts` and `informative_prompts`: the different prompts in a step, and those of them with a nonzero advantage.
- `advantage`: the absolute advantage, under the policy's own baseline and scale.
- `agreement`: mean over root mean square of c = A (x - p), for a rollout with advantage A and reward x. It is the
  ratio of signal to noise in the gradient if all prompts share one direction.
- `direction`: the sum over a step's prompts of d v, divided by the norm of d; d is the sum of c over a prompt's
  rollouts, and v is its variance. It is the gain of a step of fixed length if prompts share nothing.
- `reward`: the mean reward of what is drawn.
- `learner`: of `simulate`, the mean success in `ba.Learner()`, a world that learns and knows nothing of the mix, at
  its default learning rate (mean of seeds 0 and 1). Worlds that resemble each mix rank better (`screen.py`).

The interval is Student's t over mixes. Policies in groups have two rollouts or more of a prompt on average. The last
line is for a figure that is chosen on eleven mixes, and judged on the twelfth: the best of a dozen looks better than
it is.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from gain_ranking import train_uniform  # in this folder
from mixes import MIXES
from numpy.typing import NDArray
from run import ROLLOUTS, best_rates, mean_success, read
from scipy.stats import spearmanr
from screen import steps_of
from table import STEPS, TABLE_SEEDS, TUNING_SEEDS
from tqdm import tqdm

import budgetalloc as ba
from budgetalloc.beliefs.ids import factorize
from budgetalloc.beliefs.rewards import mixed_groups
from budgetalloc.offline.intervals import interval
from budgetalloc.offline.parallel import in_parallel
from budgetalloc.report.replays import unit_rewards

HERE = Path(__file__).parent
KEPT = HERE / "replay_ranking.jsonl"
CURVES = ("results", "rounds", "singles", "ablation")
LEFT_OUT = ("edit_distance", "noisy_score", "reward_model", "scheduled", "hopeless", "chain")
TWELVE = [mix for mix in MIXES if mix not in LEFT_OUT]
TOTAL = STEPS * ROLLOUTS
REPLAYED = TOTAL // 3
LEARNER_SEEDS = range(2)


class Meter:
    """A world around a replay that sums the figures of its steps."""

    def __init__(self, world: ba.Replay) -> None:
        self.world, self.ids, self.success = world, world.ids, world.success
        self.rounds: list[tuple[list[Any], NDArray[np.float64]]] = []
        self.rollouts, self.sums = 0, dict[str, float]()

    def rollout(self, ids_R: Any) -> NDArray[np.float64]:
        ids = list(ids_R)
        self.rounds.append((ids, self.world.rollout(ids)))
        return self.rounds[-1][1]

    def learn(self, advantages_R: Any) -> None:
        parts, rewards = zip(*self.rounds, strict=True)
        self.rounds.clear()
        names, at_R = factorize([name for part in parts for name in part])
        reward_R, advantage_R, size_P = np.concatenate(rewards), np.asarray(advantages_R), np.bincount(at_R)
        rate_P, variance_P = self.world.rates(names), self.world.variances(names)
        mixed_P = mixed_groups(reward_R, at_R, len(names))
        c_R = advantage_R * (reward_R - rate_P[at_R])
        d_P = np.bincount(at_R, c_R)
        step = {
            "mixed": size_P[mixed_P].sum(),
            "groups": ROLLOUTS * mixed_P.sum(),
            "signal": 4 * size_P @ variance_P,
            "hard_signal": 4 * size_P @ (variance_P * (1 - rate_P)),
            "prompts": ROLLOUTS * len(names),
            "informative_prompts": ROLLOUTS * (np.bincount(at_R, np.abs(advantage_R)) > 1e-9).sum(),
            "advantage": np.abs(advantage_R).sum(),
            "agreement": c_R.sum(),
            "squares": (c_R**2).sum(),
            "direction": ROLLOUTS * (d_P @ variance_P) / max(np.linalg.norm(d_P), 1e-9),
            "reward": reward_R.sum(),
        }
        self.sums = {name: self.sums.get(name, 0.0) + float(x) for name, x in step.items()}
        self.rollouts += len(at_R)
        self.world.learn(advantages_R)

    def figures(self) -> dict[str, float]:
        means = {name: x / self.rollouts for name, x in self.sums.items()}
        means["agreement"] /= max(means.pop("squares"), 1e-12) ** 0.5
        return {name: round(x, 5) for name, x in means.items()}


def learning(mix: str) -> dict[str, float]:
    """The mean success of the real runs of each policy at its tuned rate (the only one where it was not tuned)."""
    rows = [row for file in CURVES for row in read(HERE / f"{file}.jsonl") if row["mix"] == mix]
    tuned, runs = best_rates(rows, TUNING_SEEDS), dict[str, list[dict[str, Any]]]()
    for row in rows:
        if row["steps"] == STEPS and row["rate"] == tuned.get((row["policy"], mix), row["rate"]):
            runs.setdefault(row["policy"], []).append(row)
    of_table = {name: [row for row in of if row["seed"] in TABLE_SEEDS] for name, of in runs.items()}
    return {name: float(np.mean([mean_success(row) for row in of_table[name] or runs[name]])) for name in runs}


def measured(logs: Path, at: int) -> list[dict[str, Any]]:
    """The figures of every policy on a mix. Its log is made first if it is not there."""
    mix, rows = TWELVE[at], []
    if not (log := logs / f"{mix}.jsonl").exists():
        train_uniform(mix, 8, part := logs / f"{mix}.part")
        part.rename(log)
    ledger = unit_rewards(ba.Ledger.read(log), None)
    for name, success in learning(mix).items():
        meter = Meter(ba.Replay(ledger, seed=0))
        for _ in steps_of(name, meter, 0, REPLAYED):
            pass
        rows.append({"mix": mix, "policy": name, "learning": round(success, 5), **meter.figures()})
    return rows


def simulated(name: str, seed: int) -> float:
    """Mean success in `ba.Learner()` over the rollouts of a run."""
    world = ba.Learner(seed=seed)
    rollouts, success = [0], [world.success()]
    for seen in steps_of(name, world, seed, TOTAL):
        rollouts.append(seen["rollouts"])
        success.append(seen["success"])
    return float(np.interp(np.linspace(0, TOTAL, STEPS + 1), rollouts, success).mean())


def measure(logs: Path, jobs: int) -> list[dict[str, Any]]:
    """The figures of every policy on every mix."""
    logs.mkdir(parents=True, exist_ok=True)
    mixes = in_parallel(measured, logs, len(TWELVE), jobs)
    rows = [row for of_mix in tqdm(mixes, total=len(TWELVE)) for row in of_mix]
    names = list(dict.fromkeys(row["policy"] for row in rows))
    learner = {name: np.mean([simulated(name, seed) for seed in LEARNER_SEEDS]) for name in tqdm(names)}
    return [row | {"learner": round(float(learner[row["policy"]]), 5)} for row in rows]


def ranks(rows: list[dict[str, Any]]) -> dict[str, NDArray[np.float64]]:
    """Spearman's rho of each figure with learning over the policies of each mix, one number a mix."""
    ranked: dict[str, list[float]] = {}
    for mix in TWELVE:
        of_mix = [row for row in rows if row["mix"] == mix]
        learned = [row["learning"] for row in of_mix]
        for figure in [name for name in of_mix[0] if name not in ("mix", "policy", "learning")]:
            rho = spearmanr([row[figure] for row in of_mix], learned).statistic
            ranked.setdefault(figure, []).append(float(rho))
    return {figure: np.array(rho_M) for figure, rho_M in ranked.items()}


def table(rows: list[dict[str, Any]]) -> list[str]:
    """A line for each figure, the best first, and one for a figure that is chosen on the other mixes."""
    ranked = ranks(rows)
    grouped = ranks([row for row in rows if row["prompts"] <= ROLLOUTS / 2])
    lines = ["| figure | all policies | policies in groups |", "|---|---|---|"]

    def cell(rho_M: NDArray[np.float64]) -> str:
        return "{:.2f} ({:.2f} to {:.2f})".format(rho_M.mean(), *interval(rho_M))

    for figure in sorted(ranked, key=lambda x: -ranked[x].mean()):
        lines.append(f"| `{figure}` | {cell(ranked[figure])} | {cell(grouped[figure])} |")
    chosen = []
    for at in range(len(TWELVE)):
        best = max(ranked, key=lambda figure: np.delete(ranked[figure], at).mean())
        chosen.append(ranked[best][at])
    return [*lines, f"| chosen on the other mixes | {cell(np.array(chosen))} | |"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="replay and simulate all policies again")
    parser.add_argument("--logs", type=Path, default=Path("runs/logs"), help="folder of the logs")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    args = parser.parse_args()
    if args.measure:
        KEPT.write_text("".join(json.dumps(row) + "\n" for row in measure(args.logs, args.jobs)))
    rows = read(KEPT)
    counts = Counter(row["mix"] for row in rows)
    print("Policies:", ", ".join(f"{mix} {count}" for mix, count in counts.items()), "\n")
    print(*table(rows), sep="\n")


if __name__ == "__main__":
    main()
