"""SPEED: a screening, then more rollouts for prompts with both outcomes."""

from typing import Annotated

from budgetalloc.methods.table import Between, Count, method, policy
from budgetalloc.policies import Policy, View
from budgetalloc.policies.interface import Rounds
from budgetalloc.policies.rounds import until_finished


@method("in rounds", "released code")
def speed(*, init: Annotated[int, Between(2)] = 4, cont: Count = 20, seed: int = 0) -> Policy:
    """Screens prompts with a few rollouts and completes the groups only of those with both
    successes and failures. It is meant to save the rollouts of groups that would have no gradient.

    Formula: 4 rollouts screen a prompt, 20 more if 0 < mean < 1.

    Source: SPEED (arXiv 2506.09016). Compared with the released code. The paper trains on continued
    prompts only; here the others stay in the batch.

    Screening biases the group mean towards 1/2. A step may take a dozen rounds, the last ones
    small.

    >>> from budgetalloc import Budget
    >>> policy = speed(init=2, cont=4, seed=0)
    >>> step = policy.begin(["a", "b", "c", "d"], Budget(rollouts=12, floor=0))
    >>> step.request()
    array([2, 2, 0, 0])
    >>> step.observe(["a", "a", "b", "b"], [0, 1, 1, 1]); step.request()  # a continues
    array([4, 0, 0, 0])
    """

    def decide(view: View) -> Rounds:
        every = view.rollouts_only("speed")
        return until_finished(view, init, cont, init + cont, lambda seen: ~seen.mixed_P, every)

    return policy(decide, candidates=-(-(init + cont) // init), by_group=True)
