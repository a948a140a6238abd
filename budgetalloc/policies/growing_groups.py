"""Groups that start small and grow by their own outcomes."""

from contextlib import suppress
from dataclasses import replace
from itertools import count

import numpy as np

from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import BudgetError, UnsupportedError, check_integer, check_type
from budgetalloc.policies.interface import Decide, Rounds, Tally, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.rounds import WantsMore, rule_in_name, wanting, wrapped
from budgetalloc.policies.spending import Spending, order_matters

__all__ = ["expected_sizes", "growing"]


def growing(
    policy: Policy,
    *,
    first: int = 2,
    most: int = 8,
    rounds: int | None = None,
    wants_more: WantsMore | None = None,
) -> Policy:
    """Starts every group with `first` rollouts and doubles it while it wants more, by default while
    all of them fail.

    `policy` chooses the prompts and plans their counts. A group starts with `first` rollouts, or
    with its planned count if that is smaller. It grows to `most`, or to its planned count if that
    is larger. As many groups start at once as can be expected to spend the budget: by the beliefs,
    a group of n grows with the probability E[(1-p)^n]. If they need less, further prompts start; if
    they need more, the last groups of a random order do not grow. The budget is spent exactly.

    The final counts do not depend on which groups end first. A trainer that can extend a group
    while others are still being generated does so (verl, `Needs.by_group`), unless groups may reach
    the cap. Others, such as TRL, generate whole rounds, a dozen or more. With `rounds`, a step has
    whole rounds, and the last one spends what is left: first on groups that want more, then on
    prompts that have not started. Use it where every round costs time, as in TRL.

    Keep the posterior baseline, as with `sequential`: the mean of a group that grows by its
    outcomes is biased. The two policies share one state: use only the new one afterwards.

    Args:
        policy: Plans the counts, in one round, with a budget in rollouts. If all candidates have
            been started, the rest of the budget extends their groups in a last round.
        first: Rollouts to start a group with, at least 1.
        most: Rollouts that a group may grow to, at least `first`. The last of `rounds` may exceed
            it.
        rounds: Most rounds of a step, at least 2; None for as many as needed. Two rollouts become
            eight in 3.
        wants_more: From the tally of the step to the prompts whose groups go on, shape (P,), each
            by its own outcomes.

    >>> import budgetalloc as ba
    >>> policy = growing(ba.uniform(), most=4)
    >>> step = policy.begin(["a", "b", "c", "d"], ba.Budget(rollouts=10, floor=0))
    >>> step.request()
    array([2, 2, 2, 0])
    >>> step.observe(["a", "a"], [0, 0])
    >>> step.request(running=["b", "c"])  # a goes on at once
    array([2, 0, 0, 0])
    """
    check_type("policy", policy, Policy, "a policy such as ba.adaptive()")
    check_integer("first", first, 1)
    check_integer("most", most, first)
    if rounds is not None:
        check_integer("rounds", rounds, 2)
    rule = rule_in_name(wants_more)

    def growing_from(decide: Decide) -> Decide:
        def plan(view: View, budget: Budget) -> IntArray:
            counts_P = decide(replace(view, budget=budget))
            if not isinstance(counts_P, np.ndarray):
                raise UnsupportedError(
                    f"growing({policy}) needs a policy that decides once a step, such as "
                    "adaptive()."
                )
            return counts_P

        def decide_in_rounds(view: View) -> Rounds:
            total, budget = view.rollouts_only("growing"), view.budget

            def sizes(counts_P: IntArray) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
                """The planned prompts, and the first, largest and expected size of their groups."""
                queue = np.flatnonzero(counts_P)
                first_K = np.minimum(counts_P[queue], first)
                most_K = np.minimum(np.maximum(counts_P[queue], most), budget.largest_group)
                expected_K = expected_sizes(view.belief_P.take(queue), first_K, most_K)
                return queue, first_K, most_K, expected_K

            counts_P = plan(view, budget)
            spent = float(sizes(counts_P)[-1].sum())
            if spent < total and not budget.fewest:  # further prompts can start
                rollouts = int(total * total / spent) // budget.quantum * budget.quantum
                larger = replace(budget, rollouts=rollouts)
                with suppress(BudgetError):  # the prompts cannot take so many
                    larger.check(len(counts_P))
                    counts_P = np.where(counts_P > 0, counts_P, plan(view, larger))
            queue, first_K, most_K, expected_K = sizes(counts_P)
            at_once = max(int((np.cumsum(expected_K) <= total).sum()), 1)
            return _in_turn(view, queue, first_K, most_K, at_once, rounds, wants_more)

        return decide_in_rounds

    limit = "" if rounds is None else f", rounds={rounds}"
    name = f"growing({policy.name}, first={first}, most={most}{limit}{rule})"
    return wrapped(policy, name, growing_from, by_group=rounds is None)


def _in_turn(
    view: View,
    queue: IntArray,
    first_K: IntArray,
    most_K: IntArray,
    at_once: int,
    rounds: int | None,
    wants_more: WantsMore | None,
) -> Rounds:
    """Starts the first `at_once` prompts of the queue, doubles their groups, and starts further
    prompts.

    A group starts or grows if the budget suffices even if all groups before it in the queue grow to
    `most_K`, and those after it stay as they are. What is granted later to a group behind another
    has left enough for that other. So what is granted in the end does not depend on the order in
    which groups end. In the last of `rounds` all groups have ended, and the first of the queue get
    what they want while the budget lasts.
    """
    budget, prompts = view.budget, len(view.belief_P)
    spending, quantum = Spending(budget, prompts), budget.quantum
    total, low, high = spending.left, budget.smallest_group, budget.largest_group
    first_K = np.clip(-(-first_K // quantum) * quantum, low, high)
    most_K = np.clip(-(-most_K // quantum) * quantum, low, high)
    if budget.fewest:  # all start
        at_once, first_K = len(queue), np.minimum(first_K, total // prompts // quantum * quantum)
    whole, tally = order_matters(budget, int(most_K.max())), Tally.empty(prompts)
    spending.give_each(queue[:at_once], first_K[:at_once])
    yielded = spending.counts_P.copy()
    for number in count(2):  # of the round that is decided
        tally = yield yielded
        waits, before_P = bool(tally.running_P.any()), spending.counts_P.copy()
        if not spending.left:
            return
        had_K, running_K = before_P[queue], tally.running_P[queue]
        over_K = (had_K > 0) & ~running_K & (~wanting(wants_more, tally)[queue] | (had_K >= most_K))
        next_K = np.where(had_K > 0, np.minimum(2 * had_K, most_K), first_K)
        bound_K = np.where(over_K, had_K, most_K)
        needed_K = np.cumsum(bound_K) - bound_K + next_K + had_K.sum() - np.cumsum(had_K)
        wants_K = ~over_K & ~running_K & (not (whole and waits))
        last = number == rounds
        granted = np.flatnonzero(wants_K & ((needed_K <= total) | last))
        spending.give_each(queue[granted], (next_K - had_K)[granted])
        if last:
            spending.spread(queue[granted])
            spending.spread_rest()
        elif (spending.counts_P == before_P).all():
            blocked = int(np.argmax(~over_K)) if not over_K.all() else len(queue)
            # all before it have ended: it gets the rest
            if blocked < len(queue) and wants_K[blocked]:
                spending.give(int(queue[blocked]), spending.left)
            if not waits and (spending.counts_P == before_P).all():
                spending.spread_rest()
        yielded = spending.counts_P - before_P


def expected_sizes(belief_P: Beta, first_P: IntArray, most_P: IntArray) -> FloatArray:
    """The expected size of groups that start with `first_P` rollouts and double to `most_P` while
    all fail, (P,).

    >>> expected_sizes(Beta([1.0], [1.0]), np.array([2]), np.array([8]))  # 2 + 2 E[q^2] + 4 E[q^4]
    array([3.46666667])
    """
    sizes_P, now_P = first_P.astype(np.float64), first_P
    fail_PN = belief_P.all_fail(np.arange(int(most_P.max(initial=0)) + 1))
    while (now_P < most_P).any():
        next_P = np.minimum(2 * now_P, most_P)
        sizes_P += (next_P - now_P) * np.take_along_axis(fail_PN, now_P[:, None], axis=1)[:, 0]
        now_P = next_P
    return sizes_P
