"""Which rows of the dataset a step generates from, and how many rollouts of each."""

from collections import Counter
from collections.abc import Sequence

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.policies import Policy, Step
from budgetalloc.training.options import Options
from budgetalloc.training.prompts import Prompts, turns


def open_step(
    policy: Policy, options: Options, own_ids: Sequence[Id], pool: Sequence[Id], rollouts: int, group: int
) -> Step:
    """The policy's step among its candidates: the prompts of the loader's batch, with more of the dataset, or all.

    Args:
        policy: Decides.
        options: Candidates and bounds.
        own_ids: The prompt of each row of the loader's batch; unused if the whole dataset is on offer.
        pool: The distinct prompts of the dataset; empty with `candidates=1`.
        rollouts: Rollouts that the step trains on.
        group: verl's `rollout.n`.
    """
    bounds = options.bounds
    own_P = [] if bounds.candidates == "all" else factorize(own_ids)[0]
    ids_P = bounds.offer(own_P, pool, policy.seed, policy.estimator.step)
    return policy.begin(ids_P, bounds.budget(options.generate * rollouts, len(ids_P), group))


def rows_to_roll_out(
    step: Step, own_ids: Sequence[Id], prompts: Prompts | None
) -> tuple[list[int], list[Id], list[int]]:
    """The rows from which the step generates, the prompt of each, and its rollouts: rows of one prompt take turns.

    Args:
        step: The policy's step, of which nothing was requested yet.
        own_ids: The prompt of each row of the loader's batch.
        prompts: The dataset whose rows are wanted; None: those of the loader's batch.
    """
    ids_R = step.ids_P.repeat(step.request())
    turn_R = turns(ids_R, [step.policy.seed, step.policy.estimator.step, 0, 3])  # as with TRL, in its first round
    if prompts is not None:
        places_R = prompts.places_in_turn(list(zip(ids_R, turn_R, strict=True)))
    else:
        rows: dict[Id, list[int]] = {}
        for at, name in enumerate(own_ids):
            rows.setdefault(name, []).append(at)
        places_R = [rows[name][turn % len(rows[name])] for name, turn in zip(ids_R, turn_R, strict=True)]
    counted = Counter(zip(places_R, ids_R, strict=True))
    return [row for row, _ in counted], [name for _, name in counted], list(counted.values())
