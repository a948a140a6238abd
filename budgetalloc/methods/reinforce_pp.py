"""REINFORCE++: one baseline for the whole batch, in groups of one."""

from budgetalloc.beliefs.memory import Memory
from budgetalloc.methods.rules import count_visits, least_visited_first
from budgetalloc.methods.table import Count, method, policy
from budgetalloc.policies import Policy


@method("which baseline", "released code")
def reinforce_pp(*, group: Count = 1, seed: int = 0) -> Policy:
    """Compares each reward with the mean of the whole batch. It needs no groups, so a step can
    cover as many prompts as it has rollouts.

    Formula: r whitened over the tokens of the batch, one rollout a prompt, in epochs.

    Source: REINFORCE++ (arXiv 2501.03262). Compared with the released code in verl, with discount 1
    and without the penalty on the divergence, which the trainer has.

    The variant "-baseline" is `baseline="group", scale="whiten_tokens"` with larger groups.

    >>> reinforce_pp().needs.scale
    'whiten_tokens'
    """
    return policy(
        least_visited_first(group),
        memory=Memory({"visits": 0.0}, count_visits),
        candidates="all",
        baseline="batch",
        scale="whiten_tokens",
        min_group=1,
    )
