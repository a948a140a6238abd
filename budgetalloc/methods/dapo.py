"""DAPO's dynamic sampling: new prompts until a batch of mixed groups is full."""

from typing import Literal

import numpy as np

from budgetalloc.methods.downselect import mixed_first
from budgetalloc.methods.table import Count, method, policy
from budgetalloc.policies import Policy, View
from budgetalloc.policies.interface import Rounds
from budgetalloc.policies.spending import Spending


@method("in rounds", "released code")
def dapo(
    *,
    group: Count = 8,
    generate: Count = 3,
    order: Literal["random", "thompson"] = "random",
    discount: float = 0.2,
    idle: float = 0.999,
    seed: int = 0,
) -> Policy:
    """Generates groups for new prompts until those with unequal rewards fill a batch. It is meant
    to train only on groups with a gradient, at the price of more rollouts.

    Formula: whole batches of groups of new prompts until the mixed groups fill a batch.

    Source: DAPO (arXiv 2503.14476). Compared with the released code. The limit of `generate`
    batches is our default.

    The budget is a limit. Only the one batch that is trained on is always spent.

    Args:
        order: "thompson" tries prompts in the order of a Thompson draw of p (1-p)^2 over the whole
            dataset, as in VADE (arXiv 2511.18902), with beliefs that fade by `discount` and `idle`.

    >>> from budgetalloc import Budget
    >>> policy = dapo(group=4, generate=2, seed=0)
    >>> step = policy.begin(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    >>> step.request()
    array([4, 4, 0, 0])
    >>> step.observe(["a"] * 4 + ["b"] * 4, [1, 0, 0, 0, 0, 1, 0, 0]); step.request()  # both mixed
    array([0, 0, 0, 0])
    """

    def decide(view: View) -> Rounds:
        spending = Spending(view.budget, len(view.belief_P))
        total, batch = spending.left, -(-spending.left // generate)
        queue = list(range(len(view.belief_P)))[::-1]
        if order == "thompson":
            drawn = view.belief_P.sample(view.rng)
            queue = np.argsort(drawn.moment(1, 2) * drawn.spread_P, kind="stable").tolist()
        if view.budget.fewest:  # every prompt has its floor, so there is none to resample
            batch = spending.left
        useful = 0
        while queue and spending.left and useful < batch:
            before_P, end = spending.counts_P.copy(), max(spending.left - batch, 0)
            while queue and spending.left > end:
                size = min(group, spending.left // len(queue)) if view.budget.fewest else group
                if not spending.give(queue.pop(), min(size, spending.left - end)):
                    break
            if (spending.counts_P == before_P).all():
                break
            seen = yield spending.counts_P - before_P
            useful = int(spending.counts_P[seen.mixed_P].sum())
        before_P = spending.counts_P.copy()  # too few prompts fill the batch with larger groups
        spending.spread(np.argsort(before_P, kind="stable"), keep=total - batch)
        yield spending.counts_P - before_P

    fades = {"prior": (1.0, 1.0), "discount": discount, "idle": idle}
    candidates = "all" if order == "thompson" else generate
    return policy(decide, **fades, keep=mixed_first, candidates=candidates, generate=generate)
