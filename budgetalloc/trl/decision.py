"""The rollouts that a step generates: the candidate prompts, the rounds that the policy requests, and their rows."""

import copy
import itertools
from collections.abc import Iterator
from typing import Any

from budgetalloc.beliefs.ids import Id
from budgetalloc.training.prompts import turns
from budgetalloc.trl.prefetch import PreparedStep
from budgetalloc.trl.processes import decide_on_rank_0, gather, rows_of_process
from budgetalloc.trl.training import Rows, Training

__all__ = ["copied", "decide", "prefetch_next_step", "rows_of", "rows_of_batch", "take_or_begin_step"]

_CONSTANT = frozenset((str, int, float, bool, bytes, type(None)))


def take_or_begin_step(training: Training, inputs: Rows) -> PreparedStep:
    """Begins the policy's step, unless a prefetched one is still valid."""
    session, accelerator = training.session, training.trainer.accelerator
    rollouts, group = len(inputs) * accelerator.num_processes, training.trainer.num_generations
    from_loader = session.options.bounds.candidates != "all"
    opened = None if training.ahead is None else training.ahead.take((session.policy.estimator.step, len(inputs)))
    if opened is None:
        own_ids_R = gather(accelerator, training.prompts.ids(inputs) if from_loader else [])
        session.begin(own_ids_R, rollouts, group)
        opened = PreparedStep(own_ids_R)
    if session.shadow is not None and not from_loader and session.shadow.from_loader:
        session.shadow.offer(gather(accelerator, training.prompts.ids(inputs)), rollouts, group)
    return opened


def prefetch_next_step(training: Training, rollouts: int) -> None:
    """Begins the next step in a thread, if its decision depends only on what is known now."""
    session, group = training.session, training.trainer.num_generations

    def opened() -> PreparedStep:
        session.begin([], rollouts, group)
        ids_R = session.request()
        rows = rows_of(training, _with_turns(training, ids_R, 0), {})
        return PreparedStep([], (ids_R, rows) if ids_R else None)

    if training.ahead is not None:
        training.ahead.begin((session.policy.estimator.step, rollouts), opened)


def _with_turns(training: Training, ids_R: list[Id], number: int) -> list[tuple[Id, int]]:
    """Each prompt of this round with the rollout's turn among the rows of its prompt."""
    policy = training.session.policy
    turn_R = turns(ids_R, [policy.seed, policy.estimator.step, number, 3])
    return list(zip(ids_R, turn_R, strict=True))


def decide(training: Training, opened: PreparedStep, inputs: Rows) -> Iterator[tuple[list[Id], Rows]]:
    """For each round: the prompts of all processes' rows, and the rows of this process.

    Process 0 decides and broadcasts the decision. All processes observe the rewards of all.
    """
    session, accelerator = training.session, training.trainer.accelerator
    if session.options.keep_batch:
        yield opened.own_ids_R, inputs
        return
    step = session.step
    own_rows = rows_of_batch(training, inputs) if session.options.bounds.candidates == 1 else {}
    if opened.first is not None:
        yield opened.first
        if not step.in_rounds():
            return
    for number in itertools.count(0 if opened.first is None else 1):
        ids_R, step.hinted = decide_on_rank_0(accelerator, lambda: (session.request(), step.hinted))
        if not ids_R:
            return
        turn_R = _with_turns(training, ids_R, number)
        mine_R = rows_of_process(turn_R, accelerator.process_index, accelerator.num_processes)
        yield ids_R, rows_of(training, mine_R, own_rows)


def rows_of_batch(training: Training, inputs: Rows) -> dict[Id, Rows]:
    """The distinct rows of each prompt in the batch of all processes, in the batch's order.

    TRL's loader repeats each row `num_generations` times, so positions tell different rows of one prompt apart.
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
    """A deep copy of a row for each rollout, because TRL, environments and reward functions may change rows.

    Args:
        training: The training.
        ids_R: The prompt of each rollout of this process, and its turn among the prompt's rows.
        own_rows: The rows of each prompt in the batch of all processes, if only these are candidates.
    """
    if training.session.options.bounds.candidates == 1:
        return [copied(own_rows[name][turn % len(own_rows[name])]) for name, turn in ids_R]
    return [copied(row) for row in training.prompts.rows_in_turn(ids_R)]


def copied(value: Any) -> Any:
    """A deep copy, faster than `copy.deepcopy` for text, numbers, lists and dicts.

    >>> row = {"prompt": [{"role": "user", "content": "2 + 2 ="}], "answer": "4"}
    >>> copied(row) == row, copied(row)["prompt"][0] is row["prompt"][0]
    (True, False)
    """
    if type(value) is dict:
        return {key: each if type(each) in _CONSTANT else copied(each) for key, each in value.items()}
    if type(value) is list:
        return [each if type(each) in _CONSTANT else copied(each) for each in value]
    return value if type(value) in _CONSTANT else copy.deepcopy(value)
