"""GRESO: prompts whose rewards last varied."""

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_integer, check_number
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.ranking import ranked

__all__ = ["greso", "greso_keep"]


def greso_keep(run_P: FloatArray, explore_P: FloatArray, least: float = 0.01) -> FloatArray:
    """The probability to keep a prompt after `run_P` visits in a row without variance: p_e^run, at
    least `least`."""
    return np.asarray(np.maximum(explore_P**run_P, least))


def greso(
    *,
    group: int = 8,
    explore: float = 0.5,
    target: float = 0.25,
    change: float = 0.01,
    least: float = 0.01,
    seed: int = 0,
) -> Policy:
    """Skips prompts with a probability that grows with consecutive visits without variance (GRESO,
    arXiv 2506.02177).

    A prompt whose last z visits each had all rewards equal is skipped with probability 1 - p_e^z.
    Prompts that passed at their last visit have one p_e, prompts that failed another. After each
    step a p_e falls by `change` if its share of the step's groups (all passed, or all failed) is at
    least its target, else it rises. As many of the kept prompts as groups of `group` fit into the
    budget are chosen at random. If there are too few, skipped prompts are added at random, whereas
    the paper loads more prompts and adapts the batch size.

    The defaults, the split of the target (a third for easy prompts, two thirds for hard ones) and
    the bounds of p_e, 0.05 and 0.95, are the released code's. That code counts runs of easy and
    hard visits separately, by mean rewards from 0.98 and up to 0.11, and changes p_e after the
    first epoch only. Our choices: a visit of one rollout changes nothing, and equal rewards count
    as passed if their mean success is at least 1/2.

    Args:
        group: Rollouts of a chosen prompt, at least 1.
        explore: p_e at the start, in [0.05, 0.95].
        target: Target share of groups without variance, both kinds together, in [0, 1].
        change: Step by which p_e moves, in [0, 1].
        least: Smallest probability to keep a prompt, in (0, 1].
        seed: Seeds the draws and the ties.

    >>> from budgetalloc import Budget
    >>> policy = greso(seed=0)
    >>> for _ in range(5):
    ...     policy.observe(["solved"] * 8 + ["half"] * 8, [1] * 8 + [0, 1] * 4)
    >>> policy.allocate(["solved", "half", "new"], Budget(rollouts=16, floor=0))
    array([0, 8, 8])
    """
    check_integer("group", group, 1)
    check_number("explore", explore, 0.05, 0.95)
    check_number("target", target, 0, 1)
    check_number("change", change, 0, 1)
    check_number("least", least, 0, 1, without=(0,))
    targets = {"easy": target / 3, "hard": target * 2 / 3}

    def learn(memory: Memory, visit: Visit) -> None:
        many = visit.scored_V >= 2
        at, equal, easy = visit.at_V[many], ~visit.mixed_V[many], visit.mean_V[many] >= 0.5
        flat = {"easy": equal & easy, "hard": equal & ~easy}
        memory.columns["run"][at] = np.where(equal, memory.columns["run"][at] + 1, 0)
        memory.columns["easy"][at] = flat["easy"]
        for kind, is_flat in flat.items():
            if at.size:
                moved = memory.numbers[kind] - (
                    change if is_flat.mean() >= targets[kind] else -change
                )
                memory.numbers[kind] = min(max(moved, 0.05), 0.95)

    def decide(view: View) -> IntArray:
        explore_P = np.where(view.recall["easy"] > 0, view.numbers["easy"], view.numbers["hard"])
        keep_draw_P, order_draw_P = view.rng.random((2, len(view.ids_P)))
        kept_P = keep_draw_P < greso_keep(view.recall["run"], explore_P, least)
        return ranked(kept_P + order_draw_P + 1e-12, group, view)

    name = f"greso(group={group}, explore={explore}, target={target}, change={change}, least={least}, seed={seed})"
    memory = Memory({"run": 0.0, "easy": 0.0}, learn, {"easy": explore, "hard": explore})
    return Policy(
        name,
        decide,
        BetaEstimator(),
        seed,
        Needs(candidates="all", baseline="group"),
        memory=memory,
    )
