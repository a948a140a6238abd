"""AdaRFT: the prompts nearest to a target difficulty, which moves with the reward."""

import math

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_integer, check_number
from budgetalloc.methods.initial_success import COLUMNS, InitialSuccess, Offline, rescale_results
from budgetalloc.policies.interface import Needs, Outcome, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.ranking import falling, ranked

__all__ = ["adarft", "moved_target"]


def moved_target(
    target: float, mean: float, *, goal: float = 0.5, slope: float = 2.0, most: float = 50.0
) -> float:
    """The next target difficulty, target + most tanh(slope (mean - goal)), kept in [0, 100] (arXiv
    2504.05520)."""
    return min(max(target + most * math.tanh(slope * (mean - goal)), 0.0), 100.0)


def adarft(
    *, group: int = 8, goal: float = 0.5, start: float = 0.0, offline: Offline = 8, seed: int = 0
) -> Policy:
    """The prompts whose fixed difficulty is nearest to a target that rises with the reward (AdaRFT,
    arXiv 2504.05520).

    The target starts at 0, the easiest, and moves after each step by 50 tanh(2 (mean reward - 0.5))
    (`moved_target`). A difficulty is 100 (1 - s / n) for s successes in n rollouts before training,
    or 50 without any; the paper uses 128 rollouts of another model. Ties are broken at random, and
    prompts far from the target get no rollouts. Advantages are a group's, divided by sqrt(m (1-m))
    with m its mean. Graded success enters through its mean alone.

    Args:
        group: Rollouts of a chosen prompt, at least 1.
        goal: The mean reward to keep, in [0, 1].
        start: The first target, in [0, 100].
        offline: As in `spo`. For a difficulty d of your own, give (100 - d, 100).
        seed: Seeds the ties.

    >>> from budgetalloc import Budget
    >>> policy = adarft(offline={"easy": (8, 8), "half": (4, 8), "hard": (0, 8)}, seed=0)
    >>> policy.allocate(["easy", "half", "hard"], Budget(rollouts=8, floor=0))
    array([8, 0, 0])
    >>> policy.observe(["easy"] * 8, [1] * 8)  # the target moves to 38
    >>> policy.allocate(["easy", "half", "hard"], Budget(rollouts=8, floor=0))
    array([0, 8, 0])
    """
    check_integer("group", group, 1)
    check_number("goal", goal, 0, 1)
    check_number("start", start, 0, 100)
    reference = InitialSuccess.of(offline)

    def learn(memory: Memory, visit: Visit) -> None:
        trained_V = reference.learn(memory, visit)
        if trained_V.any():
            mean = float(visit.successes_V[trained_V].sum() / visit.scored_V[trained_V].sum())
            memory.numbers["target"] = moved_target(memory.numbers["target"], mean, goal=goal)

    def decide(view: View) -> IntArray:
        successes_P, rollouts_P = reference.results(view.ids_P, view.recall)
        difficulty_P = np.where(
            rollouts_P > 0, 100 * (1 - successes_P / np.maximum(rollouts_P, 1)), 50.0
        )
        # the view's order is random
        nearest = np.argsort(np.abs(difficulty_P - view.numbers["target"]), kind="stable")
        return ranked(falling(nearest), group, view)

    def expect(outcome: Outcome) -> FloatArray:
        return reference.untrained(outcome, outcome.mean_G)

    name = f"adarft(group={group}, goal={goal}, start={start}, offline={reference}, seed={seed})"
    needs = Needs(candidates="all", baseline="policy", scale="group")
    memory = Memory(COLUMNS, learn, {"target": float(start)}, rescale=rescale_results)
    rule = reference.measured_first(decide)
    return Policy(name, rule, BetaEstimator(), seed, needs, memory=memory, expect=expect)
