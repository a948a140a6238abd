"""Applies the checks of `AdaptiveGRPOCallback` to what is known about a run."""

from budgetalloc.cli.doctor.advice import advice
from budgetalloc.cli.doctor.setup import ARGUMENTS, Diagnosis, Setup, every_mistake
from budgetalloc.errors import InputError, shown
from budgetalloc.policies import adaptive
from budgetalloc.training.costs import Costs
from budgetalloc.training.options import Options
from budgetalloc.training.prompt_features import check_features
from budgetalloc.training.prompts import DEFAULT_COLUMN, Prompts, check_columns
from budgetalloc.training.scoring import Scoring
from budgetalloc.trl.compatibility import SETTINGS, Facts, not_a_grpo_trainer, refusals, unaligned_saves

__all__ = ["described", "examine"]


def examine(setup: Setup) -> Diagnosis:
    """Makes every check that is possible before the run. Rules about unknown facts are left out."""
    diagnosis, settings, given, policy, data = setup.diagnosis, setup.settings, setup.given, setup.policy, setup.data
    rollouts, group = settings.get("generation_batch_size"), settings.get("num_generations")
    served = "GRPOTrainer" in setup.trainer
    if not served:
        diagnosis.refused.append(str(not_a_grpo_trainer(setup.trainer)))
    asked, columns = given["prompt_id"], data.columns
    name = DEFAULT_COLUMN if asked is None else str(asked)
    prompts = options = scoring = distinct = None
    with diagnosis.collecting():
        if data.table is not None:
            checked = Prompts(data.table, asked)
            checked.check()
            distinct = len(checked.pool)  # names every prompt, which raises for a prompt without a text
            prompts = checked
        elif columns is not None:
            check_columns(columns, asked)
    if (features := given["features"]) is not None:
        with diagnosis.collecting():
            check_features(features, columns)
        if data.indexable is False:
            diagnosis.refused.append(f"features={shown(features)}: a stream does not list its prompts. Use a Dataset.")
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
    if policy is not None:
        needs, scale = policy.needs, settings.get("scale_rewards", "group")
        known = {key: value for key, value in given.items() if value is not None}
        options, mistakes = every_mistake(lambda left: Options.resolve(needs, scale, ARGUMENTS | left), known)
        diagnosis.refused += mistakes
    if policy is not None and options is not None:
        diagnosis.refused += [str(error) for error in refusals(facts, policy, options)]
        with diagnosis.collecting():
            Costs.of(options.cost, policy)
        with diagnosis.collecting():
            scoring = _scoring(setup, options)
        with diagnosis.collecting():
            if rollouts and group:
                options.bounds.budget(rollouts, 1, group)
        with diagnosis.collecting():
            if options.quotas is not None and prompts is not None and rollouts and group:
                options.quotas_of(prompts, policy, rollouts, group)
            elif options.quotas is not None:
                diagnosis.unread.append("whether the quotas can be kept: the rows, or the batch, are not known")
    if saves := unaligned_saves(facts):
        diagnosis.warned.append(saves)
    if prompts is not None and (several := prompts.shared_ids_warning()):
        diagnosis.warned.append(several)
    diagnosis.refused = list(dict.fromkeys(diagnosis.refused))
    diagnosis.facts = described(setup, options, distinct)
    needed = {"step": rollouts and group, "dataset": columns, "rewards": setup.rewards, "policy": policy}
    diagnosis.unchecked = [name for name, value in needed.items() if value is None]
    default = policy is None or (str(policy) == str(adaptive()) and given == ARGUMENTS)
    diagnosis.blind = default and {"step", "dataset", "rewards"} <= set(diagnosis.unchecked)
    if served and not diagnosis.blind:
        diagnosis.advice = advice(setup, options, scoring, distinct)
    return diagnosis


def _scoring(setup: Setup, options: Options) -> Scoring | None:
    """How rewards become success; raises `InputError` if the number of weights is one that TRL would refuse."""
    names, weights = setup.rewards, setup.settings.get("reward_weights")
    if names is None:
        return None
    if weights is not None and len(weights) != len(names):
        raise InputError(
            f"GRPOConfig(reward_weights={shown(weights)}): {len(weights)} weights for {len(names)} reward functions. "
            "Use one for each."
        )
    return options.scoring(names, [1.0] * len(names) if weights is None else weights, quiet=True)


def described(setup: Setup, options: Options | None, distinct: int | None) -> list[tuple[str, str]]:
    """Names and texts that say what the run is."""
    settings, data, unknown = setup.settings, setup.data, "not known"
    rollouts, group = settings.get("generation_batch_size"), settings.get("num_generations")
    step = policy = unknown
    if rollouts and group:
        processes = f"{setup.processes} processes" if setup.processes > 1 else "1 process (see --processes)"
        step = f"{rollouts:,} rollouts = {rollouts // group:,} prompts x {group}, in {processes}"
    known = [f"rows {unknown}" if data.rows is None else f"{data.rows:,} rows"]
    known += [] if distinct is None else [f"{distinct:,} prompts"]
    known += [f"columns {unknown if data.columns is None else ', '.join(data.columns)}"]
    rewards = unknown if setup.rewards is None else ", ".join(setup.rewards) or "none"
    if setup.policy is not None:
        policy = str(setup.policy)
    if options is not None:
        policy += f", candidates={options.bounds.candidates!r}, groups of {options.bounds.min_group} or more"
    policy += "" if setup.attached else " (nothing is attached yet: this is the default)"
    texts = (setup.trainer[0], step, f"{data.source}: {', '.join(known)}", rewards, policy)
    return list(zip(("trainer", "step", "dataset", "rewards", "policy"), texts, strict=True))
