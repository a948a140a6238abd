"""Recommends a policy by what is known about a run; docs/choose.md has the reasons and the figures."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from budgetalloc.cli.doctor.setup import Setup
from budgetalloc.policies.adaptive import IDLE, PRIOR, first_groups
from budgetalloc.training.options import Options
from budgetalloc.training.scoring import Scoring
from budgetalloc.training.success import in_words

__all__ = ["advice", "generations"]

_CHARACTERS = 4  # a token, roughly, in English
_PERIODS = ("gradient_accumulation_steps", "num_iterations", "steps_per_generation")


def advice(setup: Setup, options: Options | None, scoring: Scoring | None, distinct: int | None) -> list[str]:
    """A sentence for each fact that bears on the choice, the policy that fits first.

    `distinct` is the number of different prompts; None: not known, and then the rows count.
    """
    lines, settings, given, data = [], setup.settings, setup.given, setup.data
    rollouts, rows = settings.get("generation_batch_size"), data.rows
    if data.indexable is False:
        lines.append("Rows of a stream cannot be chosen: uniform(), or inside the batch policies.hora() or xrpo().")
    else:
        condition = " once what is refused is changed" if setup.diagnosis.refused else ""
        lines.append(f"adaptive(), the default, fits{condition}. Attach uniform() to a first run as the control.")
        if rows and rollouts:
            group = settings.get("num_generations", rollouts)
            lines.append(_about_the_pool(distinct or rows, rollouts, group, generations(settings, rows)))
        else:
            lines.append(
                "Pool against rollouts is not known. In a run of less than an epoch prompts do not return: expect "
                "little."
            )
    length, longest = data.length(), settings.get("max_completion_length")
    if length is not None and longest:
        tokens = length / _CHARACTERS
        long = "long prompts cost most as single rollouts, so use min_group=4."
        verdict = long if tokens > longest else "short enough."
        lines.append(f"Prompts have about {tokens:,.0f} tokens and completions at most {longest:,}: {verdict}")
    scale = settings.get("scale_rewards", "group")
    if scale != "group" and given["scale"] is None:
        lines.append(
            f"scale_rewards={scale!r} is kept. The learning benchmark measured adaptive() with 'group', TRL's default."
        )
    if scoring is not None and len(scoring.names) > 1:
        chosen = "chosen at the first step: name it, success='...'."
        if scoring.rule is not None:
            own = callable(given["success"])
            what = "what your function returns" if own else in_words(list(scoring.names), scoring.rule, None)
            chosen = f"{what}, as success= says."
        lines.append(f"Of {len(scoring.names)} rewards ({', '.join(scoring.names)}) success is {chosen}")
    if setup.tools or setup.environments:
        lines.append("Rollouts have several turns. Use no policy in rounds: each waits for its longest rollout.")
    if options is not None and options.bounds.candidates == 1 and not options.keep_batch:
        lines.append("candidates=1: no prompt has a history in the first epoch, and little is gained after it.")
    if setup.processes > 1:
        lines.append(f"{setup.processes} processes are supported: process 0 decides, and it alone writes the ledger.")
    return lines


def generations(settings: Mapping[str, Any], rows: int) -> int | None:
    """The number of generation batches in the whole run, as TRL counts them; None if it is not known.

    TRL counts rows, repeated prompts included, and drops a batch that is not full.

    >>> settings = {"generation_batch_size": 64, "num_generations": 8, "num_train_epochs": 2.0, "max_steps": -1}
    >>> generations(settings | dict.fromkeys(_PERIODS, 1), rows=250)
    62
    """
    names = ("generation_batch_size", "num_generations", "num_train_epochs", "max_steps", *_PERIODS)
    sizes: list[Any] = [settings.get(name) for name in names]
    if None in sizes:
        return None
    rollouts, group, epochs, most, accumulated, iterations, micro_steps = sizes
    every = iterations * micro_steps
    epoch = rows // (rollouts // group) * every
    steps = math.ceil(most if most > 0 else epochs * -(-epoch // accumulated))
    made: int = math.ceil(steps * accumulated / every)
    return max(1, made)


def _about_the_pool(pool: int, rollouts: int, group: int, steps: int | None) -> str:
    """Whether prompts return, under plain GRPO and as `adaptive` computes it."""
    each = "" if steps is None else f", {steps * rollouts / pool:,.1f} a prompt over {steps:,} steps"
    text = f"{pool:,} prompts for {rollouts:,} rollouts a step{each}: "
    if steps is not None and steps * rollouts < group * pool:
        return text + "less than an epoch, so prompts hardly return and history helps little."
    [first] = first_groups(np.array([sum(PRIOR)]), pool, rollouts, IDLE, least=2)
    if first > 2:
        return text + f"history has faded when a prompt returns, so adaptive() starts each with a group of {first}."
    return text + "prompts return while their history still counts."
