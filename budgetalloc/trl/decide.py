"""Whose rollouts a step generates: the prompts on offer, the rounds that the policy asks for, and their rows."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.policies import Step
from budgetalloc.trl.processes import decided_by_first, gather, my_share
from budgetalloc.trl.training import Rows, Training


def open_step(training: Training, inputs: Rows) -> tuple[Step, list[Id]]:
    """The policy's step, and the prompt of each row of all processes where the loader's rows are on offer."""
    options, accelerator = training.options, training.trainer.accelerator
    from_loader = options.bounds.candidates != "all"
    own_ids_R = gather(accelerator, training.prompts.ids(inputs) if from_loader else [])
    ids_P = offer(training, own_ids_R)
    rollouts = len(inputs) * accelerator.num_processes * options.generate
    return training.policy.begin(
        ids_P, options.bounds.budget(rollouts, len(ids_P), training.trainer.num_generations)
    ), own_ids_R


def offer(training: Training, own_ids_R: list[Id]) -> list[Id]:
    """The prompts to choose among: the batch's own, more drawn from the dataset, or all of it."""
    candidates = training.options.bounds.candidates
    if candidates == "all":
        return list(training.pool)
    own_ids_P, _ = factorize(own_ids_R)
    more = (candidates - 1) * len(own_ids_P)
    if not more:
        return own_ids_P
    own = set(own_ids_P)
    others = [name for name in training.pool if name not in own]
    rng = np.random.default_rng([training.policy.seed, training.policy.estimator.step, 2])
    return own_ids_P + [others[at] for at in rng.permutation(len(others))[:more].tolist()]


def decide(training: Training, step: Step, own_ids_R: list[Id], inputs: Rows) -> Iterator[tuple[list[Id], Rows]]:
    """For each round: the prompts of all processes' rows, and the rows of this process.

    Process 0 alone asks the policy; the others are told. All of them observe the rewards of all.
    """
    if training.options.keep_batch:
        yield own_ids_R, inputs
        return
    accelerator = training.trainer.accelerator
    own_ids = training.prompts.ids(inputs) if training.options.bounds.candidates != "all" else []
    own_rows = dict(zip(own_ids[::-1], inputs[::-1], strict=False))  # the first row of each prompt

    def request() -> tuple[list[Id], bool]:
        counts_P = step.request()
        return [step.ids_P[at] for at in np.repeat(np.arange(len(counts_P)), counts_P).tolist()], step.hinted

    while True:
        ids_R, step.hinted = decided_by_first(accelerator, request)
        if not ids_R:
            return
        mine = my_share(ids_R, accelerator.process_index, accelerator.num_processes)
        yield ids_R, rows_of(training, mine, own_rows)


def rows_of(training: Training, ids_R: list[Id], own_rows: dict[Id, dict[str, Any]]) -> Rows:
    """A row for each id: deep copies, because TRL writes into rows, and environments and rewards may change lists.

    With one candidate the rows are those of the batch. `own_rows` holds this process's, and a prompt's rollouts may
    move to a process that has none of it.
    """
    ids_P, group_R = factorize(ids_R)
    if training.options.bounds.candidates == 1:
        everyones = gather(training.trainer.accelerator, list(own_rows.items()))
        rows = dict(everyones[::-1])  # of the first process that has the prompt
        rows_P = [rows[name] for name in ids_P]
    else:
        rows_P = training.prompts.rows([training.pool[name] for name in ids_P])
    return [copy.deepcopy(rows_P[at]) for at in group_R.tolist()]
