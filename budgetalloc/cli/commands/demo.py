"""`budgetalloc demo`: trains a tiny language model with several policies, seeds and the same number
of rollouts, several trainings side by side."""

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from budgetalloc.cli.config import Config
from budgetalloc.cli.reading import bar
from budgetalloc.errors import UnsupportedError, installing
from budgetalloc.offline.intervals import reached
from budgetalloc.offline.parallel import in_parallel
from budgetalloc.policies import Policy, adaptive, uniform

if TYPE_CHECKING:
    from budgetalloc.cli.testbed.train import Point

    Curves = Mapping[str, Sequence[Sequence[Point]]]  # by policy, a curve for each seed

ROLLOUTS = 256  # of a step


class _Arm(NamedTuple):
    build: Callable[..., Policy]
    options: dict[str, Any]  # of the callback
    group: int  # the trainer's group size


def run(args: argparse.Namespace) -> None:
    """Trains each policy with each seed, prints the table, and writes `results.json`, `table.md`, a
    ledger for each training and, with matplotlib, `curves.png`.

    All trainings have the same weights, learning rate and rollouts per step; those with the same
    seed have the same prompts. Of the config, `ledger`, seed, model, dataset and GRPO arguments are
    ignored.

    Raises:
        UnsupportedError: a config with a budget other than 256 rollouts a step, with pacing or a
            reward range.
    """
    arms = {"uniform": _Arm(uniform, {}, 2)}  # of 2, 4, 8 and 16 the best size, on other seeds
    if args.config is None:
        arms["adaptive"] = _Arm(adaptive, {}, 8)
        arms["adaptive(rounds=3)"] = _Arm(partial(adaptive, rounds=3), {}, 8)
    else:
        config = Config.read(args.config)
        if config.callback.get("reward_range") not in (None, (0, 1)):
            raise UnsupportedError(
                f"{config.file}: callback.reward_range: the demo's rewards are 0 and 1. Leave it "
                "out.",
                argument="reward_range",
            )
        name = config.method if config.method != "uniform" else "uniform, as configured"
        arms[name] = _Arm(config.build, config.callback_arguments(ROLLOUTS), 8)
    # What is not installed shows before the folder is made, and after the mistakes in the file.
    from budgetalloc.cli.testbed.train import Point

    draws = _can_draw()
    if not draws:  # before minutes of training, not after them
        print(
            f"No matplotlib, so no curves.png. To have it: {installing('logs')}.", file=sys.stderr
        )
    args.out.mkdir(parents=True, exist_ok=True)
    seeds = range(args.seed, args.seed + args.seeds)
    print(f"Seeds {seeds[0]} to {seeds[-1]}, {args.steps * ROLLOUTS:,} rollouts in each training:")
    for name, arm in arms.items():
        print(f"  {name}: {arm.build(seed=seeds[0])}", flush=True)
    begun = args.out / "stopped.json"
    built = [f"{arm.build(seed=0)}, {arm.options}" for arm in arms.values()]
    settings = json.dumps([built, args.steps, args.learning_rate])
    found = _stopped(begun, settings, Point)
    jobs = [(name, seed) for seed in seeds for name in arms if (name, seed) not in found]
    done = len(seeds) * len(arms) - len(jobs)
    if done:
        print(f"{begun}: {done} trainings are done, {len(jobs)} are left.", file=sys.stderr)
    try:
        with bar("training", len(jobs), "trainings") as move:
            for job, curve in in_parallel(
                _train, (arms, jobs, args), len(jobs), args.workers, ordered=False
            ):
                found[job] = curve
                move(1)
    except KeyboardInterrupt:
        kept = [[*job, curve] for job, curve in found.items()]
        begun.write_text(json.dumps({"settings": settings, "curves": kept}))
        raise KeyboardInterrupt(
            f"{len(found)} of {done + len(jobs)} trainings are kept in {begun}: the same command "
            "goes on from there."
        ) from None
    begun.unlink(missing_ok=True)
    curves = {name: [found[name, seed] for seed in seeds] for name in arms}
    text = table(curves)
    print(f"\n{text}\n")
    print("Means of the seeds, with the lowest and the highest. docs/evidence.md has more tasks.")
    (args.out / "table.md").write_text(text + "\n")
    results = {
        name: {seed: [point._asdict() for point in found[name, seed]] for seed in seeds}
        for name in arms
    }
    (args.out / "results.json").write_text(json.dumps(results, indent=1))
    if draws:
        draw(curves, args.out / "curves.png")
    print(
        f"Written to {args.out}: {'curves.png, ' if draws else ''}results.json, table.md and the "
        "ledgers."
    )


def _stopped(
    file: Path, settings: str, point: "type[Point]"
) -> "dict[tuple[str, int], list[Point]]":
    """The curves that a demo with the same settings kept when it was stopped."""
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        kept = json.loads(file.read_text())
        if kept["settings"] == settings:
            return {
                (name, seed): [point(*x) for x in curve] for name, seed, curve in kept["curves"]
            }
    return {}


def _train(
    given: tuple[dict[str, _Arm], list[tuple[str, int]], argparse.Namespace], at: int
) -> "tuple[tuple[str, int], list[Point]]":
    from budgetalloc.cli.testbed.train import train

    arms, jobs, args = given
    name, seed = jobs[at]
    arm = arms[name]
    file = re.sub(r"\W+", "_", name).strip("_")
    ledger = args.out / f"{file}_{seed}.jsonl"
    ledger.unlink(missing_ok=True)  # from an earlier demo
    curve = train(
        arm.build(seed=seed),
        {**arm.options, "ledger": ledger},
        steps=args.steps,
        learning_rate=args.learning_rate,
        group=arm.group,
        seed=seed,
    )
    return jobs[at], curve


def _can_draw() -> bool:
    """Whether matplotlib can be imported. Sets a backend that needs no screen."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    return True


def _success(curves: "Curves", name: str) -> NDArray[np.float64]:
    return np.array([[point.success for point in curve] for curve in curves[name]])


def _rollouts(curves: "Curves", name: str) -> NDArray[np.float64]:
    """What had been generated at each point, on average over the seeds."""
    each = [[point.rollouts for point in curve] for curve in curves[name]]
    return np.asarray(np.mean(each, axis=0))


def table(curves: "Curves") -> str:
    """The ends of all trainings as a Markdown table: means, with the lowest and highest seed.

    `uniform's end after`: the rollouts after which a policy's mean curve reached the end of
    uniform's.
    """
    head = ("held-out success", "minus uniform's", "higher on", "uniform's end after", "rollouts")
    rows = [("policy", *head)]
    base_S = _success(curves, "uniform")[:, -1]
    for name in curves:
        success_SG, rollouts_G = _success(curves, name), _rollouts(curves, name)
        more_S = success_SG[:, -1] - base_S
        spent = reached(rollouts_G, success_SG.mean(axis=0), base_S.mean())
        ahead = f"{(more_S > 0).sum()} of {len(more_S)} seeds"
        passed = f"{spent:,.0f}" if np.isfinite(spent) else "not reached"
        compared = ("", "", "") if name == "uniform" else (_spread(more_S, "+"), ahead, passed)
        rows.append((name, _spread(success_SG[:, -1]), *compared, f"{rollouts_G[-1]:,.0f}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"| {' | '.join(cells)} |")
    lines.insert(1, f"|{'|'.join('-' * (width + 2) for width in widths)}|")
    return "\n".join(lines)


def _spread(values_S: NDArray[np.float64], sign: str = "") -> str:
    low, high = values_S.min(), values_S.max()
    return f"{values_S.mean():{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def draw(curves: "Curves", path: Path) -> None:
    """Plots held-out success against rollouts: the mean, and a band from the lowest to the highest
    seed."""
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, color in zip(curves, ("tab:gray", "tab:blue", "tab:orange"), strict=False):
        success_SG, rollouts_G = _success(curves, name), _rollouts(curves, name) / 1000
        axis.plot(rollouts_G, success_SG.mean(axis=0), color=color, label=name)
        band = success_SG.min(axis=0), success_SG.max(axis=0)
        axis.fill_between(rollouts_G, *band, color=color, alpha=0.15, linewidth=0)
    seeds = len(curves["uniform"])
    axis.set(xlabel="rollouts generated (thousands)", ylabel="held-out success")
    axis.set(title=f"Mean of {seeds} seeds; bands: lowest and highest seed")
    axis.grid(alpha=0.3)
    axis.legend(loc="upper left")
    figure.savefig(path, dpi=120)
    plt.close(figure)
