"""Applies the run's own checks to what is known of it."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from budgetalloc.cli.doctor.advice import advice
from budgetalloc.cli.doctor.data import Table
from budgetalloc.cli.doctor.setup import ARGUMENTS, Diagnosis, Setup, every_mistake
from budgetalloc.errors import BudgetallocError, InputError, shown
from budgetalloc.policies import adaptive
from budgetalloc.training.costs import Costs
from budgetalloc.training.options import Options
from budgetalloc.training.prompts import DEFAULT_COLUMN, Prompts, check_columns
from budgetalloc.training.scoring import Scoring
from budgetalloc.trl.compatibility import SETTINGS, Facts, not_a_grpo_trainer, refusals, unaligned_saves

T = TypeVar("T")


def examine(setup: Setup) -> Diagnosis:
    """Every check of `AdaptiveGRPOCallback` that can be made before the run; rules about unknown facts are left out."""
    diagnosis = setup.diagnosis

    def tried(check: Callable[[], T]) -> T | None:
        """What a check returns; None where it raises, and then the error is among those refused."""
        try:
            return check()
        except BudgetallocError as error:
            diagnosis.refused.append(str(error))
            return None

    settings, given, policy, data = setup.settings, setup.given, setup.policy, setup.data
    asked, columns = given["prompt_id"], data.columns
    name = DEFAULT_COLUMN if asked is None else str(asked)
    rollouts, group = settings.get("generation_batch_size"), settings.get("num_generations")
    served = "GRPOTrainer" in setup.trainer
    if not served:
        diagnosis.refused.append(str(not_a_grpo_trainer(setup.trainer)))
    prompts: Prompts | None = None
    if data.table is not None:
        prompts = tried(partial(_checked, data.table, asked))
    elif columns is not None:
        tried(lambda: check_columns(columns, asked))
    facts = Facts(
        {key: settings[key] for key in SETTINGS if key in settings},
        dataset="IterableDataset" if data.indexable is False else "Dataset",
        rows=data.rows,
        columns=None if columns is None else frozenset(columns),
        indexable=data.indexable,
        prompt_id=name,
        named=None if columns is None else name in columns,
        environments=setup.environments,
        tools=setup.tools,
        processes=setup.processes,
    )
    options: Options | None = None
    scoring: Scoring | None = None
    if policy is not None:
        needs, scale = policy.needs, settings.get("scale_rewards", "group")
        own = {key: value for key, value in given.items() if value is not None}
        options, mistakes = every_mistake(lambda own: Options.resolve(needs, scale, ARGUMENTS | own), own)
        diagnosis.refused += mistakes
    if options is not None and policy is not None:
        bounds = options.bounds
        diagnosis.refused += [str(error) for error in refusals(facts, policy, options)]
        tried(lambda: Costs.of(options.cost, policy))
        if setup.rewards is not None:
            scoring = tried(lambda: _scoring(setup, options))
        if rollouts and group:
            tried(lambda: bounds.budget(rollouts, 1, group))
        if options.quotas is not None and prompts is not None and rollouts and group:
            tried(lambda: options.quotas_of(prompts, policy, rollouts, group))
        elif options.quotas is not None:
            diagnosis.unread.append(
                "whether the quotas can be kept: the rows of the dataset, or the batch, are not known"
            )
    if saves := unaligned_saves(facts):
        diagnosis.warned.append(saves)
    distinct = None if prompts is None else len(prompts.pool)
    if prompts is not None and (several := prompts.shared_ids_warning()):
        diagnosis.warned.append(several)
    diagnosis.refused = list(dict.fromkeys(diagnosis.refused))
    diagnosis.facts = described(setup, options, distinct)
    known = {"step": rollouts and group, "dataset": columns, "rewards": setup.rewards, "policy": policy}
    diagnosis.unchecked = [name for name, value in known.items() if value is None]
    default = policy is None or (str(policy) == str(adaptive()) and given == ARGUMENTS)
    diagnosis.blind = default and {"step", "dataset", "rewards"} <= set(diagnosis.unchecked)
    if served and not diagnosis.blind:
        diagnosis.advice = advice(setup, facts, options, scoring, distinct)
    return diagnosis


def _scoring(setup: Setup, options: Options) -> Scoring:
    """How rewards become success; raises `InputError` for as many weights as TRL would refuse."""
    names = setup.rewards or ()
    weights = setup.settings.get("reward_weights")
    if weights is not None and len(weights) != len(names):
        raise InputError(
            f"GRPOConfig(reward_weights={shown(weights)}): {len(weights)} weights for {len(names)} reward functions. "
            "Use one for each."
        )
    return options.scoring(names, [1.0] * len(names) if weights is None else weights, quiet=True)


def _checked(table: Table, prompt_id: str | None) -> Prompts:
    """The prompts of the dataset, after the checks of their names."""
    prompts = Prompts(table, prompt_id)
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
    policy = "not known" if setup.policy is None else str(setup.policy)
    if options is not None:
        policy += f", candidates={options.bounds.candidates!r}, groups of {options.bounds.min_group} or more"
    policy += "" if setup.attached else " (nothing is attached yet: this is the default)"
    return [
        ("trainer", setup.trainer[0]),
        ("step", step),
        ("dataset", f"{data.source}: {', '.join(known)}"),
        ("rewards", rewards),
        ("policy", policy),
    ]
