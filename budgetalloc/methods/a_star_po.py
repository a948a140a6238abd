"""A*-PO: a baseline from the model before training that stays fixed."""

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import check_array, check_number
from budgetalloc.methods.epoch_order import COLUMNS, count_visits, least_visited_first
from budgetalloc.methods.initial_success import COLUMNS as REFERENCE
from budgetalloc.methods.initial_success import InitialSuccess, Offline, rescale_results
from budgetalloc.policies.interface import Needs, Outcome
from budgetalloc.policies.policy import Policy

__all__ = ["a_star_po", "optimal_value"]


def optimal_value(successes_P: ArrayLike, rollouts_P: ArrayLike, beta: float = 0.5) -> FloatArray:
    """V* = beta log mean exp(r / beta) of n rewards of 0 and 1, s of them 1, shape (P,).

    This is beta log(1 + s / n (e^(1/beta) - 1)), or 1/2 without rollouts. V* is the value of the
    best policy within a divergence from the reference, and lies between the mean and the largest
    reward.

    >>> optimal_value([0, 1, 4, 8, 0], [8, 8, 8, 8, 0]).round(3)
    array([0.   , 0.294, 0.717, 1.   , 0.5  ])
    """
    check_number("beta", beta, 0.01, 100)
    wins = check_array("successes_P", successes_P, "the successes of each prompt")
    n = check_array("rollouts_P", rollouts_P, "the rollouts of each prompt")
    return np.where(n > 0, beta * np.log1p(wins / np.maximum(n, 1) * np.expm1(1 / beta)), 0.5)


def a_star_po(*, beta: float = 0.5, offline: Offline = 8, seed: int = 0) -> Policy:
    """Groups of one in epochs, with V* of the model before training as a fixed baseline (A*-PO,
    arXiv 2505.20686).

    V* is `optimal_value` of 8 rollouts of the reference model, and is never updated. As the model
    improves, r - V* therefore loses its mean of 0. The gradient of the paper's loss, (beta2 log(pi
    / pi_ref) + V* - r)^2, is a policy gradient with the advantage r - V* - beta2 log(pi / pi_ref).
    Here V* is the baseline in the trainer's own loss, without the last term (beta2 is 1e-3).
    Advantages are divided by their root mean square, because the paper's loss leaves their scale
    open. TRL's `A2POTrainer` has the loss.

    Args:
        beta: beta1 of V*, in [0.01, 100]. Small values approach the largest reward, large values
            the mean.
        offline: As in `spo`.
        seed: Seeds the order of the prompts.

    >>> from budgetalloc import Budget
    >>> step = a_star_po(offline={"half": (4, 8)}).begin(["half"], Budget(rollouts=1, floor=0, min_group=1))
    >>> step.expected_success(["half"], [1]).round(3)
    array([0.717])
    """
    check_number("beta", beta, 0.01, 100)
    reference = InitialSuccess.of(offline)

    def learn(memory: Memory, visit: Visit) -> None:
        reference.learn(memory, visit)
        count_visits(memory, visit)

    def expect(outcome: Outcome) -> FloatArray:
        value_G = optimal_value(*reference.results(outcome.ids_G, outcome.recall_G), beta)
        return reference.untrained(outcome, np.clip(value_G, 0.0, 1.0))

    name = f"a_star_po(beta={beta}, offline={reference}, seed={seed})"
    needs = Needs(candidates="all", baseline="policy", scale="rms", min_group=1)
    memory = Memory(COLUMNS | REFERENCE, learn, rescale=rescale_results)
    rule = reference.measured_first(least_visited_first(1))
    return Policy(name, rule, BetaEstimator(), seed, needs, memory=memory, expect=expect)
