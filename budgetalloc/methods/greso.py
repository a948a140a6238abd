"""GRESO: prompts whose rewards last varied."""

from typing import Annotated

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.methods.rules import by_chance
from budgetalloc.methods.table import AboveZero, Between, Count, Share, method, policy
from budgetalloc.policies import Policy, View


@method("which prompts", "released code")
def greso(
    *,
    group: Count = 8,
    explore: Annotated[float, Between(0.05, 0.95)] = 0.5,
    target: Share = 0.25,
    change: Share = 0.01,
    least: AboveZero = 0.01,
    seed: int = 0,
) -> Policy:
    """Skips prompts whose last visits gave equal rewards, with a probability that rises with the
    number of such visits in a row. It is meant to save the rollouts of groups that would have no
    gradient.

    Formula: skipped with probability 1 - p_e^z after z visits in a row without variance.

    Source: GRESO (arXiv 2506.02177). Compared with the released code, which gives the constants.
    Only the gate is here: the code also discards groups without variance and generates on, for
    which there is `dapo`. In the code a visit is easy from a mean reward of 0.98 on and hard up to
    0.11, and p_e changes after the first epoch only.

    z counts visits of one kind. Prompts that passed at their last visit have one p_e, prompts that
    failed another. After each step a p_e falls by `change` if its share of the step's groups (all
    passed, or all failed) is at least its target (a third of `target`, or two thirds), else it
    rises, within [0.05, 0.95].

    Args:
        explore, least: p_e at the start; smallest probability to keep a prompt.
        target, change: Target share of groups without variance; step by which p_e moves.

    >>> from budgetalloc import Budget
    >>> policy = greso(seed=0)
    >>> for _ in range(5):
    ...     policy.observe(["solved"] * 8 + ["half"] * 8, [1] * 8 + [0, 1] * 4)
    >>> policy.allocate(["solved", "half", "new"], Budget(rollouts=16, floor=0))
    array([0, 8, 8])
    """
    targets = {"easy": target / 3, "hard": target * 2 / 3}

    def learn(memory: Memory, seen: ByPrompt) -> None:
        columns, numbers, many_P = memory.columns, memory.numbers, seen.n_P >= 2
        at = memory.rows(seen.ids_P)[many_P]
        equal, easy = ~seen.mixed_P[many_P], seen.mean_P[many_P] >= 0.5
        longer = columns["run"][at] * (columns["easy"][at] == easy) + 1
        columns["run"][at] = np.where(equal, longer, 0)
        columns["easy"][at] = equal & easy
        for kind, flat in (("easy", equal & easy), ("hard", equal & ~easy)):
            if at.size:
                move = -change if flat.mean() >= targets[kind] else change
                numbers[kind] = min(max(numbers[kind] + move, 0.05), 0.95)

    def chance(view: View) -> FloatArray:
        explore_P = np.where(view.recall["easy"] > 0, view.numbers["easy"], view.numbers["hard"])
        return np.asarray(np.maximum(explore_P ** view.recall["run"], least))

    memory = Memory({"run": 0.0, "easy": 0.0}, learn, {"easy": explore, "hard": explore})
    return policy(by_chance(chance, group), memory=memory, candidates="all")
