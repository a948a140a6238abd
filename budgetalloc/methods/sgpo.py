"""sGPO: group sizes and an order of the prompts by success rates before training."""

from collections.abc import Sequence

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_integer, check_list
from budgetalloc.methods.offline import InitialSuccess, Offline
from budgetalloc.methods.rules import ranked
from budgetalloc.methods.table import Share, method
from budgetalloc.policies import Policy, View

_SIZES = (2, 4, 8)


def sgpo_group(rate_P: FloatArray) -> IntArray:
    """Group sizes: the smallest of 2, 4 and 8 that is at least 1 / p; 0 for p above 3/4, and for p
    = 0."""
    size_P = np.select([rate_P * size >= 1 - 1e-9 for size in _SIZES], _SIZES, _SIZES[-1])
    return np.where((rate_P > 0) & (rate_P <= 0.75), size_P, 0)


@method("which prompts", "a description", starves=True, of_rates=True)
def sgpo(
    *, offline: Offline = 8, phases: Sequence[int] = (50, 100), unsolved: Share = 0.1, seed: int = 0
) -> Policy:
    """Measures every prompt before training, leaves out the easy ones, and goes from frequent to
    rare successes with groups that grow. Large groups then go only to prompts whose successes are
    rare.

    Formula: p of eight rollouts before training: none above 3/4, else groups of 2, then 4, then 8
    >= 1 / p.

    Source: sGPO (arXiv 2606.08854). Compared with a description only: an unofficial implementation.
    The paper was not read. The phases' lengths are our default.

    The eight rollouts are measured by the run's first steps and charged to it. Solved prompts are
    left out. If a phase has too few prompts, others fill the step. Graded success enters through
    its mean.

    Args:
        offline: As in `spo`.
        phases: The training steps at which groups of 4 and of 8 begin.
        unsolved: Probability that a prompt at p = 0 joins a step.

    >>> from budgetalloc import Budget
    >>> policy = sgpo(offline={"half": (4, 8), "rare": (1, 8)}, phases=(1, 2), seed=0)
    >>> policy.observe(["half", "half"], [0, 1])
    >>> policy.observe(["half", "half"], [0, 1])
    >>> policy.allocate(["half", "rare"], Budget(rollouts=2, floor=0))  # groups of 8 have begun
    array([0, 2])
    """
    begins = check_list("phases", phases, "the steps at which groups of 4 and of 8 begin")
    begins = [check_integer("phases", x, 0) for x in begins]
    if len(begins) != 2 or begins[1] < begins[0]:
        raise InputError("phases", "give the steps at which groups of 4 and of 8 begin.", phases)
    reference = InitialSuccess(offline)

    def learn(memory: Memory, seen: ByPrompt) -> None:
        memory.numbers["steps"] += float(reference.learn(memory, seen).any())

    def decide(view: View) -> IntArray:
        successes_P, rollouts_P = reference.results(view)
        rate_P, unknown_P = successes_P / np.maximum(rollouts_P, 1), rollouts_P == 0
        size = _SIZES[sum(view.numbers["steps"] >= begin for begin in begins)]
        join_draw_P, order_draw_P = view.rng.random((2, len(rate_P)))
        joins_P = (rate_P == 0) & ~unknown_P & (join_draw_P < unsolved)
        group_P = sgpo_group(rate_P)
        inside_P = unknown_P | joins_P | (group_P == size)
        return ranked(np.where(inside_P, 2, group_P > 0) + order_draw_P + 1e-12, size, view)

    numbers = {"steps": 0.0}
    return reference.policy(decide, learn=learn, numbers=numbers, scale="group")
