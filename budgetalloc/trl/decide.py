"""The rollouts that a step generates: the candidate prompts, the rounds that the policy requests, and their rows."""

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.policies import Step
from budgetalloc.training.prompts import turns
from budgetalloc.trl.processes import decided_by_first, gather, my_share
from budgetalloc.trl.training import Rows, Training


def open_step(training: Training, inputs: Rows) -> tuple[Step, list[Id]]:
    """The policy's step, and the prompt of each row of all processes if the loader's rows are the candidates."""
    options, accelerator = training.options, training.trainer.accelerator
    from_loader = options.bounds.candidates != "all"
    own_ids_R = gather(accelerator, training.prompts.ids(inputs) if from_loader else [])
    rollouts = len(inputs) * accelerator.num_processes * options.generate
    if training.quotas is not None:
        batch_P, size = factorize(own_ids_R)[0], training.trainer.num_generations
        return training.quotas.begin(training.policy, options.bounds, batch_P, rollouts, size), own_ids_R
    ids_P = offer(training, own_ids_R)
    return training.policy.begin(
        ids_P, options.bounds.budget(rollouts, len(ids_P), training.trainer.num_generations)
    ), own_ids_R


def offer(training: Training, own_ids_R: list[Id]) -> list[Id]:
    """The candidates: the prompts of the batch, with more drawn from the dataset, or the whole dataset."""
    bounds, policy = training.options.bounds, training.policy
    if bounds.candidates == "all":
        return list(training.pool)
    return bounds.offer(factorize(own_ids_R)[0], training.pool, policy.seed, policy.estimator.step)


def decide(training: Training, step: Step, own_ids_R: list[Id], inputs: Rows) -> Iterator[tuple[list[Id], Rows]]:
    """For each round: the prompts of all processes' rows, and the rows of this process.

    Process 0 decides and broadcasts the decision. All processes observe the rewards of all.
    """
    if training.options.keep_batch:
        yield own_ids_R, inputs
        return
    accelerator = training.trainer.accelerator
    own_rows = rows_of_batch(training, inputs) if training.options.bounds.candidates == 1 else {}

    def request() -> tuple[list[Id], bool]:
        counts_P = step.request()
        return [step.ids_P[at] for at in np.repeat(np.arange(len(counts_P)), counts_P).tolist()], step.hinted

    for number in itertools.count():
        ids_R, step.hinted = decided_by_first(accelerator, request)
        if not ids_R:
            return
        turn_R = turns(ids_R, [training.policy.seed, training.policy.estimator.step, number, 3])
        mine_R = my_share(list(zip(ids_R, turn_R, strict=True)), accelerator.process_index, accelerator.num_processes)
        yield ids_R, rows_of(training, mine_R, own_rows)


def rows_of_batch(training: Training, inputs: Rows) -> dict[Id, Rows]:
    """The distinct rows of each prompt in the batch of all processes, in the batch's order.

    TRL's loader repeats each row of the dataset `num_generations` times, so that rows are distinguished by their
    positions.
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


def rows_of(training: Training, ids_R: list[tuple[Id, int]], own_rows: dict[Id, Rows]) -> Rows:
    """A row for each rollout: deep copies, because TRL writes into rows, and environments and rewards may change lists.

    Args:
        training: The training.
        ids_R: The prompt of each rollout of this process, and the index of its turn among the prompt's rows.
        own_rows: The rows of each prompt in the batch of all processes, if only these are candidates. A prompt's
            rollouts may move to a process that has none of its rows.
    """
    if training.options.bounds.candidates == 1:
        return [copy.deepcopy(own_rows[name][turn % len(own_rows[name])]) for name, turn in ids_R]
    return [copy.deepcopy(row) for row in training.prompts.rows_in_turn(ids_R)]
