"""`budgetalloc demo`: trains a tiny language model twice with the same number of rollouts, with
uniform groups and with an adaptive policy."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from budgetalloc.cli.config import Config
from budgetalloc.errors import UnsupportedError, installing
from budgetalloc.policies import Policy, uniform

if TYPE_CHECKING:
    from budgetalloc.cli.testbed.train import Point

__all__ = ["ROLLOUTS", "draw", "headline", "run", "table"]

ROLLOUTS = 256  # a step of 32 prompts x 8


def run(args: argparse.Namespace) -> None:
    """Trains both, prints the table, writes `results.json`, `table.md`, the ledgers and, with
    matplotlib, `curves.png`.

    Both runs have the same weights, data, seed, learning rate and rollouts per step. The callback
    is attached to `uniform` too, where it only logs the metrics. Of the config, `ledger`, model,
    dataset and GRPO arguments are ignored.

    Raises:
        UnsupportedError: a config with a budget other than 256 rollouts a step, with pacing or a
            reward range.
    """
    config = Config.read(args.config) if args.config else Config()
    if config.callback.get("reward_range") not in (None, (0, 1)):
        raise UnsupportedError(
            f"{config.file}: callback.reward_range: the demo's rewards are 0 and 1. Leave it out.",
            argument="reward_range",
        )
    seed = int(config.arguments.get("seed", 0)) if args.seed is None else args.seed
    name = config.method if config.method != "uniform" else "uniform, as configured"
    rivals: dict[str, tuple[Policy, dict[str, Any]]] = {
        "uniform": (uniform(seed=seed), {}),
        name: (config.build(seed), config.callback_arguments(ROLLOUTS)),
    }
    # A mistake in the file shows before torch and trl are loaded.
    from budgetalloc.cli.testbed.train import train

    draws = _can_draw()
    if not draws:  # before two minutes of training, not after them
        print(
            f"No matplotlib, so no curves.png. To have it: {installing('logs')}.", file=sys.stderr
        )
    args.out.mkdir(parents=True, exist_ok=True)
    curves: dict[str, Sequence[Point]] = {}
    for name, (policy, options) in rivals.items():
        print(f"{name}: {policy}", flush=True)
        ledger = args.out / f"{name}_ledger.jsonl"
        ledger.unlink(missing_ok=True)  # from an earlier demo
        options["ledger"] = ledger
        rate = args.learning_rate
        curves[name] = train(policy, options, steps=args.steps, learning_rate=rate, seed=seed)
    text = table(curves)
    print(f"\n{text}\n")
    print(headline(curves, singles=config.bounds.min_group == 1))
    (args.out / "table.md").write_text(text + "\n")
    results = {name: [point._asdict() for point in curve] for name, curve in curves.items()}
    (args.out / "results.json").write_text(json.dumps(results, indent=1))
    if draws:
        draw(curves, args.out / "curves.png")
    print(
        f"Written to {args.out}: {'curves.png, ' if draws else ''}results.json, table.md and both "
        "ledgers."
    )


def _can_draw() -> bool:
    """Whether matplotlib can be imported. Sets a backend that needs no screen."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    return True


def table(curves: "Mapping[str, Sequence[Point]]") -> str:
    """The end of both runs as a Markdown table."""
    measures = ("held-out success", "rollouts", "tokens", "mixed groups", "rollouts in them")
    rows = [("policy", *measures, "seconds")]
    for name, curve in curves.items():
        # the start has no groups
        start, first, end = curve[0], curve[min(1, len(curve) - 1)], curve[-1]
        rows.append(
            (
                name,
                f"{start.success:.3f} -> {end.success:.3f}",
                f"{end.rollouts:,}",
                f"{end.tokens:,}",
                f"{first.mixed_groups or 0:.2f} -> {end.mixed_groups or 0:.2f}",
                f"{first.mixed_rollouts or 0:.2f} -> {end.mixed_rollouts or 0:.2f}",
                f"{end.seconds:.0f}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"| {' | '.join(cells)} |")
    lines.insert(1, f"|{'|'.join('-' * (width + 2) for width in widths)}|")
    return "\n".join(lines)


def headline(curves: "Mapping[str, Sequence[Point]]", singles: bool) -> str:
    """Says after how many rollouts the other policy reaches uniform's final success.

    `singles`: the policy may draw groups of one.
    """
    goal, total = curves["uniform"][-1].success, curves["uniform"][-1].rollouts
    name = next(name for name in curves if name != "uniform")
    passed = next((point for point in curves[name] if point.success >= goal), None)
    subject = f"{name[0].upper()}{name[1:]}"
    if passed is None:
        text = f"{subject} did not reach uniform's final success of {goal:.3f}."
    else:
        of_all = f"{passed.rollouts:,} of {total:,} rollouts ({passed.rollouts / total:.0%})"
        text = f"{subject} reached uniform's final success of {goal:.3f} after {of_all}."
    text += " One seed: a demonstration, not a measurement. `docs/evidence.md` has measurements."
    if singles:
        text += (
            f"\n{subject} draws single rollouts of prompts with history, which have a gradient "
            "through the posterior baseline: the share of mixed groups does not describe this "
            "policy."
        )
    return text


def draw(curves: "Mapping[str, Sequence[Point]]", path: Path) -> None:
    """Plots held-out success, and the share of mixed groups, against rollouts."""
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for (name, curve), color in zip(curves.items(), ("tab:gray", "tab:blue"), strict=False):
        rollouts = [point.rollouts / 1000 for point in curve]
        left.plot(rollouts, [point.success for point in curve], color=color, label=name)
        shares = [point.mixed_groups for point in curve[1:]]
        right.plot(rollouts[1:], shares, color=color, label=name)
    left.axhline(curves["uniform"][-1].success, color="tab:gray", linewidth=0.8, linestyle=":")
    left.set(ylabel="held-out success", title="What is learned")
    right.set(ylabel="share of groups with a pass and a fail", ylim=(0, None))
    right.set(title="Groups that teach under a group baseline")
    for axis in (left, right):
        axis.set_xlabel("rollouts generated (thousands)")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
