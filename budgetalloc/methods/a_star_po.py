"""A*-PO: a baseline from the model before training that stays fixed."""

from typing import Annotated

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.methods.offline import InitialSuccess, Offline
from budgetalloc.methods.rules import count_visits, least_visited_first
from budgetalloc.methods.table import Between, method
from budgetalloc.policies import Policy, View


@method("which baseline", "released code")
def a_star_po(
    *, beta: Annotated[float, Between(0.01, 100)] = 0.5, offline: Offline = 8, seed: int = 0
) -> Policy:
    """Compares each reward with the prompt's optimal value, which is estimated from rollouts before
    training and stays fixed. One rollout of a prompt then suffices, where GRPO needs a group.

    Formula: V* = beta log mean exp(r / beta) of eight rollouts before training, fixed; one rollout
    a prompt, in epochs.

    Source: A*-PO (arXiv 2505.20686). Compared with the released code. Only the baseline is here, in
    the trainer's own loss, without the term beta2 log(pi / pi_ref) (beta2 is 1e-3). TRL's
    `A2POTrainer` has the paper's loss.

    The eight rollouts are given, or measured by the first steps and charged to the run. As the
    model improves, r - V* loses its mean of 0.

    >>> from budgetalloc import Budget
    >>> policy = a_star_po(offline={"half": (4, 8)})
    >>> step = policy.begin(["half"], Budget(rollouts=1, floor=0, min_group=1))
    >>> step.expected_success(["half"], [1]).round(3)  # 0.5 log((1 + e^2) / 2)
    array([0.717])
    """
    reference = InitialSuccess(offline)

    def learn(memory: Memory, seen: ByPrompt) -> None:
        reference.learn(memory, seen)
        count_visits(memory, seen)

    def optimal_value(view: View, seen: ByPrompt) -> FloatArray:
        wins_P, n_P = reference.results(view)
        value_P = beta * np.log1p(wins_P / np.maximum(n_P, 1) * np.expm1(1 / beta))
        return np.clip(np.where(n_P > 0, value_P, 0.5), 0.0, 1.0)

    return reference.policy(
        least_visited_first(1), optimal_value, learn, {"visits": 0.0}, scale="rms", min_group=1
    )
