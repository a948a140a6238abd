"""Applies the run's own checks to what is known of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from budgetalloc.cli.doctor.advice import advice
from budgetalloc.cli.doctor.setup import Setup
from budgetalloc.errors import BudgetallocError
from budgetalloc.training.costs import Costs
from budgetalloc.training.options import Options
from budgetalloc.training.prompts import Prompts, check_columns
from budgetalloc.trl.served import SETTINGS, Facts, not_a_grpo_trainer, refusals, unaligned_saves


@dataclass
class Diagnosis:
    """What the doctor says.

    Args:
        file: What was read.
        facts: A name and a text each: what the run is.
        refused: The errors that the run would raise.
        warned: Its warnings.
        advice: Which policy fits.
        unread: What only running the script can tell.
    """

    file: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def examine(setup: Setup) -> Diagnosis:
    """Every check of `AdaptiveGRPOCallback` that can be made before the run; rules about unknown facts are left out."""
    said = Diagnosis(setup.file, refused=list(setup.refused), unread=list(setup.unread))

    def tried(check: Callable[[], Any]) -> Any:
        """What a check returns; None where it raises, and then the error is among those refused."""
        try:
            return check()
        except BudgetallocError as error:
            said.refused.append(str(error))
            return None

    settings, given, policy = setup.settings, setup.given, setup.policy
    name, columns = str(given["prompt_id"]), setup.data.columns
    rollouts, group = settings.get("generation_batch_size"), settings.get("num_generations")
    if "GRPOTrainer" not in setup.trainer:
        said.refused.append(str(not_a_grpo_trainer(setup.trainer)))
    if columns is not None:
        tried(lambda: check_columns(columns, name))
    prompts: Prompts | None = None
    if not said.refused and setup.data.table is not None:
        prompts = tried(lambda: _checked(setup, name))
    facts = Facts(
        {key: settings[key] for key in SETTINGS if key in settings},
        dataset=setup.data.kind,
        rows=setup.data.rows,
        columns=None if columns is None else frozenset(columns),
        indexable=setup.data.indexable,
        prompt_id=name,
        named=None if columns is None else name in columns,
        environments=setup.environments,
        tools=setup.tools,
        processes=setup.processes,
    )
    options: Options | None = None
    if policy is not None:
        scale = settings.get("scale_rewards", "group")
        options = tried(lambda: Options.resolve(policy.needs, scale, dict(given)))
    if options is not None and policy is not None:
        bounds = options.bounds
        said.refused += [str(error) for error in refusals(facts, policy, options)]
        tried(lambda: Costs.of(options.cost, policy))
        if setup.rewards is not None:
            weights = settings.get("reward_weights") or [1.0] * len(setup.rewards)
            tried(lambda: options.scoring(setup.rewards or (), weights, quiet=True))
        if rollouts and group:
            tried(lambda: bounds.budget(rollouts, 1, group))
        if options.quotas is not None and prompts is not None and rollouts and group:
            tried(lambda: options.quotas_of(prompts, policy, rollouts, group))
        elif options.quotas is not None:
            said.unread.append("whether the quotas can be kept: the rows of the dataset, or the batch, are not known")
    if saves := unaligned_saves(facts):
        said.warned.append(saves)
    distinct = None if prompts is None else len(prompts.pool)
    if prompts is not None and (several := prompts.said_once()):
        said.warned.append(several)
    said.facts = described(setup, options, distinct)
    said.advice = advice(setup, facts, options, distinct)
    said.refused = list(dict.fromkeys(said.refused))
    return said


def _checked(setup: Setup, prompt_id: str) -> Prompts | None:
    """The prompts of the dataset, if its rows are known, after the checks of their names."""
    prompts = setup.data.prompts(prompt_id)
    if prompts is not None:
        prompts.check()
        len(prompts.pool)  # names every prompt, which raises for a prompt without a text
    return prompts


def described(setup: Setup, options: Options | None, distinct: int | None) -> list[tuple[str, str]]:
    """What the run is, a name and a text each."""
    settings, data = setup.settings, setup.data
    rollouts, group = settings.get("generation_batch_size"), settings.get("num_generations")
    step = "not known"
    if rollouts and group:
        step = f"{rollouts:,} rollouts = {rollouts // group:,} prompts x {group}"
        step += f", in {setup.processes} processes" if setup.processes > 1 else ", in 1 process (see --processes)"
    known = [f"{data.rows:,} rows" if data.rows is not None else "rows not known"]
    known += [] if distinct is None else [f"{distinct:,} prompts"]
    known += ["columns not known" if data.columns is None else f"columns {', '.join(data.columns)}"]
    rewards = "not known" if setup.rewards is None else ", ".join(setup.rewards) or "none"
    success = setup.given["success"]
    chosen = "" if success is None else f"; success is {success if not callable(success) else 'a function of them'}"
    policy = "not known" if setup.policy is None else str(setup.policy)
    if options is not None:
        policy += f", candidates={options.bounds.candidates!r}, groups of {options.bounds.min_group} or more"
    policy += "" if setup.attached else " (nothing is attached yet: this is the default)"
    return [
        ("trainer", setup.trainer[0]),
        ("step", step),
        ("dataset", f"{data.source}: {', '.join(known)}"),
        ("rewards", rewards + chosen),
        ("policy", policy),
    ]
