"""What the callback refuses: rules about the facts of a trainer."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from budgetalloc.errors import BudgetallocError, InputError, UnsupportedError
from budgetalloc.policies import Policy
from budgetalloc.training.options import Options
from budgetalloc.training.prompts import Prompts

__all__ = [
    "REFUSED",
    "SETTINGS",
    "Facts",
    "not_a_grpo_trainer",
    "refusals",
    "unaligned_saves",
    "unnamed_tasks",
]

SETTINGS = (
    "generation_batch_size",
    "num_generations",
    "steps_per_generation",
    "num_iterations",
    "gradient_accumulation_steps",
    "save_steps",
    "save_strategy",
    "multi_objective_aggregation",
    "remove_unused_columns",
    "beta",
    "sync_ref_model",
    "use_vllm",
    "vllm_importance_sampling_correction",
)
"""The settings of `GRPOConfig` that the rules read."""

# Trainers of TRL 1.16 that generate and score, and the reason why they are not supported.
REFUSED = {
    "RLOOTrainer": "RLOOTrainer adds a KL penalty to the rewards and returns it only as part of the advantages of "
    "equal groups, so the advantages of uneven groups would lack the penalty. Use GRPOTrainer with "
    "AdaptiveGRPOCallback(trainer, baseline='loo', scale='none'): the leave-one-out advantages are "
    "the same, and "
    "GRPOConfig(beta=) puts the KL into the loss.",
    "AsyncGRPOTrainer": "The rollout worker of AsyncGRPOTrainer generates num_generations rollouts of each row, "
    "outside the trainer and ahead of it. Use the worker of budgetalloc: worker = "
    "AdaptiveRolloutWorker(policy, "
    "reward_funcs=...), AsyncGRPOTrainer(..., rollout_worker=worker), worker.attach(trainer). Or "
    "use GRPOTrainer.",
    "SDPOTrainer": "SDPOTrainer finds the rollouts of a prompt by their position, num_generations in a row. Use "
    "GRPOTrainer.",
    "OnlineDPOTrainer": "OnlineDPOTrainer learns from pairs, always two rollouts a prompt. Use GRPOTrainer.",
    "A2POTrainer": "A2POTrainer learns from one completion per prompt. Use GRPOTrainer.",
}


def not_a_grpo_trainer(classes: Iterable[str]) -> UnsupportedError:
    """The error about another trainer, from the names of its class and its base classes.

    >>> str(not_a_grpo_trainer(["A2POTrainer"])).partition("subclasses. ")[2]
    'A2POTrainer learns from one completion per prompt. Use GRPOTrainer.'
    """
    names = list(classes)
    known = [REFUSED[name] for name in names if name in REFUSED]
    advice = (
        known[0]
        if known
        else "Pass the trainer itself, as in AdaptiveGRPOCallback(trainer, policy)."
    )
    return UnsupportedError(
        f"trainer is a {names[0]}: AdaptiveGRPOCallback supports trl.GRPOTrainer and its "
        f"subclasses. {advice}"
    )


@dataclass(frozen=True)
class Facts:
    """The facts about a trainer that the rules need. A rule about an unknown fact, None, does not
    apply.

    Args:
        settings: The known ones of `SETTINGS`, as `GRPOConfig` resolves them.
        dataset: The type of the train dataset.
        rows: Its number of rows.
        columns: Its columns.
        indexable: Whether its rows can be chosen.
        prompt_id: The column with the ids of prompts.
        named: Whether the dataset has that column.
        environments: Whether environments choose the task.
        tools: Whether completions contain tokens of tools.
        processes: Number of processes.
    """

    settings: Mapping[str, Any]
    dataset: str = "Dataset"
    rows: int | None = None
    columns: frozenset[str] | None = None
    indexable: bool | None = None
    prompt_id: str = "prompt_id"
    named: bool | None = None
    environments: bool | None = None
    tools: bool | None = None
    processes: int | None = None

    @classmethod
    def of(cls, trainer: Any, prompts: Prompts) -> "Facts":
        """The facts of a `GRPOTrainer`. All are known unless the dataset is a stream."""
        dataset = trainer.train_dataset
        columns = getattr(dataset, "column_names", None)
        return cls(
            {name: getattr(trainer, name, getattr(trainer.args, name, None)) for name in SETTINGS},
            dataset=type(dataset).__name__,
            rows=len(dataset) if hasattr(dataset, "__len__") else None,
            columns=None if columns is None else frozenset(columns),
            indexable=prompts.indexable,
            prompt_id=prompts.name,
            named=prompts.column is not None,
            environments=getattr(trainer, "environment_factories", None) is not None,
            tools=bool(getattr(trainer, "tools", None)),
            processes=trainer.accelerator.num_processes,
        )

    @property
    def images(self) -> bool:
        """Whether the dataset is known to have images."""
        return bool({"image", "images"} & (self.columns or set()))


def refusals(facts: Facts, policy: Policy, options: Options) -> Iterator[BudgetallocError]:
    """The reasons why uneven groups, chosen rows or stored responses would give wrong results.

    >>> from budgetalloc.policies import adaptive
    >>> given = dict.fromkeys(("candidates", "baseline", "scale", "weight", "floor", "cap", "min_group", "success"))
    >>> options = Options.resolve(adaptive().needs, "group", given | {"quantum": 1, "reward_range": None})
    >>> [str(error)[:60] for error in refusals(Facts({}, "IterableDataset", indexable=False), adaptive(), options)]
    ["candidates='all' chooses rows of the train dataset, which is"]
    """
    settings = facts.settings
    rows, group = settings.get("generation_batch_size"), settings.get("num_generations")
    if (
        facts.rows is not None
        and rows is not None
        and group is not None
        and facts.rows < rows // group
    ):
        yield InputError(
            f"The train dataset has {facts.rows} rows and a generation batch takes {rows // group} "
            "prompts "
            f"(generation_batch_size={rows} / num_generations={group}): TRL drops batches that are "
            "not full and would "
            f"train nothing. Use a dataset of at least {rows // group} rows, or a smaller "
            "generation_batch_size."
        )
    if policy.plan:
        yield UnsupportedError(
            f"{policy} has a plan: its budget varies over the run, and GRPOTrainer generates "
            f"{rows or 'as many'} rows at "
            "every step (GRPOConfig.generation_batch_size). Attach the policy without a plan; or "
            "use AsyncGRPOTrainer "
            "with AdaptiveRolloutWorker(rollouts_per_step=), or verl, whose steps may have "
            "different sizes."
        )
    if options.generate > 1 and policy.keep is None:
        yield InputError(
            f"{policy} generates up to {options.generate} times as many rollouts as the trainer "
            "trains on, and has no "
            f"keep= that chooses among them: up to {options.generate * (rows or 1)} rows would be "
            "in the loss, where "
            f"GRPOConfig asks for {rows or 1}. Give the Policy a keep=, or needs with generate=1."
        )
    if options.buffer is not None:
        yield from _about_the_buffer(facts)
    if options.bounds.candidates != 1 and facts.indexable is False:
        yield UnsupportedError(
            f"candidates={options.bounds.candidates!r} chooses rows of the train dataset, which is "
            "not possible in a "
            f"{facts.dataset}. Pass a datasets.Dataset, or candidates=1 to move rollouts inside "
            "each batch."
        )
    aggregation = settings.get("multi_objective_aggregation")
    if options.baseline is not None and aggregation not in (None, "sum_then_normalize"):
        yield UnsupportedError(
            f"GRPOConfig(multi_objective_aggregation={aggregation!r}) normalises each reward over "
            "equal groups. Use "
            "'sum_then_normalize', or attach uniform() without baseline=, scale= and weight=."
        )
    if options.baseline is not None and (unnamed := unnamed_tasks(facts)):
        yield unnamed
    if options.generate > 1 and facts.images:
        yield UnsupportedError(
            f"The policy generates up to {options.generate} times as many rollouts as it trains "
            "on, and the train "
            "dataset has images, of which TRL does not keep one row of pixels per rollout. Use a "
            "policy that trains on "
            "all rollouts that it generates."
        )
    if facts.named and settings.get("remove_unused_columns"):
        yield InputError(
            f"GRPOConfig(remove_unused_columns=True) drops the column {facts.prompt_id!r}. Set it "
            "to False."
        )


def unnamed_tasks(facts: Facts) -> UnsupportedError | None:
    """The error about environments whose tasks no column identifies, or None."""
    if not facts.environments or facts.named is not False:
        return None
    return UnsupportedError(
        "With environment_factory the environment's reset() chooses the task, so the text of a row "
        "alone does not "
        f"identify a prompt. Add a column {facts.prompt_id!r} of ints or strings that names the "
        "task. If the "
        "environment holds the data and there is no dataset, pass a placeholder: train_dataset="
        'Dataset.from_list([{"prompt": [{"role": "user", "content": ""}], '
        f'"{facts.prompt_id}": n}} for n in range(1000)]), and let reset({facts.prompt_id}, **_) choose the task '
        "by it."
    )


def _about_the_buffer(facts: Facts) -> Iterator[UnsupportedError]:
    """The settings with which `buffer=` cannot store or reuse responses correctly."""
    settings = facts.settings
    aggregation = settings.get("multi_objective_aggregation")
    refused = [
        (
            (facts.processes or 1) > 1,
            f"{facts.processes} processes, of which one has the buffer. Train in one process",
        ),
        (
            bool(facts.tools or facts.environments),
            "tools or environments, whose tokens are not the model's. Leave them out",
        ),
        (facts.images, "images, which are not stored. Use prompts of text"),
        (
            bool(settings.get("use_vllm") and settings.get("vllm_importance_sampling_correction")),
            "GRPOConfig(vllm_importance_sampling_correction=True), whose ratio is not stored. Set "
            "it to False",
        ),
        (
            bool(settings.get("beta") and settings.get("sync_ref_model")),
            "GRPOConfig(sync_ref_model=True), which replaces the reference model of stored "
            "responses. Set it to False",
        ),
        (
            aggregation not in (None, "sum_then_normalize"),
            f"GRPOConfig(multi_objective_aggregation={aggregation!r}). Use 'sum_then_normalize'",
        ),
    ]
    for applies, what in refused:
        if applies:
            yield UnsupportedError(
                f"buffer= does not work with {what}, or attach the policy without a buffer."
            )


def unaligned_saves(facts: Facts) -> str | None:
    """The warning that a checkpoint may fall between two generations, or None."""
    names = (
        "steps_per_generation",
        "num_iterations",
        "gradient_accumulation_steps",
        "save_steps",
        "save_strategy",
    )
    known: list[Any] = [facts.settings.get(name) for name in names]
    if None in known:
        return None
    steps, iterations, accumulated, save_steps, strategy = known
    every = steps * iterations
    # below 1: a share of the run
    if strategy != "steps" or save_steps < 1 or not save_steps * accumulated % every:
        return None
    return (
        f"save_steps={save_steps} falls between two generations (one in {every} micro-steps). TRL "
        "does not save "
        "generated batches, so a resumed run generates anew there and differs from an "
        "uninterrupted run. Use a "
        f"multiple of {every // math.gcd(every, accumulated)}."
    )
