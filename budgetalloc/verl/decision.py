"""Which rows of the dataset a step generates from, and how many rollouts of each."""

from collections import Counter
from collections.abc import Mapping, Sequence

from budgetalloc.beliefs.ids import Id
from budgetalloc.training.prompts import Prompts, turns
from budgetalloc.training.session import Session

__all__ = ["rows_to_roll_out"]


def rows_to_roll_out(
    session: Session,
    ids_R: list[Id],
    own_ids: Sequence[Id],
    prompts: Prompts | None,
    earlier: Mapping[Id, int] | None = None,
) -> tuple[list[int], list[Id], list[int]]:
    """The rows from which the step generates, the prompt of each, and its rollouts. Rows of one
    prompt take turns.

    Args:
        session: A session with a step.
        ids_R: The prompts that it requested.
        own_ids: The prompt of each row of the loader's batch.
        prompts: The dataset from which rows are taken; None takes the rows of the loader's batch.
        earlier: For later requests of the step, the earlier requests of each prompt. The turns of a
            prompt then do not depend on the other prompts of the request.
    """
    seed = [session.policy.seed, session.policy.estimator.step]
    if earlier is None:
        turn_R = turns(ids_R, [*seed, 0, 3])  # as with TRL, in its first round
    else:
        counts = Counter(ids_R)  # equal ids are neighbours
        places = dict(zip(counts, session.step.ids_P.find(list(counts)).tolist(), strict=True))
        turn_R = [
            turn
            for name, count in counts.items()
            for turn in turns([name] * count, [*seed, earlier.get(name, 0), 3, places[name]])
        ]
    if prompts is not None:
        places_R = prompts.places_in_turn(list(zip(ids_R, turn_R, strict=True)))
    else:
        rows: dict[Id, list[int]] = {}
        for at, name in enumerate(own_ids):
            rows.setdefault(name, []).append(at)
        places_R = [
            rows[name][turn % len(rows[name])] for name, turn in zip(ids_R, turn_R, strict=True)
        ]
    counted = Counter(zip(places_R, ids_R, strict=True))
    return [row for row, _ in counted], [name for _, name in counted], list(counted.values())
