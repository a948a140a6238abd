"""The rollouts that a step generates: the candidate prompts, the rounds that the policy requests,
and their rows."""

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from budgetalloc.beliefs.ids import Id
from budgetalloc.training.prompts import turns
from budgetalloc.trl.processes import from_rank_0, gather, rows_of_process
from budgetalloc.trl.training import Rows, Training

__all__ = ["PreparedRound", "copied", "decide", "rows_of", "rows_of_batch"]

_CONSTANT = frozenset((str, int, float, bool, bytes, type(None)))


@dataclass(frozen=True, eq=False)
class PreparedRound:
    """The rollouts that the policy requests in a round.

    Args:
        ids_R: The prompt of each rollout of all processes; empty if the step is complete.
        rows: The rows of this process.
        hinted: Whether they are generated with a hint.
        more: Whether the policy may request more in this step.
    """

    ids_R: list[Id]
    rows: Rows
    hinted: bool
    more: bool


def _next_round(training: Training, number: int, own_rows: dict[Id, Rows]) -> PreparedRound:
    session = training.session
    ids_R = session.request()
    rows = _rows_of_round(training, ids_R, number, own_rows)
    return PreparedRound(ids_R, rows, session.step.hinted, session.step.in_rounds())


def _rows_of_round(
    training: Training, ids_R: list[Id], number: int, own_rows: dict[Id, Rows]
) -> Rows:
    """The rows of this process: each prompt has a turn among the rows of its prompt."""
    policy, accelerator = training.session.policy, training.trainer.accelerator
    turn_R = turns(ids_R, [policy.seed, policy.estimator.step, number, 3])
    turned_R = list(zip(ids_R, turn_R, strict=True))
    return rows_of(
        training,
        rows_of_process(turned_R, accelerator.process_index, accelerator.num_processes),
        own_rows,
    )


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

    def compute() -> PreparedRound:
        if number == 0:
            session.begin(own_ids_R, rollouts, group)
        return _next_round(training, number, own_rows)

    def encode(made: PreparedRound) -> list[int]:
        return [made.hinted, made.more, *session.step.ids_P.find(made.ids_R).tolist()]

    def decode(numbers: list[int]) -> PreparedRound:
        hinted, more, *places = numbers
        if number == 0:
            session.begin(own_ids_R, rollouts, group)
        session.step.hinted, session.step.round = bool(hinted), number
        ids_R = [session.step.ids_P[at] for at in places]
        return PreparedRound(
            ids_R, _rows_of_round(training, ids_R, number, own_rows), bool(hinted), bool(more)
        )

    for number in itertools.count():  # noqa: B007
        made = from_rank_0(
            accelerator, compute, encode, decode, rollouts * session.options.generate + 2
        )
        if not made.ids_R:
            return
        yield made.ids_R, made.rows
        if not made.more:
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


def rows_of(training: Training, ids_R: list[tuple[Id, int]], own_rows: dict[Id, Rows]) -> Rows:
    """A deep copy of a row for each rollout, because TRL, environments and reward functions may
    change rows.

    Args:
        training: The training.
        ids_R: The prompt of each rollout of this process, and its turn among the prompt's rows.
        own_rows: The rows of each prompt in the batch of all processes, if only these are
            candidates.
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
        return {
            key: each if type(each) in _CONSTANT else copied(each) for key, each in value.items()
        }
    if type(value) is list:
        return [each if type(each) in _CONSTANT else copied(each) for each in value]
    return value if type(value) in _CONSTANT else copy.deepcopy(value)
