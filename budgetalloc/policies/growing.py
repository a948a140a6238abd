"""Groups that start small and grow by their own outcomes."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import BudgetError, UnsupportedError, check_function, check_integer, check_type
from budgetalloc.policies.interface import Decide, Rounds, Tally, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.rounds import until_finished

__all__ = ["expected_sizes", "growing"]


def growing(
    policy: Policy,
    *,
    first: int = 2,
    most: int = 8,
    wants_more: Callable[[Tally], NDArray[np.bool_]] | None = None,
) -> Policy:
    """Starts every group with `first` rollouts and doubles it while it wants more, by default while all of them fail.

    `policy` chooses the prompts and plans their counts. A group starts with `first` rollouts, or with its planned count
    if that is smaller. It grows to `most`, or to its planned count if that is larger. What groups do not need starts
    further prompts, so that the budget is spent exactly. They come from a plan for a larger budget, of which the
    expected spending is the budget: by the beliefs, a group of n grows with the probability E[(1-p)^n].

    A group depends on its own outcomes only. A trainer that can extend a group while others are still being generated
    does so as soon as the group has ended (verl, `Needs.by_group`). Others, such as TRL, generate whole rounds. Both
    end with the same counts, whichever groups end first. If the floor is above 0, or `most` near the cap, verl
    generates whole rounds too.

    Keep the posterior baseline, as with `sequential`: the mean of a group that grows by its outcomes is biased.

    The two policies share one state: use only the new one afterwards.

    Args:
        policy: Plans the counts, in one round, with a budget in rollouts. With one candidate per group of the batch
            there are no further prompts: what is left then extends the groups in a last round.
        first: Rollouts to start a group with, at least 1.
        most: Rollouts that a group may grow to, at least `first`.
        wants_more: From the tally of the step to the prompts whose groups go on, shape (P,), each by its own outcomes.

    >>> import budgetalloc as ba
    >>> policy = growing(ba.uniform(), most=4)
    >>> step = policy.begin(["a", "b", "c", "d"], ba.Budget(rollouts=10, floor=0))
    >>> step.request()  # with 4 for each of two prompts, no third could grow
    array([2, 2, 0, 0])
    >>> step.observe(["a", "a"], [0, 1])
    >>> step.request(running=["b"])  # a is done, and leaves enough for c
    array([0, 0, 2, 0])
    >>> step.observe(["b", "b"], [0, 0])
    >>> step.request(running=["c"])
    array([0, 2, 0, 0])
    """
    check_type("policy", policy, Policy, "a policy such as ba.adaptive()")
    check_integer("first", first, 1)
    check_integer("most", most, first)
    if wants_more is not None:
        check_function("wants_more", wants_more, "of a Tally that returns which prompts want more rollouts")

    def finished(tally: Tally) -> NDArray[np.bool_]:
        if wants_more is None:
            return np.asarray(tally.successes_P > 0)
        return ~np.asarray(wants_more(tally), dtype=np.bool_)

    def growing_from(decide: Decide) -> Decide:
        def plan(view: View, budget: Budget) -> IntArray:
            counts_P = decide(replace(view, budget=budget))
            if not isinstance(counts_P, np.ndarray):
                raise UnsupportedError(
                    f"growing({policy}) needs a policy that decides once a step, such as adaptive()."
                )
            return counts_P

        def decide_in_rounds(view: View) -> Rounds:
            total, budget = view.rollouts_only("growing"), view.budget
            counts_P = plan(view, budget)
            at_K = np.flatnonzero(counts_P)
            n_K = counts_P[at_K]
            expected = expected_sizes(view.belief_P.take(at_K), np.minimum(n_K, first), np.maximum(n_K, most)).sum()
            if expected < total and not budget.fewest:  # further prompts will start
                larger = replace(budget, rollouts=int(total * total / expected) // budget.quantum * budget.quantum)
                with suppress(BudgetError):  # the prompts cannot take so many
                    larger.check(len(counts_P))
                    counts_P = np.where(counts_P > 0, counts_P, plan(view, larger))
            queue, most_P, first_P = np.flatnonzero(counts_P), np.maximum(counts_P, most), np.minimum(counts_P, first)
            return until_finished(view, first_P, None, most_P, finished, total, queue)

        return decide_in_rounds

    rule = "" if wants_more is None else f", wants_more={getattr(wants_more, '__name__', wants_more)}"
    with_features = policy.decide_with_features
    return replace(
        policy,
        name=f"growing({policy.name}, first={first}, most={most}{rule})",
        decide=growing_from(policy.decide),
        decide_with_features=None if with_features is None else growing_from(with_features),
        needs=replace(policy.needs, keep_batch=False, by_group=True),
    )


def expected_sizes(belief_P: Beta, first_P: IntArray, most_P: IntArray) -> FloatArray:
    """The expected size of groups that start with `first_P` rollouts and double to `most_P` while all fail, (P,).

    >>> expected_sizes(Beta([1.0], [1.0]), np.array([2]), np.array([8]))  # 2 + 2 E[q^2] + 4 E[q^4] = 2 + 2/3 + 4/5
    array([3.46666667])
    """
    sizes_P, now_P = first_P.astype(np.float64), first_P
    fail_PN = belief_P.all_fail(np.arange(int(most_P.max(initial=0)) + 1))
    while (now_P < most_P).any():
        next_P = np.minimum(2 * now_P, most_P)
        sizes_P += (next_P - now_P) * np.take_along_axis(fail_PN, now_P[:, None], axis=1)[:, 0]
        now_P = next_P
    return sizes_P
