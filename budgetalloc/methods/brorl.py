"""BroRL: few prompts with very many rollouts each."""

import math

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_integer, check_number
from budgetalloc.methods.prompt_selection import batch, in_proportion, keep_only
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy

__all__ = ["breadth_depth", "brorl", "lr_scale"]


def breadth_depth(rollouts: int, group: int) -> int:
    """The number of prompts, at least one, that fit into a step of `rollouts` rollouts with `group`
    each.

    BroRL (arXiv 2510.01180) goes from 512 prompts of 16 to 128 prompts of 512, which is 8 times the
    rollouts.

    >>> breadth_depth(512 * 16, 16), breadth_depth(512 * 16, 512), breadth_depth(128 * 512, 512)
    (512, 16, 128)
    """
    return max(1, check_integer("rollouts", rollouts, 1) // check_integer("group", group, 1))


def lr_scale(batch: float, base_batch: float) -> float:
    """The factor of the learning rate for another batch size, sqrt(batch / base_batch) (BroRL,
    arXiv 2510.01180).

    Count both in rollouts (our reading). Their ratio is then that of the mini-batches, whose number
    BroRL keeps.

    >>> round(lr_scale(128 * 512, 512 * 16), 4)
    2.8284
    """
    above = check_number("batch", batch, 0, math.inf, without=(0,))
    return math.sqrt(above / check_number("base_batch", base_batch, 0, math.inf, without=(0,)))


def brorl(*, group: int = 512, seed: int = 0) -> Policy:
    """Few prompts with very many rollouts each: BroRL's broadened exploration (arXiv 2510.01180).

    The paper multiplies the rollouts of a prompt (16 to 512) and of a step (by 8). Here the step's
    budget is fixed: `breadth_depth` prompts are drawn uniformly at random and get at least `group`
    each, unless the budget or its cap is smaller. The draw does not depend on rewards, so it biases
    no estimate. With a floor every prompt gets the floor first. If the budget grows too, scale the
    learning rate by `lr_scale`.

    Args:
        group: Rollouts of a drawn prompt, at least 1. Choose it to fit the budget; the paper's is
            512.
        seed: Seeds the draws.

    >>> from budgetalloc import Budget
    >>> brorl(group=16, seed=0).allocate(["a", "b", "c", "d"], Budget(rollouts=32, floor=0))
    array([16, 16,  0,  0])
    """
    check_integer("group", group, 1)

    def decide(view: View) -> IntArray:
        wanted_P = np.full(len(view.belief_P), group)
        return in_proportion(keep_only(wanted_P, batch(wanted_P, view)), view)

    needs = Needs(candidates="all", baseline="group")
    return Policy(f"brorl(group={group}, seed={seed})", decide, BetaEstimator(), seed, needs)
