"""What the callback refuses before any GPU time is spent: trainers, versions, datasets and options
that would give wrong results."""

import logging
import math
import os
from collections.abc import Iterator
from typing import Any

import trl
from packaging.version import Version
from trl import GRPOTrainer

from budgetalloc.errors import BudgetallocError, InputError, UnsupportedError
from budgetalloc.policies import Policy
from budgetalloc.training.options import Options
from budgetalloc.training.prompts import Prompts
from budgetalloc.trl.block_rewards import block_in
from budgetalloc.trl.own_generation import reads_of_groups, refusal

logger = logging.getLogger(__name__)

_TESTED = Version("1.14"), Version("1.17.dev0")  # from, and below
_INSTALL = "Install trl 1.14 to 1.16, or a newer budgetalloc."

# The attributes of TRL's trainer that the callback uses; read in 1.14.2, 1.15.0 and 1.16.0.
HELD = ("_generate_and_score_completions", "_calculate_rewards")
SEAM = (
    *HELD,
    "train",
    "_save_checkpoint",
    "_get_output_dir",
    "_load_optimizer_and_scheduler",
    "_metrics",
    "_logs",
    "_step",
    "_tokenizer",
    "num_generations",
    "num_iterations",
    "reward_weights",
    "reward_func_names",
    "scale_rewards",
    "multi_objective_aggregation",
)

# Trainers of TRL 1.16 that generate and score, and the reason why they are not supported.
_REFUSED = {
    "RLOOTrainer": "RLOOTrainer adds a KL penalty to the rewards and returns it only as part of "
    "the advantages of equal groups, so the advantages of uneven groups would lack the penalty. "
    "Use GRPOTrainer with AdaptiveGRPOCallback(trainer, baseline='loo', scale='none'): the "
    "leave-one-out advantages are the same, and GRPOConfig(beta=) puts the KL into the loss.",
    "AsyncGRPOTrainer": "The rollout worker of AsyncGRPOTrainer generates num_generations rollouts "
    "of each row, outside the trainer and ahead of it. Use the worker of budgetalloc: worker = "
    "AdaptiveRolloutWorker(policy, reward_funcs=...), AsyncGRPOTrainer(..., "
    "rollout_worker=worker), worker.attach(trainer). Or use GRPOTrainer.",
    "SDPOTrainer": "SDPOTrainer finds the rollouts of a prompt by their position, num_generations "
    "in a row. Use GRPOTrainer.",
    "OnlineDPOTrainer": "OnlineDPOTrainer learns from pairs, always two rollouts a prompt. Use "
    "GRPOTrainer.",
    "A2POTrainer": "A2POTrainer learns from one completion per prompt. Use GRPOTrainer.",
    "UnslothGRPOTrainer": "Unsloth replaces trl.GRPOTrainer by a class of its own when it is "
    "imported. Import unsloth before budgetalloc.trl.",
}

# Options of Unsloth 2026.10.9 that weigh rollouts by their place, num_generations in a row.
_BY_PLACE = ("UNSLOTH_GRPO_ZERO_VARIANCE_EXCLUDE", "UNSLOTH_GRPO_LOSS_AGGREGATION")


def _class_names(thing: Any) -> list[str]:
    return [cls.__name__ for cls in type(thing).__mro__]


def check_trainer(trainer: Any) -> None:
    """Raises `UnsupportedError` unless this is a `GRPOTrainer` with every method and attribute of
    `SEAM`."""
    if not isinstance(trainer, GRPOTrainer):
        names = _class_names(trainer)
        pass_it = "Pass the trainer itself, as in AdaptiveGRPOCallback(trainer, policy)."
        advice = next((_REFUSED[name] for name in names if name in _REFUSED), pass_it)
        raise UnsupportedError(
            f"trainer is a {names[0]}: AdaptiveGRPOCallback supports trl.GRPOTrainer and its "
            f"subclasses. {advice}"
        )
    missing = [name for name in SEAM if not hasattr(trainer, name)]
    if missing:
        raise UnsupportedError(
            f"TRL {trl.__version__} has no GRPOTrainer.{missing[0]}, which AdaptiveGRPOCallback "
            f"needs (missing: {missing}). {_INSTALL}"
        )
    if not _TESTED[0] <= Version(trl.__version__) < _TESTED[1]:
        logger.warning("TRL %s is not tested with this budgetalloc. %s", trl.__version__, _INSTALL)
    if attached(trainer):
        raise InputError(
            "trainer has an AdaptiveGRPOCallback already: call trainer.remove_callback(...) first.",
            argument="trainer",
        )


def check_only_one(trainer: Any, callback: Any, state: Any) -> None:
    """Raises `InputError` unless the trainer has this callback once, and no other of its kind, and
    is the trainer that trains, whose state is given."""
    if state is not trainer.state:
        raise InputError(
            "The AdaptiveGRPOCallback was made for another trainer than the one that trains: add "
            "AdaptiveGRPOCallback(trainer, policy), made for this trainer.",
            argument="trainer",
        )
    found = attached(trainer)
    if found != [callback]:
        raise InputError("trainer", f"has {len(found)} AdaptiveGRPOCallbacks: add exactly one.")


def attached(trainer: Any) -> list[Any]:
    """The AdaptiveGRPOCallbacks among the trainer's callbacks."""
    callbacks = trainer.callback_handler.callbacks
    return [each for each in callbacks if "AdaptiveGRPOCallback" in _class_names(each)]


def check_compatible(
    trainer: Any, policy: Policy, options: Options, prompts: Prompts, ledger: Any = None
) -> str | None:
    """Raises if uneven groups, chosen rows or stored responses would give wrong results.

    Returns:
        None, or the reason why a policy that decides nothing cannot observe this training: nothing
            identifies its prompts. TRL then trains as without the policy. With a ledger the reason
            is raised.
    """
    for error in _refusals(trainer, policy, options, prompts):
        raise error
    reason: BudgetallocError | None = None
    try:
        if prompts.column is not None and trainer.args.remove_unused_columns:
            raise InputError(
                f"GRPOConfig(remove_unused_columns=True) drops the column {prompts.name!r}. Set it "
                "to False."
            )
        prompts.check()
    except InputError as error:
        if options.baseline is not None:
            raise
        reason = error
    if options.baseline is not None:
        return None
    reason = reason or unnamed_tasks(trainer, prompts) or prompts.unnamed or prompts.unnamed_row()
    if reason is None:
        return None
    if ledger is not None:
        raise UnsupportedError(f"ledger={str(ledger)!r} needs names of prompts. {reason}")
    return (
        f"{policy} decides nothing, and nothing tells the prompts apart: TRL trains as without it, "
        f"the log has no budgetalloc/ metrics, and checkpoints hold no beliefs. {reason}"
    )


def refused_rewards(trainer: Any, policy: Policy, options: Options) -> Iterator[BudgetallocError]:
    """What is refused of the trainer's reward functions and of how it sums their rewards."""
    aggregation, group = trainer.multi_objective_aggregation, trainer.num_generations
    if options.baseline is not None and aggregation != "sum_then_normalize":
        yield UnsupportedError(
            f"GRPOConfig(multi_objective_aggregation={aggregation!r}) normalises each reward over "
            "equal groups. Use 'sum_then_normalize', or attach uniform() without baseline=, "
            "scale=, weight= and resolution=."
        )
    if not options.keep_batch:
        for name, function in zip(trainer.reward_func_names, trainer.reward_funcs, strict=False):
            if (line := block_in(function, group)) is not None:
                yield UnsupportedError(
                    f"The reward function {name!r} seems to compare the completions of "
                    f"num_generations={group} adjacent rows, in the line {line!r}. They are not of "
                    f"one prompt under {policy}. Group its rows by the argument budgetalloc_group, "
                    "which holds the id of each row's prompt (integrations/trl/README.md). If it "
                    f"scores each row alone, say so: {name}.by_row = True."
                )


def _refusals(
    trainer: Any, policy: Policy, options: Options, prompts: Prompts
) -> Iterator[BudgetallocError]:
    dataset, rows, group = (
        trainer.train_dataset,
        trainer.args.generation_batch_size,
        trainer.num_generations,
    )
    columns = prompts.columns
    candidates, times = options.bounds.candidates, options.generate
    batch = rows // group
    if hasattr(dataset, "__len__") and len(dataset) < batch:
        yield InputError(
            f"The train dataset has {len(dataset)} rows and a generation batch takes {batch} "
            f"prompts (generation_batch_size={rows} / num_generations={group}): TRL drops batches "
            f"that are not full and would train nothing. Use a dataset of at least {batch} rows, "
            "or a smaller generation_batch_size."
        )
    yield from refused_rewards(trainer, policy, options)
    if policy.plan:
        yield UnsupportedError(
            f"{policy} has a plan: its budget varies over the run, and GRPOTrainer generates "
            f"{rows} "
            "rows at every step (GRPOConfig.generation_batch_size). Attach the policy without a "
            "plan; or use AsyncGRPOTrainer with AdaptiveRolloutWorker(rollouts_per_step=), or "
            "verl, whose steps may have different sizes."
        )
    of_unsloth = "UnslothGRPOTrainer" in _class_names(trainer) and not options.keep_batch
    for name in _BY_PLACE if of_unsloth else ():
        if os.environ.get(name, "0") not in ("", "0"):
            yield UnsupportedError(
                f"{name}={os.environ[name]!r}: Unsloth then weighs rollouts by groups of "
                "num_generations rows, which are not the policy's groups. Unset it."
            )
    if times > 1 and policy.keep is None:
        yield InputError(
            f"{policy} generates up to {times} times as many rollouts as the trainer trains on, "
            f"and has no keep= that chooses among them: up to {times * rows} rows would be in the "
            f"loss, where GRPOConfig asks for {rows}. Give the Policy a keep=, or needs with "
            "generate=1."
        )
    if not options.keep_batch and (read := reads_of_groups(trainer)):
        yield refusal(policy, read)
    if options.buffer is not None:
        if not hasattr(options.buffer, "substitute"):
            yield InputError("buffer", "pass a CorrectResponseBuffer.", options.buffer)
        if (processes := trainer.accelerator.num_processes) > 1:
            yield UnsupportedError(
                f"buffer= does not work with {processes} processes, of which each has a share of "
                "the rows. Use one process, or no buffer."
            )
    if candidates != 1 and not prompts.indexable:
        yield UnsupportedError(
            f"candidates={candidates!r} chooses rows of the train dataset, which is not possible "
            f"in a {type(dataset).__name__}. Pass a datasets.Dataset, or candidates=1 to move "
            "rollouts inside each batch."
        )
    if options.baseline is not None and (unnamed := unnamed_tasks(trainer, prompts)):
        yield unnamed
    if times > 1 and {"image", "images"} & set(columns):
        yield UnsupportedError(
            f"The policy generates up to {times} times as many rollouts as it trains on, and the "
            "train dataset has images, of which TRL does not keep one row of pixels per rollout. "
            "Use a policy that trains on all rollouts that it generates."
        )
    if hasattr(trainer.rollout_func, "refusals"):  # `contrib.trees.Trees`
        yield from trainer.rollout_func.refusals(trainer, policy, options)


def unnamed_tasks(trainer: Any, prompts: Prompts) -> UnsupportedError | None:
    """The error about environments whose tasks no column identifies, or None."""
    if getattr(trainer, "environment_factories", None) is None or prompts.column is not None:
        return None
    name = prompts.name
    return UnsupportedError(
        "With environment_factory the environment's reset() chooses the task, so the text of a row "
        f"alone does not identify a prompt. Add a column {name!r} of ints or strings that names "
        "the task. If the environment holds the data and there is no dataset, pass a placeholder: "
        'train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": ""}], '
        f'"{name}": n}} for n in range(1000)]), and let reset({name}, **_) choose the task by it.'
    )


def _candidates(options: Options, prompts: Prompts, batch: int) -> int:
    """The prompts that a step chooses among, if its batch has so many."""
    if prompts.indexable and getattr(prompts.dataset, "column_names", None):
        return options.bounds.on_offer(batch, len(prompts.pool))
    return batch


def check_budget(options: Options, prompts: Prompts, rollouts: int, group: int) -> None:
    """Raises `BudgetError` unless a step's candidate prompts can spend the rollouts that it trains
    on within the bounds."""
    candidates = _candidates(options, prompts, rollouts // group)
    budget = options.bounds.budget(rollouts * options.generate, candidates, group)
    if options.domain is None:  # else the part, which knows the candidates of each domain
        budget.check(candidates)


def broken_assumptions(trainer: Any, options: Options, prompts: Prompts) -> Iterator[str]:
    """What may be assumed of TRL's batches and does not hold under a policy that decides, a warning
    each."""
    batch = trainer.args.generation_batch_size // trainer.num_generations
    if _candidates(options, prompts, batch) == 1:
        yield (
            "Each step has one prompt to choose among, so the policy has nothing to decide. Give "
            "the trainer a dataset of several prompts, or a larger generation_batch_size."
        )
    own = [
        name
        for name in ("_get_train_sampler", "get_train_dataloader")
        if getattr(getattr(trainer, name), "__func__", None) is not getattr(GRPOTrainer, name)
    ]
    if options.bounds.candidates != 1 and (own or not trainer.shuffle_dataset):
        who = f"{own[0]} of your own" if own else "shuffle_dataset=False"
        yield (
            f"The order of the rows ({who}) is not kept: with candidates="
            f"{options.bounds.candidates!r} the policy chooses among all prompts from the first "
            "step on. candidates=1 keeps the order."
        )
    if trainer.rollout_func is not None and not hasattr(trainer.rollout_func, "branches"):
        yield (
            "rollout_func gets a prompt for each rollout, and the rollouts of a prompt are not "
            f"{trainer.num_generations} in a row: their number varies, and trainer.num_generations "
            "is 1 while it runs. It must return a completion for each prompt that it gets."
        )


def no_decision(steps: int) -> UnsupportedError:
    """The error about a TRL that trained without the policy."""
    return UnsupportedError(
        f"TRL {trl.__version__} trained {steps} steps without calling "
        "GRPOTrainer._generate_and_score_completions on the trainer, so the policy made no "
        f"decision. {_INSTALL}"
    )


def unrecorded(trainer: Any, policy: Policy) -> str:
    """The warning about a batch of which nothing is known but its rows."""
    return (
        f"{type(trainer).__name__} makes a batch otherwise than of the rollouts that TRL generated "
        f"and scored at once. It is trained on as without {policy}, and such steps are neither "
        "observed nor in the ledger."
    )


def unaligned_saves(trainer: Any) -> str | None:
    """The warning that a checkpoint may fall between two generations, or None."""
    args, every = trainer.args, trainer.args.steps_per_generation * trainer.num_iterations
    accumulated, save_steps = args.gradient_accumulation_steps, args.save_steps
    # below 1: a share of the run
    if args.save_strategy != "steps" or save_steps < 1 or not save_steps * accumulated % every:
        return None
    return (
        f"save_steps={save_steps} falls between two generations (one in {every} micro-steps). TRL "
        "does not save generated batches, so a resumed run generates anew there and differs from "
        f"an uninterrupted run. Use a multiple of {every // math.gcd(every, accumulated)}."
    )
