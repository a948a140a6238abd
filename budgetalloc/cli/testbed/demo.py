"""The demo: trains the same language model twice with the same number of rollouts, uniform against
adaptive."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from budgetalloc.cli.config import Config
from budgetalloc.cli.testbed.curve import CurvePoint
from budgetalloc.cli.testbed.train import train
from budgetalloc.errors import UnsupportedError, installing
from budgetalloc.policies import Policy, uniform
from budgetalloc.trl import AdaptiveGRPOCallback

__all__ = ["ROLLOUTS", "demo", "draw", "headline", "table"]

ROLLOUTS = 256  # a step of 32 prompts x 8


def demo(
    *,
    steps: int = 150,
    learning_rate: float = 3e-4,
    seed: int = 0,
    out: Path = Path("runs/demo"),
    config: Config | None = None,
) -> dict[str, Any]:
    """Trains both, prints the table, writes `results.json`, `table.md` and, with matplotlib,
    `curves.png` into `out`.

    Both runs have the same weights, data, seed, learning rate and rollouts per step. The callback
    is attached to `uniform` too, where it only logs the metrics.

    Args:
        steps, learning_rate, seed: The same for both runs.
        out: The folder for results and for the ledger of each run. `callback: {ledger: ...}` of the
            config is ignored.
        config: The policy to compare with uniform, and how it is attached; `adaptive` by default.
            Its model, dataset and GRPO arguments are ignored.

    Returns:
        The curve of each run, as written to `results.json`.

    Raises:
        UnsupportedError: a config with a budget other than 256 rollouts a step, with pacing or a
            reward range.
    """
    draws = _can_draw()
    if not draws:  # before two minutes of training, not after them
        print(
            f"No matplotlib, so no curves.png. To have it: {installing('logs')}.", file=sys.stderr
        )
    config = config or Config.parse("")
    if config.callback.get("reward_range") not in (None, (0, 1)):
        raise UnsupportedError(
            f"{config.file}: callback.reward_range: the demo's rewards are 0 and 1. Leave it out.",
            argument="reward_range",
        )
    name = config.method if config.method != "uniform" else "uniform, as configured"
    rivals: dict[str, tuple[Policy, dict[str, Any]]] = {"uniform": (uniform(seed=seed), {})}
    rivals[name] = (config.build(seed), config.callback_arguments(ROLLOUTS))
    out.mkdir(parents=True, exist_ok=True)
    curves: dict[str, Sequence[CurvePoint]] = {}
    for name, (policy, arguments) in rivals.items():
        print(f"{name}: {policy}", flush=True)
        ledger = out / f"{name}_ledger.jsonl"
        ledger.unlink(missing_ok=True)  # from an earlier demo
        attach = partial(_attach, policy=policy, arguments=arguments | {"ledger": ledger})
        curves[name] = train(
            attach, steps=steps, learning_rate=learning_rate, seed=seed, threads=1
        ).curve
    text = table(curves)
    print(f"\n{text}\n")
    print(headline(curves, singles=config.bounds.min_group == 1))
    (out / "table.md").write_text(text + "\n")
    results = {name: [asdict(point) for point in curve] for name, curve in curves.items()}
    (out / "results.json").write_text(json.dumps(results, indent=1))
    if draws:
        draw(curves, out / "curves.png")
    print(
        f"Written to {out}: {'curves.png, ' if draws else ''}results.json, table.md and both "
        "ledgers."
    )
    return results


def _attach(trainer: Any, policy: Policy, arguments: dict[str, Any]) -> None:
    trainer.add_callback(AdaptiveGRPOCallback(trainer, policy, **arguments))


def _can_draw() -> bool:
    """Whether matplotlib can be imported. Sets a backend that needs no screen."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    return True


def table(curves: Mapping[str, Sequence[CurvePoint]]) -> str:
    """The end of both runs as a Markdown table."""
    head = (
        "policy",
        "held-out success",
        "rollouts",
        "tokens",
        "mixed groups",
        "rollouts in them",
        "seconds",
    )
    rows = [head]
    for name, curve in curves.items():
        # the start has no groups
        start, first, end = curve[0], curve[min(1, len(curve) - 1)], curve[-1]
        success = f"{start.success:.3f} -> {end.success:.3f}"
        groups = f"{first.mixed_groups or 0:.2f} -> {end.mixed_groups or 0:.2f}"
        rollouts = f"{first.mixed_rollouts or 0:.2f} -> {end.mixed_rollouts or 0:.2f}"
        rows.append(
            (
                name,
                success,
                f"{end.rollouts:,}",
                f"{end.tokens:,}",
                groups,
                rollouts,
                f"{end.seconds:.0f}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    rule = "|".join("-" * (width + 2) for width in widths)
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])])


def headline(curves: Mapping[str, Sequence[CurvePoint]], singles: bool) -> str:
    """Says after how many rollouts the other policy reaches uniform's final success.

    `singles`: the policy may draw groups of one.
    """
    goal, total = curves["uniform"][-1].success, curves["uniform"][-1].rollouts
    name = next(name for name in curves if name != "uniform")
    passed = next((point for point in curves[name] if point.success >= goal), None)
    subject = f"{name[0].upper()}{name[1:]}"
    if passed is None:
        lines = [f"{subject} did not reach uniform's final success of {goal:.3f}."]
    else:
        of_all = f"{passed.rollouts:,} of {total:,} rollouts ({passed.rollouts / total:.0%})"
        lines = [f"{subject} reached uniform's final success of {goal:.3f} after {of_all}."]
    lines[0] += (
        " One seed: a demonstration, not a measurement. `docs/evidence.md` has measurements."
    )
    if singles:
        lines.append(
            f"{subject} draws single rollouts of prompts with history, which have a gradient "
            "through the posterior "
            "baseline: the share of mixed groups does not describe this policy."
        )
    return "\n".join(lines)


def draw(curves: Mapping[str, Sequence[CurvePoint]], path: Path) -> None:
    """Plots held-out success, and the share of mixed groups, against rollouts."""
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for (name, curve), color in zip(curves.items(), ("tab:gray", "tab:blue"), strict=False):
        rollouts = [point.rollouts / 1000 for point in curve]
        left.plot(rollouts, [point.success for point in curve], color=color, label=name)
        shares = [point.mixed_groups for point in curve[1:]]
        right.plot(rollouts[1:], shares, color=color, label=name)
    left.axhline(curves["uniform"][-1].success, color="tab:gray", linewidth=0.8, linestyle=":")
    left.set(
        xlabel="rollouts generated (thousands)", ylabel="held-out success", title="What is learned"
    )
    right.set(
        xlabel="rollouts generated (thousands)", ylabel="share of groups with a pass and a fail"
    )
    right.set(title="Groups that teach under a group baseline", ylim=(0, None))
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
