"""`budgetalloc replay`: allocation policies on the log of a finished run."""

import argparse
import contextlib
import json
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from budgetalloc.cli.config import Config
from budgetalloc.cli.log_options import bar, opened
from budgetalloc.errors import InputError, UnsupportedError
from budgetalloc.logs.ledger import Ledger
from budgetalloc.offline.comparison import comparisons, summarise
from budgetalloc.offline.parallel import check_workers
from budgetalloc.offline.replay import Replay
from budgetalloc.report.replays import LIMITS, POLICIES, unit_rewards
from budgetalloc.report.summary import plain

__all__ = ["HEADS", "MEANING", "SHARES", "as_text", "chosen", "run", "terms", "with_unit_rewards"]

SHARES = {"rollouts in them": "mixed_rollouts", "at least": "at_least", "at most": "at_most"}
SHARES |= {name: name for name in ("modelled", "signal")}
HEADS = ("policy", "mixed groups a step", "less the first's", *SHARES)
MEANING = (
    "Mixed groups have unequal rewards, and therefore a gradient under a group baseline. In "
    "brackets are 95 % "
    "intervals over seeds, that is over other draws from the same log. `At least` counts a group "
    "as mixed if its "
    "logged rewards are unequal, `at most` also if one of its rewards was modelled. Groups of one "
    "are never mixed, "
    "even where a posterior baseline gives them a gradient: a policy that may request them has no "
    "share of mixed "
    "groups (-). The signal, the mean of 4 times the variance of a prompt's success, is defined "
    "for groups of any size."
)


def run(args: argparse.Namespace) -> None:
    """Reads the log, replays the policies, prints the table."""
    check_workers(args.workers)  # before the log is read
    config = Config.read(args.config) if args.config else None
    unsupported = {
        "mixture": "a log does not say the domain of a prompt, so a replay cannot mix domains. Leave it out.",
        "quotas": "a log does not say the domain of a prompt, so a replay cannot keep quotas. Leave them out.",
        "cost": "a replay counts rollouts, and does not learn what they cost. Leave it out.",
        "features": "a log does not hold the columns of the dataset, so a replay has no features. Leave them out.",
    }
    for name, text in unsupported.items():
        if config is not None and name in config.callback:
            raise UnsupportedError(f"{config.file}: callback.{name}: {text}", argument=name)
    policies = chosen(args.policy, config)
    instead = {}
    if config:
        instead = {
            "prompt": config.callback.get("prompt_id"),
            "reward_range": config.callback.get("reward_range"),
        }
    reading = opened(args, **instead)
    ledger = with_unit_rewards(reading)
    world = Replay(ledger)
    rollouts, prompts, steps = terms(args, config, ledger, world)
    group = max(rollouts // prompts, 1)
    budgets = {
        name: rival.bounds.budget(rollouts, prompts, group) for name, rival in policies.items()
    }
    with bar("replaying", len(policies) * args.seeds, "runs") as move:
        table = summarise(
            seen
            for at, (name, rival) in enumerate(policies.items())
            for seen in comparisons(
                {name: rival.build},
                world,
                budgets[name],
                steps=steps,
                seeds=range(args.seeds),
                prompts=prompts,
                workers=args.workers,
                progress=lambda ended, _, before=at * args.seeds: move(before + ended),  # type: ignore[misc]
            )
        )
    answer = plain(
        {
            "version": 1,
            "log": str(args.log),
            "kind": reading.kind,
            "rollouts": len(ledger),
            "prompts": len(world.ids),
            "notes": dict(reading.notes),
            "doubts": list(reading.notes.doubts),
            "step": {"rollouts": rollouts, "prompts": prompts},
            "settings": {name: rival.as_dict() for name, rival in policies.items()},
            "policies": [
                row | {"min_group": budgets[row["policy"]].smallest_group} for row in table
            ],
            "limits": list(LIMITS),
        }
    )
    print(json.dumps(answer, indent=1, allow_nan=False) if args.json else as_text(answer))


def chosen(names: Sequence[str] | None, config: Config | None) -> dict[str, Config]:
    """The policies in the order of the table: those named on the command line, then the policy of
    the file."""
    names = names or ([POLICIES[0]] if config else POLICIES)
    configs = {name: config.rival(name) if config else Config.of(name) for name in names}
    if config is not None:
        label = config.method
        configs[label if label not in configs else f"{label} ({config.file})"] = config
    return configs


def with_unit_rewards(reading: Ledger) -> Ledger:
    """The whole log, with success in [0, 1] as rewards. Adds a note if it maps the rewards."""
    if not len(reading):
        left = "".join(f" {text}: {count}." for text, count in reading.notes.items())
        raise InputError(
            f"{reading.path}: this {reading.kind} log contains no rollout that can be read.{left}"
        )
    with contextlib.suppress(InputError):  # rewards are outside [0, 1], and the log has no range
        return unit_rewards(reading, None)
    rewards_R = reading.frame["reward"].to_numpy()
    low, high = float(np.nanmin(rewards_R)), float(np.nanmax(rewards_R))
    reading.notes[
        f"rewards from {low:g} to {high:g} taken as the range from failure to success: see "
        "--reward-range"
    ] = 1
    return unit_rewards(reading, (low, high))


def terms(
    args: argparse.Namespace, config: Config | None, ledger: Ledger, world: Replay
) -> tuple[int, int, int | None]:
    """Rollouts and prompts of a step, and the number of steps: from the options, the file or the
    log, in this order."""
    steps: int | None = args.steps
    if config is not None and config.plan:
        if args.rollouts is not None:
            raise InputError(
                f"--rollouts {args.rollouts}: the pacing in {args.config} sets the rollouts of "
                "each step. Leave out "
                "--rollouts."
            )
        plan = config.plan[:steps]
        steps, needed = len(plan), sum(plan[:-1])
        if needed >= world.rollouts:
            raise InputError(
                f"{args.config}: pacing: the first {steps - 1} steps spend {needed} rollouts, and "
                "the log has "
                f"{world.rollouts}. Use fewer --steps, or a smaller pacing.rollouts."
            )
        portion = config.bounds.quantum
        rollouts = max(sum(plan) // steps // portion, 1) * portion  # the average step
    else:
        _, rows_S = np.unique(ledger.frame["step"].to_numpy(), return_counts=True)
        given = args.rollouts or (config.rollouts if config else None)
        rollouts = given or max(int(np.median(rows_S)), 2)
    if rollouts > world.rollouts:
        raise InputError(
            f"{rollouts} rollouts a step: the whole log has {world.rollouts}. Use --rollouts with "
            "a smaller number."
        )
    return (
        rollouts,
        args.prompts or min(max(rollouts // max(world.group, 1), 1), len(world.ids)),
        steps,
    )


def as_text(answer: Mapping[str, Any], width: int = 110) -> str:
    """The table, the meaning of its columns, and what a replay cannot show."""
    rows, step = answer["policies"], answer["step"]
    paced = any("pacing" in settings for settings in answer["settings"].values())
    wrapped = partial(textwrap.wrap, width=width)
    seeds = f"{rows[0]['seeds']} {'seeds' if rows[0]['seeds'] > 1 else 'seed'}"
    lines = [
        f"{answer['log']} ({answer['kind']}): {answer['rollouts']:,} rollouts, "
        f"{answer['prompts']:,} prompts.",
        *(
            line
            for text in answer["doubts"]
            for line in wrapped(f"CAREFUL: {text}: {answer['notes'][text]:,}")
        ),
        f"Replayed: {rows[0]['steps']:,} steps of {step['rollouts']:,} "
        f"rollouts{' on average' if paced else ''} and "
        f"{step['prompts']:,} prompts, {seeds}.",
        "",
    ]
    cells = [HEADS, *(_cells(row, rows[0]) for row in rows)]
    sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        texts = [
            f"{x:<{n}}" if at == 0 else f"{x:>{n}}"
            for at, (x, n) in enumerate(zip(row, sizes, strict=True))
        ]
        lines.append("  ".join(texts).rstrip())
    lines += ["", *wrapped(MEANING), *(line for text in answer["limits"] for line in wrapped(text))]
    if notes := [
        f"  {text}: {n:,}" for text, n in answer["notes"].items() if text not in answer["doubts"]
    ]:
        lines += ["", "Left out or assumed while reading:", *notes]
    return "\n".join(lines)


def _cells(row: Mapping[str, Any], first: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of the table. A policy that may request groups of one has "-" for its mixed groups, as
    in a report."""
    alone = {
        figure
        for figure in SHARES.values()
        if row["min_group"] == 1 and figure not in ("modelled", "signal")
    }
    less = (
        "-"
        if 1 in (row["min_group"], first["min_group"])
        else _interval(row, "mixed_diff", "{:+.1f}")
    )
    return (
        row["policy"],
        "-" if row["min_group"] == 1 else _interval(row, "mixed", "{:.1f}"),
        "" if row is first else less,
        *("-" if figure in alone else f"{100 * row[figure]:.1f} %" for figure in SHARES.values()),
    )


def _interval(row: Mapping[str, Any], key: str, form: str) -> str:
    low, high = row[f"{key}_low"], row[f"{key}_high"]
    mean = form.format(row[key])
    return mean if low is None else f"{mean} ({form.format(low)} to {form.format(high)})"
