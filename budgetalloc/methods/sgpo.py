"""sGPO: group sizes and an order of the prompts by success rates before training."""

from collections.abc import Sequence

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_integer, check_number, shown
from budgetalloc.methods.initial_success import COLUMNS, InitialSuccess, Offline, rescale_results
from budgetalloc.policies.interface import Needs, Outcome, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.ranking import ranked

__all__ = ["SIZES", "sgpo", "sgpo_group"]

SIZES = (2, 4, 8)


def sgpo_group(rate_P: FloatArray) -> IntArray:
    """Group sizes: the smallest of 2, 4 and 8 that is at least 1 / p; 0 for p above 3/4, and for p
    = 0."""
    size_P = np.select([rate_P * size >= 1 - 1e-9 for size in SIZES], SIZES, SIZES[-1])
    return np.where((rate_P > 0) & (rate_P <= 0.75), size_P, 0)


def sgpo(
    *, offline: Offline = 8, phases: Sequence[int] = (50, 100), unsolved: float = 0.1, seed: int = 0
) -> Policy:
    """Easy prompts first in groups of 2, then groups of 4 and of 8, by rates before training (sGPO,
    arXiv 2606.08854).

    The rate p of 8 rollouts before training decides. Prompts above 3/4 are never rolled out. Of
    those at 0, a share `unsolved` joins each step in the phase's group size. Other prompts belong
    to the phase of their `sgpo_group`, and prompts without rollouts to every phase. If a phase has
    too few prompts, those of other phases fill the step, and then the rest. The order never
    changes, so prompts that are left out stay out. Advantages are a group's, divided by sqrt(m
    (1-m)) with m its mean. Graded success enters through its mean alone.

    From an unofficial implementation and its notes; the paper was not read. The paper trains each
    phase to convergence; here its length is given.

    Args:
        offline: As in `spo`.
        phases: The training steps at which groups of 4 and of 8 begin; our default.
        unsolved: Probability that a prompt without success joins a step, in [0, 1].
        seed: Seeds the draws.

    >>> from budgetalloc import Budget
    >>> policy = sgpo(offline={"solved": (8, 8), "half": (4, 8), "rare": (1, 8)}, phases=(1, 2), seed=0)
    >>> for _ in range(3):
    ...     print(policy.allocate(["solved", "half", "rare"], Budget(rollouts=2, floor=0)))
    ...     policy.observe(["half", "half"], [0, 1])
    [0 2 0]
    [0 0 2]
    [0 0 2]
    """
    try:
        first, second = (check_integer("phases", x, 0) for x in phases)
    except (TypeError, ValueError) as error:  # InputError is a ValueError
        raise InputError(
            f"phases={shown(phases)}: give the steps at which groups of 4 and of 8 begin."
        ) from error
    if second < first:
        raise InputError(f"phases={shown(phases)}: groups of 8 begin before groups of 4.")
    check_number("unsolved", unsolved, 0, 1)
    reference = InitialSuccess.of(offline)

    def learn(memory: Memory, visit: Visit) -> None:
        memory.numbers["steps"] += float(reference.learn(memory, visit).any())

    def decide(view: View) -> IntArray:
        successes_P, rollouts_P = reference.results(view.ids_P, view.recall)
        rate_P = successes_P / np.maximum(rollouts_P, 1)
        steps = view.numbers["steps"]
        size = SIZES[int(steps >= first) + int(steps >= second)]
        join_draw_P, order_draw_P = view.rng.random((2, len(rate_P)))
        unknown_P = rollouts_P == 0
        joins_P = (rate_P == 0) & ~unknown_P & (join_draw_P < unsolved)
        group_P = sgpo_group(rate_P)
        inside_P = unknown_P | joins_P | (group_P == size)
        return ranked(np.where(inside_P, 2, group_P > 0) + order_draw_P + 1e-12, size, view)

    def expect(outcome: Outcome) -> FloatArray:
        return reference.untrained(outcome, outcome.mean_G)

    name = f"sgpo(offline={reference}, phases={(first, second)}, unsolved={unsolved}, seed={seed})"
    needs = Needs(candidates="all", baseline="policy", scale="group")
    memory = Memory(COLUMNS, learn, {"steps": 0.0}, rescale=rescale_results)
    rule = reference.measured_first(decide)
    return Policy(name, rule, BetaEstimator(), seed, needs, memory=memory, expect=expect)
