"""`budgetalloc replay`: allocation policies on the log of a finished run."""

import argparse
import contextlib
import json
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from budgetalloc.cli.config import Config
from budgetalloc.cli.reading import bar, opened
from budgetalloc.errors import InputError, UnsupportedError
from budgetalloc.logs.ledger import Ledger
from budgetalloc.logs.records import losses
from budgetalloc.offline.comparison import comparisons, summarise, until_interrupted
from budgetalloc.offline.parallel import check_workers
from budgetalloc.offline.replay import NO_HISTORY, Replay
from budgetalloc.report.replays import COLUMNS, LIMITS, POLICIES, observed_range, unit_rewards
from budgetalloc.report.summary import plain
from budgetalloc.report.text import fitting, replay_table

_UNSUPPORTED = ("mixture", "quotas", "cost", "features")


def run(args: argparse.Namespace) -> None:
    """Reads the log, replays the policies, prints the table."""
    check_workers(args.workers)  # before the log is read
    config = Config.read(args.config) if args.config else None
    instead = {}
    if config is not None:
        for name in _UNSUPPORTED:
            if name in config.callback:
                raise UnsupportedError(
                    f"{config.file}: callback.{name}: a replay has neither domains, nor costs, nor "
                    "features of prompts. Leave it out.",
                    argument=name,
                )
        instead = {
            "prompt": config.callback.get("prompt_id"),
            "reward_range": config.callback.get("reward_range"),
        }
    names = args.policy or ([POLICIES[0]] if config else POLICIES)
    policies = {name: config.rival(name) if config else Config(name) for name in names}
    for rival in policies.values():
        rival.build()  # an unknown name is an error before the log is read
    if config is not None:
        label = config.method
        policies[label if label not in policies else f"{label} ({config.file})"] = config
    reading = opened(args, **instead)
    ledger = with_unit_rewards(reading)
    world = Replay(ledger)
    reading.notes.doubt(NO_HISTORY, len(world.ids) if world.sweeps == 1 else 0)
    scored_R = reading.frame["reward"].notna()
    rollouts, prompts, steps = terms(args, config, ledger, world)
    group = max(rollouts // prompts, 1)
    budgets = {
        name: rival.bounds.budget(rollouts, prompts, group) for name, rival in policies.items()
    }
    with bar("replaying", len(policies) * args.seeds, "replays") as move:
        played = (
            seen
            for name, rival in policies.items()
            for seen in comparisons(
                {name: rival.build},
                world,
                budgets[name],
                steps=steps,
                seeds=range(args.seeds),
                prompts=prompts,
                workers=args.workers,
                progress=lambda *_: move(1),
            )
        )
        complete, stopped = until_interrupted(played, args.seeds)
    table = summarise(complete)
    answer = plain(
        {
            "version": 1,
            "log": str(args.log),
            "kind": reading.kind,
            "rollouts": len(ledger),
            "prompts": len(world.ids),
            "notes": dict(reading.notes),
            "doubts": list(reading.notes.doubts),
            "lost": losses(reading.notes, int(scored_R.sum()), int((~scored_R).sum())),
            "step": {"rollouts": rollouts, "prompts": prompts},
            "settings": {
                name: {"policy": str(rival.build()), "plan": rival.plan, **asdict(rival.bounds)}
                for name, rival in policies.items()
            },
            "policies": table,
            "limits": list(LIMITS),
        }
    )
    print(json.dumps(answer, indent=1, allow_nan=False) if args.json else as_text(answer))
    if stopped:
        raise KeyboardInterrupt(
            f"The table has {len(table)} of {len(policies)} policies, those that were complete. "
            "All of them take less with fewer --seeds or --steps."
        )


def with_unit_rewards(reading: Ledger) -> Ledger:
    """The whole log, with success in [0, 1] as rewards. Adds a note if it maps the rewards."""
    if not len(reading):
        left = "".join(f" {text}: {count}." for text, count in reading.notes.items())
        raise InputError(
            f"{reading.path}: this {reading.kind} log contains no rollout that can be read.{left}"
        )
    with contextlib.suppress(InputError):  # rewards are outside [0, 1], and the log has no range
        return unit_rewards(reading, None)
    low, high = observed_range(reading)
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
                "each step. Leave out --rollouts."
            )
        plan, portion = config.plan[:steps], config.bounds.quantum
        steps = len(plan)
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
    prompts = args.prompts or min(max(rollouts // max(world.group, 1), 1), len(world.ids))
    return rollouts, prompts, steps


def as_text(answer: Mapping[str, Any], width: int = 110) -> str:
    """The table, the meaning of its columns, and what a replay cannot show."""
    rows, step = answer["policies"], answer["step"]
    paced = " on average" if any(each["plan"] for each in answer["settings"].values()) else ""
    seeds = f"{rows[0]['seeds']} {'seeds' if rows[0]['seeds'] > 1 else 'seed'}"
    doubts = [f"CAREFUL: {text}: {answer['notes'][text]:,}" for text in answer["doubts"]]
    lost = [f"Look at {text}." for text in answer["lost"]]
    notes = [f"  {x}: {n:,}" for x, n in answer["notes"].items() if x not in answer["doubts"]]
    lines = [
        f"{answer['log']} ({answer['kind']}): {answer['rollouts']:,} rollouts, "
        f"{answer['prompts']:,} prompts.",
        *(line for text in (*lost, *doubts) for line in textwrap.wrap(text, width)),
        f"Replayed: {rows[0]['steps']:,} steps of {step['rollouts']:,} rollouts{paced} and "
        f"{step['prompts']:,} prompts, {seeds}.",
        "",
        *fitting(replay_table(rows), width),
        "",
        *(line for text in (COLUMNS, *answer["limits"]) for line in textwrap.wrap(text, width)),
    ]
    return "\n".join(
        [*lines, *(["", "Left out or assumed while reading:", *notes] if notes else [])]
    )
