"""AdaRFT: the prompts nearest to a target difficulty, which moves with the reward."""

import math
from typing import Annotated

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.memory import Memory
from budgetalloc.budget import IntArray
from budgetalloc.methods.offline import InitialSuccess, Offline
from budgetalloc.methods.rules import falling, ranked
from budgetalloc.methods.table import Between, Count, Share, method
from budgetalloc.policies import Policy, View


@method("which prompts", "released code", starves=True, of_rates=True)
def adarft(
    *,
    group: Count = 8,
    goal: Share = 0.5,
    start: Annotated[float, Between(0, 100)] = 0.0,
    offline: Offline = 8,
    seed: int = 0,
) -> Policy:
    """Chooses the prompts whose difficulty is nearest to a target, which rises while the model
    earns more than the goal and falls while it earns less. It is meant for datasets whose prompts
    differ widely in difficulty.

    Formula: a group each to the difficulties nearest to T, T <- T + 50 tanh(2 (mean reward - goal))
    in [0, 100].

    Source: AdaRFT (arXiv 2504.05520). Compared with the released code.

    Difficulties are 100 (1 - s / n) for s successes in n rollouts before training. By default these
    are eight of each prompt, measured by the run's first steps and charged to it. The difficulty is
    50 without any. Prompts far from T are left out. Graded success enters through its mean.

    Args:
        goal, start: The mean reward to keep, and the first T.
        offline: As in `spo`. For a difficulty d of your own, give (100 - d, 100).

    >>> from budgetalloc import Budget
    >>> policy = adarft(offline={"easy": (8, 8), "half": (4, 8), "hard": (0, 8)}, seed=0)
    >>> policy.observe(["easy"] * 8, [1] * 8)  # T moves to 38
    >>> policy.allocate(["easy", "half", "hard"], Budget(rollouts=8, floor=0))
    array([0, 8, 0])
    """
    reference = InitialSuccess(offline)

    def learn(memory: Memory, seen: ByPrompt) -> None:
        trained_P = reference.learn(memory, seen)
        if trained_P.any():
            mean = float(seen.successes_P[trained_P].sum() / seen.n_P[trained_P].sum())
            target = memory.numbers["target"] + 50.0 * math.tanh(2.0 * (mean - goal))
            memory.numbers["target"] = min(max(target, 0.0), 100.0)

    def decide(view: View) -> IntArray:
        successes_P, rollouts_P = reference.results(view)
        difficulty_P = 100 * (1 - successes_P / np.maximum(rollouts_P, 1))
        difficulty_P[rollouts_P == 0] = 50.0
        # the view's order is random
        nearest = np.argsort(np.abs(difficulty_P - view.numbers["target"]), kind="stable")
        return ranked(falling(nearest), group, view)

    numbers = {"target": start}
    return reference.policy(decide, learn=learn, numbers=numbers, scale="group")
