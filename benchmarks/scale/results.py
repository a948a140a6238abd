"""The results file of the runs: a table, and curves against rollouts, tokens and seconds.

    python benchmarks/scale/results.py [RESULTS] [--out FOLDER]

"start", "mean" and "end" are held-out success, sampled: at the start, over the rollouts of the run, and at the end;
"lost" and "gained" are the held-out prompts with at least half of their answers right at the start and less than a
quarter at the end, and the reverse. Unfinished runs are shown as far as they are; "steps" says how far.
"""

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

OF_A_POINT = ("device", "step", "rollouts", "tokens", "seconds", "success", "right")  # the other fields name the run
Run = tuple[tuple[str, Any], ...]


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


def moved(points: list[dict[str, Any]], samples: int = 8) -> tuple[int, int]:
    """Prompts lost and prompts gained between the first point and the last."""
    pairs = list(zip(points[0]["right"], points[-1]["right"], strict=True))
    lost = sum(a >= samples / 2 and b < samples / 4 for a, b in pairs)
    return lost, sum(b >= samples / 2 and a < samples / 4 for a, b in pairs)


def table(runs: dict[Run, list[dict[str, Any]]]) -> str:
    lines = [
        "| task | pool | policy | rate | seed | steps | start | mean | end | lost, gained | tokens a rollout | s |"
    ]
    lines.append("|---" * 12 + "|")
    for which, points in sorted(runs.items(), key=lambda run: str(run[0])):
        said, last = dict(which), points[-1]
        cells = [said["task"], said["pool"], said["policy"], f"{said['rate']:g}", said["seed"]]
        cells += [f"{last['step']} of {said['steps']}", f"{points[0]['success']:.3f}", f"{mean_success(points):.3f}"]
        cells += [f"{last['success']:.3f}", "{}, {}".format(*moved(points))]
        cells += [f"{last['tokens'] / max(1, last['rollouts']):.1f}", f"{last['seconds']:.0f} ({last['device']})"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def draw(runs: dict[Run, list[dict[str, Any]]], folder: Path) -> None:
    """A picture for each task and pool: a line a run, in three panels."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    for task, pool in sorted({(dict(which)["task"], dict(which)["pool"]) for which in runs}):
        figure, axes = plt.subplots(1, 3, figsize=(14, 4.2), sharey=True, layout="constrained")
        for which, points in runs.items():
            said = dict(which)
            if (said["task"], said["pool"]) == (task, pool):
                for axis, name in zip(axes, ("rollouts", "tokens", "seconds"), strict=True):
                    label = f"{said['policy']}, {said['rate']:g}, seed {said['seed']}"
                    axis.plot([p[name] for p in points], [p["success"] for p in points], label=label)
                    axis.set(xlabel=f"{name} of training", title=f"{task}, pool met {pool}")
        axes[0].set_ylabel("held-out success")
        axes[0].legend()
        figure.savefig(folder / f"{task}_{pool}.png", dpi=120)
        plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=Path(__file__).with_name("results.jsonl"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder for the pictures")
    args = parser.parse_args()
    runs = read(args.results)
    if not runs:
        parser.error(f"{args.results} has no runs: make some with benchmarks/scale/run.py.")
    print(table(runs))
    draw(runs, args.out)


if __name__ == "__main__":
    main()
