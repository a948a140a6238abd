"""The results file of the runs as tables. `make pictures` draws its curves.

    python benchmarks/scale/results.py [RESULTS] [--against sampled]

The second table compares each policy with uniform groups of the best size, or with the policy `--against`, on the same
seeds. Rates and the group size are those with the highest mean success in the longest runs on tuning seeds (100 and
above). "mean", "end" and "pass@8" are differences, "at equal success" is that of pass@8 as `learning/equal_success.py`
computes it, and the last two columns are the shares of the other's rollouts and seconds after which the policy's mean
curve reaches the end of the other's, all with Student's t intervals over the seeds.

"start", "mean" and "end" are held-out success, sampled: at the start, over the rollouts of the run, and at the end.
"pass@8" is the share of held-out prompts with a right answer among the eight samples at the end. "tokens" are those of
a rollout. Unfinished runs are shown as far as they are; "steps" says how far.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.offline.intervals import interval, share_reached

sys.path.append(str(Path(__file__).parents[1] / "learning"))
from equal_success import at_equal_success

TUNING_SEED = 100  # and above
OF_A_POINT = ("device", "step", "rollouts", "tokens", "seconds", "success", "pass8")  # the other fields name the run
Run = tuple[tuple[str, Any], ...]
Curves = dict[int, list[dict[str, Any]]]  # by seed


def read(path: Path) -> dict[Run, list[dict[str, Any]]]:
    """The points of each run in order of their steps.

    A run that was killed repeats the steps since its checkpoint: the newest point of a step counts. A line that was
    torn by a kill is left out.
    """
    runs: dict[Run, dict[int, dict[str, Any]]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            point = json.loads(line)
        except ValueError:
            continue
        which = tuple((name, value) for name, value in point.items() if name not in OF_A_POINT)
        runs.setdefault(which, {})[point["step"]] = {name: point[name] for name in OF_A_POINT}
    return {which: [by_step[step] for step in sorted(by_step)] for which, by_step in runs.items()}


def append(path: Path, point: dict[str, Any]) -> None:
    """Adds a line, apart from one that a kill tore."""
    torn = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("a") as file:
        file.write("\n" * torn + json.dumps(point) + "\n")


def mean_success(points: list[dict[str, Any]]) -> float:
    """The area under success against rollouts, by the trapezoid rule, over the rollouts; that of a single point is it.

    >>> mean_success([{"rollouts": 0, "success": 0.0}, {"rollouts": 100, "success": 0.5}])
    0.25
    """
    pairs = list(itertools.pairwise(points))
    area = sum((b["rollouts"] - a["rollouts"]) * (a["success"] + b["success"]) / 2 for a, b in pairs)
    return float(area / (points[-1]["rollouts"] - points[0]["rollouts"])) if pairs else float(points[0]["success"])


def table(runs: dict[Run, list[dict[str, Any]]]) -> str:
    lines = ["| task | pool | policy | rate | seed | steps | start | mean | end | pass@8 | tokens | s |"]
    lines.append("|---" * 12 + "|")
    for which, points in sorted(runs.items(), key=lambda run: str(run[0])):
        said, last = dict(which), points[-1]
        cells = [said["task"], said["pool"], said["policy"], f"{said['rate']:g}", said["seed"]]
        cells += [f"{last['step']} of {said['steps']}", f"{points[0]['success']:.3f}", f"{mean_success(points):.3f}"]
        cells += [f"{last['success']:.3f}", f"{last['pass8']:.3f}"]
        cells += [f"{last['tokens'] / max(1, last['rollouts']):.1f}", f"{last['seconds']:.0f} ({last['device']})"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def tuned(runs: dict[Run, list[dict[str, Any]]], task: str) -> dict[str, float]:
    """The rate of each policy with the highest mean success on the tuning seeds, over all pools.

    Only the longest finished runs of a policy count: a long run has a higher mean.
    """
    said = [(dict(which), points) for which, points in runs.items() if points[-1]["step"] == dict(which)["steps"]]
    said = [(job, points) for job, points in said if job["task"] == task and job["seed"] >= TUNING_SEED]
    longest: dict[str, int] = {}
    for job, _ in said:
        longest[job["policy"]] = max(job["steps"], longest.get(job["policy"], 0))
    scores: dict[tuple[str, float], list[float]] = {}
    for job, points in said:
        if job["steps"] == longest[job["policy"]]:
            scores.setdefault((job["policy"], job["rate"]), []).append(mean_success(points))
    rates: dict[str, float] = {}
    for (policy, rate), _ in sorted(scores.items(), key=lambda item: float(np.mean(item[1]))):
        rates[policy] = rate
    return rates


def of_table(runs: dict[Run, list[dict[str, Any]]], task: str, pool: str) -> dict[str, Curves]:
    """The finished runs of a task and pool on the table's seeds, each policy's at its tuned rate."""
    rates, found = tuned(runs, task), dict[str, Curves]()
    for which, points in runs.items():
        job = dict(which)
        chosen = job["rate"] == rates.get(job["policy"], job["rate"]) and job["seed"] < TUNING_SEED
        if (job["task"], job["pool"]) == (task, pool) and chosen and points[-1]["step"] == job["steps"]:
            found.setdefault(job["policy"], {})[job["seed"]] = points
    return found


def best_uniform(found: dict[str, Curves]) -> str | None:
    """The uniform policy with the most seeds, and of those the highest mean success; None without one."""
    return max(
        (name for name in found if name.startswith("uniform")),
        key=lambda name: (len(found[name]), np.mean([*map(mean_success, found[name].values())])),
        default=None,
    )


def _shares(own: list[list[dict[str, Any]]], base: list[list[dict[str, Any]]], name: str) -> str:
    """The share of the base's rollouts or seconds after which the policy is as good as the base's end."""
    own_SG, base_SG = ([[point["success"] for point in points] for points in of] for of in (own, base))
    spent_G = np.mean([[point[name] for point in points] for points in own], axis=0)
    shares = share_reached(own_SG, base_SG, spent_G, float(np.mean([points[-1][name] for points in base])))
    share, *ends = (f"{x:.2f}" if np.isfinite(x) else "never" for x in shares)
    return share if np.isnan(shares[1]) else f"{share} ({ends[0]} to {ends[1]})"


def _with_interval(gain_S: list[float]) -> str:
    low, high = interval(gain_S)
    return f"{np.mean(gain_S):+.3f}" + ("" if np.isnan(low) else f" ({low:+.3f} to {high:+.3f})")


def compared(runs: dict[Run, list[dict[str, Any]]], against: str | None = None) -> Iterator[str]:
    """The lines of the second table: finished runs on the table's seeds, minus those of the policy `against`."""
    measured = ("mean", "end", "pass@8", "at equal success", "rollouts", "seconds")
    head = ("task", "pool", "policy", "seeds", against or "uniform", *measured)
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for task, pool in sorted({(dict(which)["task"], dict(which)["pool"]) for which in runs}):
        of_policy = of_table(runs, task, pool)
        for policy in sorted(of_policy):
            plain = against or best_uniform(of_policy) or policy
            seeds = sorted(set(of_policy[policy]) & set(of_policy.get(plain, ())))
            if policy == plain or not seeds:
                continue
            own, base = ([of_policy[name][seed] for seed in seeds] for name in (policy, plain))
            gains = [
                [measure(a) - measure(b) for a, b in zip(own, base, strict=True)]
                for measure in (mean_success, lambda points: points[-1]["success"], lambda points: points[-1]["pass8"])
            ]
            curves = [
                [tuple([point[of] for point in points] for of in ("success", "pass8")) for points in runs]
                for runs in (own, base)
            ]
            gains.append([at_equal_success(a, b) for a, b in zip(*curves, strict=True)])
            spent = [_shares(own, base, name) for name in ("rollouts", "seconds")]
            cells = [task, pool, policy, str(len(seeds)), f"{plain}: {np.mean([*map(mean_success, base)]):.3f}"]
            cells += [*map(_with_interval, gains), *spent]
            yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=Path(__file__).with_name("results.jsonl"))
    parser.add_argument("--against", help="the policy to compare with; default: uniform groups of the best size")
    args = parser.parse_args()
    runs = read(args.results)
    if not runs:
        parser.error(f"{args.results} has no runs: make some with benchmarks/scale/run.py.")
    print(table(runs), *compared(runs, args.against), sep="\n")


if __name__ == "__main__":
    main()
