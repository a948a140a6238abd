"""REINFORCE++: one baseline for the whole batch, in groups of one."""

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.memory import Memory
from budgetalloc.methods.epoch_order import COLUMNS, count_visits, least_visited_first
from budgetalloc.policies.interface import Needs
from budgetalloc.policies.policy import Policy

__all__ = ["reinforce_pp"]


def reinforce_pp(*, group: int = 1, seed: int = 0) -> Policy:
    """Rewards whitened over the batch's tokens, without a baseline of the prompt (REINFORCE++,
    arXiv 2501.03262).

    Mean and deviation are those of all tokens of the batch, each with its rollout's reward
    (`scale="whiten_tokens"`), as in verl's `compute_reinforce_plus_plus_outcome_advantage` with
    discount 1. The mean includes the rollout's own reward. Prompts come in shuffled epochs, one
    rollout each. The paper's penalty on the divergence from the reference model belongs to the
    trainer. The variant "-baseline" is `baseline="group", scale="whiten_tokens"` with larger
    groups; in groups of one its advantages are all 0.

    Args:
        group: Rollouts of a prompt, at least 1.
        seed: Seeds the order of the prompts.

    >>> from budgetalloc import Budget, group_advantages
    >>> policy = reinforce_pp(seed=0)
    >>> policy.allocate(["a", "b", "c", "d"], Budget(rollouts=2, floor=0, min_group=1)).sum()
    np.int64(2)
    >>> needs = policy.needs
    >>> group_advantages([1, 0], ["a", "b"], needs.baseline, needs.scale, lengths_R=[6, 3]).round(3)  # mean 2/3
    array([ 0.667, -1.333])
    """
    needs = Needs(candidates="all", baseline="batch", scale="whiten_tokens", min_group=1)
    name, memory = f"reinforce_pp(group={group}, seed={seed})", Memory(COLUMNS, count_visits)
    return Policy(name, least_visited_first(group), BetaEstimator(), seed, needs, memory=memory)
