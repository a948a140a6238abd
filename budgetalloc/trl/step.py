"""One generation batch of TRL's trainer: decide, generate, record, build TRL's batch, learn and
log.

The policy learns last. If anything before it raises, policy and ledger are unchanged.
"""

import copy
import functools
import inspect
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.metrics import share_without_spread
from budgetalloc.training.prompts import Prompts, turns
from budgetalloc.training.session import Session, rows_to_train_on
from budgetalloc.trl.block_rewards import BlockRewards
from budgetalloc.trl.compatibility import refused_rewards
from budgetalloc.trl.mixin import in_front
from budgetalloc.trl.own_generation import Generations, refusal
from budgetalloc.trl.patching import patched_attribute
from budgetalloc.trl.processes import (
    counted,
    drop_fillers,
    from_rank_0,
    gather,
    gather_rounds,
    merge_rounds,
    process_share,
    rows_of_process,
    select_rows,
)
from budgetalloc.trl.vllm_seeds import Text, seeds_by_row

GROUP = "budgetalloc_group"  # the column that gives reward functions the prompt's id
_CONSTANT = frozenset((str, int, float, bool, bytes, type(None)))
Rows = list[dict[str, Any]]
Generate = Callable[[Rows], dict[str, Any]]  # TRL's `_generate_and_score_completions`


@dataclass(frozen=True, eq=False)
class Training:
    """A training with a policy attached."""

    trainer: Any
    session: Session
    prompts: Prompts
    blocks: BlockRewards | None = None  # where rows are chosen, and warnings are logged
    # rollouts generated at the micro-step of the last generation, the only key
    made: dict[int, int] = field(default_factory=dict)
    # how rewards were summed in the last step, and the functions
    scored: list[Any] = field(default_factory=list)


def run_step(
    training: Training, inputs: Rows, own: Generate
) -> tuple[dict[str, Any], Rollouts | None]:
    """TRL's batch to train on, with as many rows as `inputs`, and the record of the step. Each
    round is generated and scored by `own`.

    There is no record if the trainer's own code makes the batch of several generations.
    """
    trainer, session = training.trainer, training.session
    started, generating, generated = time.perf_counter(), 0.0, 0
    session.follow(trainer.reward_func_names, trainer.reward_weights.tolist())
    session.follow_scale(trainer.scale_rewards)
    scored = [trainer.multi_objective_aggregation, *trainer.reward_funcs]
    if training.scored != scored:
        for error in refused_rewards(trainer, session.policy, session.options):
            raise error
        training.scored[:] = scored
    outputs: list[dict[str, Any]] = []
    sizes: list[int] = []  # of the rounds
    sent = Counter[Text]()  # to vLLM
    total = len(inputs) * trainer.accelerator.num_processes
    for ids_R, rows in decide(training, inputs):
        generation_started = time.perf_counter()
        made, output, number = generate(training, own, ids_R, rows, sent)
        generating += time.perf_counter() - generation_started
        generated += number
        if made is None:
            log_generated(training, generated, total)
            return output, None
        if training.blocks is not None:
            training.blocks.add(session.scoring.names, made["scores_RF"])
        group_R = None  # TRL's own groups, where its rows are unchanged
        if session.options.keep_batch:
            group_R = [row // trainer.num_generations for row in range(len(ids_R))]
        session.observe(ids_R, **made, groups_R=group_R)
        outputs.append(output)
        sizes.append(len(ids_R))
    if sum(sizes) < total:
        raise InputError(
            f"{session.policy} requested {sum(sizes)} rollouts in one step, and the trainer trains "
            f"on {total}: request at least {total}."
        )
    batch = session.record(trainer.state.global_step)
    output, everyones_R, kept_R = batch_to_train_on(training, batch, sizes, outputs, total)
    metrics = session.end(everyones_R, kept_R).metrics
    metrics["seconds"] = time.perf_counter() - started - generating
    metrics.pop("generated", None)
    log(training, batch, len(outputs), metrics)
    log_generated(training, generated, total)
    return output, batch


def log_generated(training: Training, generated: int, total: int) -> None:
    """Logs how many rollouts were generated, if not as many as are trained on. A trainer that drops
    a batch and generates another one has both counted."""
    trainer, made = training.trainer, training.made
    logged = trainer._metrics["train"]["budgetalloc/generated"]
    before = made.pop(trainer._step, 0)
    if before not in (0, total):
        logged.pop()
    made.clear()
    made[trainer._step] = before + generated
    if before + generated != total:
        logged.append(float(before + generated))
    elif not logged:  # TRL divides by the number of entries
        del trainer._metrics["train"]["budgetalloc/generated"]


def log(training: Training, batch: Rollouts, rounds: int, metrics: dict[str, float]) -> None:
    """Writes the step's metrics to the trainer's own log.

    TRL's `frac_reward_zero_std` is correct if its rows are unchanged. Otherwise TRL treated each
    row as a group: its entry is removed, and the share by the true groups is logged as
    `budgetalloc/frac_reward_zero_std`.
    """
    logged = training.trainer._metrics["train"]
    if not training.session.options.keep_batch:
        del logged["frac_reward_zero_std"][-rounds:]
        if not logged["frac_reward_zero_std"]:  # TRL divides by the number of entries
            del logged["frac_reward_zero_std"]
        if batch.counts_G.max() > 1:
            metrics = metrics | {"frac_reward_zero_std": share_without_spread(batch)}
    for key, value in metrics.items():
        logged[f"budgetalloc/{key}"].append(value)


# --- what is generated


def decide(training: Training, inputs: Rows) -> Iterator[tuple[list[Id], Rows]]:
    """For each round: the prompts of all processes' rows, and the rows of this process.

    Process 0 decides and broadcasts the decision. The other processes read no beliefs to decide.
    All processes observe the rewards of all.
    """
    session, accelerator, group = (
        training.session,
        training.trainer.accelerator,
        training.trainer.num_generations,
    )
    rollouts = len(inputs) * accelerator.num_processes
    own_ids_R: list[Id] = []
    if session.from_loader:
        own_ids_R = gather(accelerator, training.prompts.ids(inputs))
    if session.options.keep_batch:
        session.begin(own_ids_R, rollouts, group)
        yield own_ids_R, inputs
        return
    own_rows = rows_of_batch(training, inputs) if session.options.bounds.candidates == 1 else {}

    def compute() -> tuple[list[Id], Rows, bool]:
        if number == 0:
            session.begin(own_ids_R, rollouts, group)
        ids_R = session.request()
        return ids_R, rows_of(training, ids_R, number, own_rows), session.step.in_rounds()

    def encode(made: tuple[list[Id], Rows, bool]) -> list[int]:
        ids_R, _, more = made
        return [session.step.hinted, more, *session.step.ids_P.find(ids_R).tolist()]

    def decode(numbers: list[int]) -> tuple[list[Id], Rows, bool]:
        hinted, more, *places = numbers
        if number == 0:
            session.begin(own_ids_R, rollouts, group)
        session.step.hinted, session.step.round = bool(hinted), number
        ids_R = [session.step.ids_P[at] for at in places]
        return ids_R, rows_of(training, ids_R, number, own_rows), bool(more)

    most = rollouts * session.options.generate + 2
    for number in itertools.count():  # noqa: B007
        ids_R, rows, more = from_rank_0(accelerator, compute, encode, decode, most)
        if not ids_R:
            return
        yield ids_R, rows
        if not more:
            return


def rows_of_batch(training: Training, inputs: Rows) -> dict[Id, Rows]:
    """The distinct rows of each prompt in the batch of all processes, in the batch's order.

    TRL's loader repeats each row `num_generations` times, so positions tell different rows of one
    prompt apart.
    """
    accelerator, size = training.trainer.accelerator, training.trainer.num_generations
    start = accelerator.process_index * len(inputs)
    mine: dict[tuple[Id, int], dict[str, Any]] = {}
    for at, (name, row) in enumerate(zip(training.prompts.ids(inputs), inputs, strict=True), start):
        mine.setdefault((name, at // size), row)
    everyones: dict[tuple[Id, int], dict[str, Any]] = {}
    for key, row in gather(accelerator, list(mine.items())):
        everyones.setdefault(key, row)
    rows: dict[Id, Rows] = {}
    for (name, _), row in everyones.items():
        rows.setdefault(name, []).append(row)
    return rows


def rows_of(training: Training, ids_R: list[Id], number: int, own_rows: dict[Id, Rows]) -> Rows:
    """The rows of this process: each prompt has a turn among the rows of its prompt. Each is a deep
    copy, because TRL, environments and reward functions may change rows. `ids_R` are of all
    processes, and `own_rows` the rows of their batch, if only these are candidates."""
    policy, accelerator = training.session.policy, training.trainer.accelerator
    turn_R = turns(ids_R, [policy.seed, policy.estimator.step, number, 3])
    turned_R = list(zip(ids_R, turn_R, strict=True))
    mine_R = rows_of_process(turned_R, accelerator.process_index, accelerator.num_processes)
    if training.session.options.bounds.candidates == 1:
        return [copied(own_rows[name][turn % len(own_rows[name])]) for name, turn in mine_R]
    return [copied(row) for row in training.prompts.rows_in_turn(mine_R)]


def copied(value: Any) -> Any:
    """A deep copy, faster than `copy.deepcopy` for text, numbers, lists and dicts.

    >>> row = {"prompt": [{"role": "user", "content": "2 + 2 ="}], "answer": "4"}
    >>> copied(row) == row, copied(row)["prompt"][0] is row["prompt"][0]
    (True, False)
    """
    if type(value) is dict:
        return {
            key: each if type(each) in _CONSTANT else copied(each) for key, each in value.items()
        }
    if type(value) is list:
        return [each if type(each) in _CONSTANT else copied(each) for each in value]
    return value if type(value) in _CONSTANT else copy.deepcopy(value)


def generate(
    training: Training, own: Generate, ids_R: list[Id], rows: Rows, sent: Counter[Text]
) -> tuple[dict[str, Any] | None, dict[str, Any], int]:
    """One round of TRL's own generation and scoring: the rollouts of all processes without fillers,
    as arguments of `Session.observe`, TRL's batch of this process, and how many rollouts were
    generated.

    The first is None if the policy decides nothing, and the trainer makes its batch otherwise than
    of what it generated and scored at once.

    TRL's mean lengths include the fillers; all reward statistics exclude them.
    """
    trainer, options, wanted = training.trainer, training.session.options, len(ids_R)
    if training.session.step.hinted and options.hint is not None:
        rows = [options.hint(row) for row in rows]
    mine_R = rows_of_process(
        ids_R, trainer.accelerator.process_index, trainer.accelerator.num_processes
    )
    scored: list[tuple[torch.Tensor, IntArray, list[list[Any]]]] = []
    refuse = None if options.keep_batch else functools.partial(refusal, training.session.policy)
    generations = Generations(trainer, own, rows, refuse)
    names = training.session.reports

    def score_and_keep(
        score: Any, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> torch.Tensor:
        # Added only here: an environment's reset() gets the columns of its row, and may not accept
        # this one.
        grouped = inputs
        if generations.score(inputs, completion_ids_list):
            grouped = [{GROUP: name, **row} for name, row in zip(mine_R, inputs, strict=True)]
        rewards: torch.Tensor = score(grouped, prompts, completions, completion_ids_list)
        lengths = torch.tensor([len(ids) for ids in completion_ids_list], device=rewards.device)
        lengths_R = trainer.accelerator.gather(lengths)[:wanted].cpu().numpy()
        # TRL gathered the rewards already, in the same order.
        reported = (
            gather(trainer.accelerator, reports(trainer, names, grouped, completions))[:wanted]
            if names
            else []
        )
        scored.append((rewards[:wanted], lengths_R, reported))
        if options.keep_batch:
            return rewards
        rewards = rewards.clone()
        rewards[wanted:] = torch.nan  # TRL treats a filler like a rollout without scores
        return rewards

    # TRL's vLLM server treats every num_generations-th row as a prompt, and TRL folds rewards into
    # groups of that size. With chosen rows each row is therefore a group of one; the advantages are
    # replaced afterwards.
    size = trainer.num_generations if options.keep_batch else 1
    one_row_groups = patched_attribute(trainer, "num_generations", size)
    # a rollout_func whose rollouts branch, such as `contrib.trees.Trees`
    trees = trainer.rollout_func if hasattr(trainer.rollout_func, "branches") else None
    if trees is not None:
        trees.begin(mine_R)
    keeping = patched_attribute(trainer, "_budgetalloc_score", score_and_keep)
    # Like num_generations a value that TRL's methods read, which a mixin could not override.
    functions = [without_group(function) for function in trainer.reward_funcs]
    scoring = patched_attribute(trainer, "reward_funcs", functions)
    seeding = nullcontext() if options.keep_batch else seeds_by_row(trainer, sent)
    outermost = in_front(trainer, "_calculate_rewards")
    with keeping, outermost, one_row_groups, scoring, seeding, generations.counted():
        output = own(rows)
    at = generations.of_batch(output) if scored else None
    if trees is not None:
        output |= trees.branches(output["completion_ids"].size(1))
    if not scored:
        raise RuntimeError(
            "TRL did not call _calculate_rewards, so budgetalloc has no rewards of this step."
        )
    if fillers := len(rows) * trainer.accelerator.num_processes - wanted:
        drop_fillers(trainer._logs, fillers)
    if at is None:
        return None, output, generations.generated()
    rewards_per_func, lengths_R, reported = scored[at]
    # TRL's weighted sum; NaN where no reward function scored the rollout
    weights = trainer.reward_weights.to(rewards_per_func.device)
    rewards_R = (rewards_per_func * weights).nansum(dim=1)
    rewards_R[torch.isnan(rewards_per_func).all(dim=1)] = torch.nan
    made: dict[str, Any] = {
        # on the CPU first: MPS has no float64
        "scores_RF": rewards_per_func.cpu().double().numpy(),
        "rewards_R": rewards_R.cpu().double().numpy(),
        "lengths_R": lengths_R,
    }
    if training.session.prompt_lengths:
        prompt_lengths = trainer.accelerator.gather(output["prompt_mask"].sum(dim=1))
        made["prompt_lengths_R"] = prompt_lengths[:wanted].cpu().numpy()
    if names:
        made["costs_R"] = {name: [row[at] for row in reported] for at, name in enumerate(names)}
    return made, output, generations.generated() if options.keep_batch else wanted


def without_group(function: Any) -> Any:
    """The reward function, without the column `GROUP` if it names its arguments and not this one.

    A model is called by TRL itself, without columns.
    """
    if isinstance(function, torch.nn.Module):
        return function
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # it has none that can be read
        return function
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    if takes_all or GROUP in parameters:
        return function
    called = function
    while isinstance(called, functools.partial):
        called = called.func
    if inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(called.__call__):

        @functools.wraps(function)
        async def scored_later(**columns: Any) -> Any:
            return await function(**{k: x for k, x in columns.items() if k != GROUP})

        return scored_later

    @functools.wraps(function)
    def scored(**columns: Any) -> Any:
        return function(**{k: x for k, x in columns.items() if k != GROUP})

    return scored


def reports(
    trainer: Any, names: Sequence[str], inputs: Sequence[Any], completions: Sequence[Any]
) -> list[list[Any]]:
    """One list of values for each rollout of this process, in the order of `names`; None where
    nothing is reported.

    A name is looked up in this order, after the reward functions have run:

    1. `log_extra(name, values)`, which TRL passes to reward functions (one value for each rollout);
    2. an attribute of the rollout's environment (`environment_factory`);
    3. a column that `rollout_func` returned, or of the dataset;
    4. for "turns", the number of the model's messages in a conversation.

    Args:
        trainer: The trainer, inside `_calculate_rewards`.
        names: What may be reported.
        inputs, completions: The arguments of `_calculate_rewards`.

    >>> from types import SimpleNamespace
    >>> trainer = SimpleNamespace(environments=[SimpleNamespace(seconds=2.5)],
    ...     _pending_extra_logs={"calls": [4]})
    >>> chat = [{"role": "assistant"}, {"role": "tool"}, {"role": "assistant"}]
    >>> reports(trainer, ["calls", "seconds", "turns", "price"], [{"price": 7}], [chat])
    [[4, 2.5, 2, 7]]
    """
    logged: dict[str, list[Any]] = getattr(trainer, "_pending_extra_logs", {})
    environments: Sequence[Any] = getattr(trainer, "environments", None) or []
    # there are none, or another version of TRL holds them otherwise
    if len(environments) != len(inputs):
        environments = [None] * len(inputs)

    def value(name: str, at: int) -> Any:
        # several functions may have logged it
        if name in logged and len(logged[name]) == len(inputs):
            return logged[name][at]
        for found in (getattr(environments[at], name, None), inputs[at].get(name)):
            if found is not None:
                return found
        if name == "turns" and isinstance(completions[at], list):
            return sum(message.get("role") == "assistant" for message in completions[at])
        return None

    return [[value(name, at) for name in names] for at in range(len(inputs))]


# --- what is trained on


def batch_to_train_on(
    training: Training, batch: Rollouts, sizes: list[int], outputs: list[dict[str, Any]], total: int
) -> tuple[dict[str, Any], FloatArray, IntArray]:
    """TRL's batch of this process, the advantages of all processes' rows, and the rollouts that are
    trained on.

    The batches have `total` rows in all, and are made of TRL's batches of the rounds, which have
    these sizes.
    """
    policy, options = training.session.policy, training.session.options
    trainer, accelerator = training.trainer, training.trainer.accelerator
    pad_token_id = trainer._tokenizer.pad_token_id
    # If rows are reordered, every process builds the whole batch and takes its share at the end.
    shared = accelerator.num_processes > 1 and (len(sizes) > 1 or len(batch) != total)
    output = (
        gather_rounds(outputs, sizes, accelerator, pad_token_id)
        if shared
        else merge_rounds(outputs, pad_token_id)
    )
    # Advantages are those of the rows trained on. Beliefs, metrics and ledger count fresh rollouts
    # only.
    replaced, trained = np.zeros(0, dtype=np.int64), batch
    if options.buffer is not None:  # `contrib.stored_responses`
        replaced, rewards_R = options.buffer.substitute(
            batch.ids_R, batch.rewards_R, batch.success_R, batch.step
        )
        trained = batch.with_rewards(rewards_R)
    if "branch_ids" in output:
        _put_branch_advantages(training, batch, output)
    elif options.baseline is not None:
        advantages_R = options.advantages(trained).values_R
        if len(replaced):  # these wrong responses are not trained on
            advantages_R = advantages_R.copy()
            advantages_R[replaced] = 0.0
            mask = output["completion_mask"].clone()
            mask[torch.as_tensor(replaced, device=mask.device)] = 0
            output = counted(output | {"completion_mask": mask})
        put_advantages(trainer, output, advantages_R)
    kept_R = np.arange(len(batch))
    if policy.keep is not None and len(batch) > total:
        kept_R = from_rank_0(
            accelerator,
            lambda: rows_to_train_on(policy, batch, total, trained.rewards_R),
            np.ndarray.tolist,
            np.array,
            total,
        )
        output = select_rows(output, kept_R)
    if shared:
        output = process_share(output, accelerator.process_index, accelerator.num_processes)
    if output["advantages"].dim() == 2:  # by branch, in one process
        everyones = _mean_over_tokens(output["advantages"], output["completion_mask"]).cpu()
    elif options.baseline is None:
        everyones = accelerator.gather(output["advantages"]).cpu()
    else:  # every process computed them: an exchange would wait
        everyones = torch.as_tensor(advantages_R[kept_R], dtype=output["advantages"].dtype)
    trained_on_R = np.setdiff1d(kept_R, replaced)
    return output, np.asarray(everyones.double().numpy()), trained_on_R


def _put_branch_advantages(training: Training, batch: Rollouts, output: dict[str, Any]) -> None:
    """Replaces a number for each rollout by one for each token, which TRL's losses accept; its
    table gets the means."""
    branch_RT, weight_R = (
        output.pop("branch_ids").cpu().numpy(),
        output.pop("branch_weights").cpu().double().numpy(),
    )
    trees, options = training.trainer.rollout_func, training.session.options
    values_RT = trees.advantages(batch, options, branch_RT, weight_R)
    values = torch.as_tensor(
        values_RT, dtype=output["advantages"].dtype, device=output["advantages"].device
    )
    put_advantages(
        training.trainer, output, _mean_over_tokens(values, output["completion_mask"]).cpu().numpy()
    )
    output["advantages"] = values


def _mean_over_tokens(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (values * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def put_advantages(trainer: Any, output: dict[str, Any], advantages_R: FloatArray) -> None:
    """Writes advantages into TRL's batch, of this process or of all, and into TRL's table of
    completions."""
    old = output["advantages"]
    start = 0 if len(old) == len(advantages_R) else trainer.accelerator.process_index * len(old)
    mine = advantages_R[start : start + len(old)]
    output["advantages"] = torch.as_tensor(mine, dtype=old.dtype, device=old.device)
    table = trainer._logs["advantages"]  # its last rows are this batch's
    shown_R = advantages_R[-len(table) :].tolist()  # the table has at most as many rows as a batch
    for at, value in enumerate(shown_R, start=len(table) - len(shown_R)):
        table[at] = value
