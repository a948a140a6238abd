"""DAPO's dynamic sampling: new prompts until a batch of mixed groups is full."""

from typing import Literal

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.errors import check_choice, check_integer
from budgetalloc.methods.downselect.rules import mixed_first
from budgetalloc.policies.interface import Needs, Rounds, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.spending import Spending

__all__ = ["dapo"]


def dapo(
    *,
    group: int = 8,
    generate: int = 3,
    order: Literal["random", "thompson"] = "random",
    discount: float = 0.2,
    idle: float = 0.999,
    seed: int = 0,
) -> Policy:
    """Resamples until a batch of mixed groups is full: DAPO's dynamic sampling (arXiv 2503.14476).

    Each round generates a whole batch of groups of new prompts and drops the groups of equal
    rewards. The step ends when the mixed groups fill the batch, or after `generate` batches. The
    budget is therefore a limit; only the one batch that is trained on is always spent. With
    `order="thompson"`, prompts are tried in the order of a Thompson draw of p (1-p)^2 over the
    whole dataset, as in VADE (arXiv 2511.18902), instead of at random.

    Args:
        group: Rollouts of a prompt.
        generate: Most batches that a step may generate, at least 1.
        order: The order in which prompts are tried.
        discount, idle: As in `BetaEstimator`, for the draw.
        seed: Seeds the ties and draws.

    >>> from budgetalloc import Budget
    >>> step = dapo(group=4, generate=2, seed=0).begin(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    >>> step.request()
    array([4, 4, 0, 0])
    >>> step.observe(["a"] * 4 + ["b"] * 4, [1, 0, 0, 0, 0, 1, 0, 0]); step.request()  # both are mixed
    array([0, 0, 0, 0])
    """
    check_integer("group", group, 1)
    check_integer("generate", generate, 1)
    check_choice("order", order, ("random", "thompson"))

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
            tally = yield spending.counts_P - before_P
            useful = int(spending.counts_P[tally.mixed()].sum())
        before_P = spending.counts_P.copy()  # too few prompts fill the batch with larger groups
        spending.spread(np.argsort(before_P, kind="stable"), keep=total - batch)
        yield spending.counts_P - before_P

    estimator = BetaEstimator(prior=(1.0, 1.0), discount=discount, idle=idle)
    needs = Needs(
        candidates="all" if order == "thompson" else generate, baseline="group", generate=generate
    )
    name = f"dapo(group={group}, generate={generate}, order={order!r}, discount={discount}, idle={idle}, seed={seed})"
    return Policy(name, decide, estimator, seed, needs, keep=mixed_first)
