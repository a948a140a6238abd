"""Decisions in rounds: a budget is allocated in portions and still spent exactly."""

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.budget import Budget, IntArray, rollouts_alone
from budgetalloc.errors import (
    BudgetError,
    InputError,
    check_function,
    check_integer,
    check_number,
    check_type,
    keywords,
)
from budgetalloc.policies.interface import Decide, Hinted, Rounds, View, counts_at_once
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.spending import Spending, can_spend, order_matters
from budgetalloc.solvers.proportional import systematic

WantsMore = Callable[[ByPrompt], NDArray[np.bool_]]
"""From the step's rollouts so far to the prompts whose groups go on, shape (P,)."""


def until_finished(
    view: View,
    first: int,
    more: int,
    most: int,
    finished: Callable[[ByPrompt], NDArray[np.bool_]],
    least: int,
) -> Rounds:
    """Rounds that continue unfinished prompts, and start new prompts with the rest of the budget.

    Prompts start in the order of the view, or all at once with a floor. A prompt continues as soon
    as its own rollouts have ended (`Needs.by_group`). In the end prompt k has started exactly if
    the rollouts of all prompts before it and `most` of its own fit into the budget, whichever
    groups ended first. With a floor, and near the cap (`order_matters`), rounds are whole. If no
    prompt is left to continue or to start, those with the fewest rollouts get more.

    Args:
        view: The view of the decision.
        first, more, most: Rollouts to start a prompt with, to continue it with, and in all.
        finished: Which prompts need no more, shape (P,), each by its own outcomes.
        least: Fewest rollouts of the step.
    """
    prompts, quantum = len(view.belief_P), view.budget.quantum
    spending = Spending(view.budget, prompts)
    total, started = spending.left, 0
    most = min(
        max(-(-most // quantum) * quantum, view.budget.smallest_group), view.budget.largest_group
    )
    whole = view.budget.fewest > 0 or order_matters(view.budget, most)
    seen = ByPrompt.none(view.ids_P)
    while spending.left:
        before_P, waits = spending.counts_P.copy(), bool(seen.running_P.any())
        if whole and waits:
            seen = yield np.zeros_like(before_P)
            continue
        if view.budget.fewest and not started:
            share = spending.left // prompts // quantum * quantum
            spending.give_each(np.arange(prompts), min(first, share))
            started = prompts
        begun_P = (before_P > 0) & (before_P < most)
        open_P = begun_P & ~seen.running_P & ~finished(seen)
        spending.give_each(np.flatnonzero(open_P), np.minimum(more, most - before_P[open_P]))
        unknown_P = open_P | (begun_P & seen.running_P)
        # if none of these finishes
        owed = int(np.maximum(most - spending.counts_P[unknown_P], 0).sum())
        idle = not waits and bool((spending.counts_P == before_P).all())
        starts = max(spending.left - owed, 0) // most or int(idle)
        spending.give_each(np.arange(started, min(started + starts, prompts)), first)
        started = min(started + starts, prompts)
        if not waits and (spending.counts_P == before_P).all():  # no prompt to continue or to start
            keep = max(total - least, 0)
            spending.spread(np.argsort(spending.counts_P, kind="stable"), keep)
            if (spending.counts_P == before_P).all():
                return
        seen = yield spending.counts_P - before_P


@keywords
def sequential(
    policy: Policy, *, share: float = 0.25, wants_more: WantsMore | None = None
) -> Policy:
    """Spends part of the budget in a second round, on prompts that want more after the first, such
    as unsolved ones.

    `policy` spends all but `share` of the budget. The rest is for those of its prompts that want
    more, by default those without a success, as in AR3PO (arXiv 2509.25808). It is drawn in
    proportion to E[p (1-p)^2] under the belief that has learned from the first round, so that
    hopeless prompts get less.

    Where a step cannot see its own rewards (`allocate`), or the budget has tokens or quotas, the
    counts are those of `policy`.

    Keep the posterior baseline: the mean of a group that is extended because of its outcomes is
    biased. The belief after all earlier rounds and the others of the rollout's own round is not.
    The new policy starts with a copy of what `policy` has learned.

    Args:
        policy: Decides the first part, in one round or several.
        share: Share of the budget for the second round, in (0, 1). It is lowered if the rest could
            not be spent.
        wants_more: From the step's rollouts so far (`ByPrompt`) to the prompts to extend, shape
            (P,). Others are left out if they got no rollouts. If no prompt wants more, the rest
            goes to all prompts that have rollouts.

    >>> import budgetalloc as ba
    >>> policy = sequential(ba.policies.sampled(groups=2), share=0.5)
    >>> step = policy.begin(["easy", "hard"], ba.Budget(rollouts=8))
    >>> step.request()
    array([2, 2])
    >>> step.observe(["easy", "easy", "hard", "hard"], [1, 0, 0, 0])
    >>> step.request()
    array([0, 4])
    """
    check_type("policy", policy, Policy, "a policy such as policies.sampled()")
    check_number("share", share, 0, 1, without=(0, 1))
    rule = _rule_in_name(wants_more)

    def extend(view: View, spent_P: IntArray, seen: ByPrompt, reserve: int) -> Rounds:
        budget = replace(view.budget, rollouts=int(spent_P.sum()) + reserve)
        spending = Spending(budget, len(spent_P), spent_P)
        more = np.flatnonzero(_wanting(wants_more, seen) & (spent_P > 0))
        if len(more):
            successes, before = seen.successes_P[more], view.belief_P.take(more)
            failures = seen.n_P[more] - successes
            weights = Beta(before.alpha_P + successes, before.beta_P + failures).moment(1, 2)
            rest = Budget(reserve, floor=0, min_group=1, quantum=view.budget.quantum)
            spending.give_each(more, systematic(weights + 1e-9, rest, view.rng))
            spending.spread(more)
        spending.spread_rest()
        yield spending.counts_P - spent_P

    name = f"sequential({policy.name}, share={share}{rule})"
    return followed_by(policy, extend, share, name, once=True)


def _rule_in_name(wants_more: WantsMore | None) -> str:
    """How the argument stands in a policy's name; raises `InputError` if it is no function."""
    if wants_more is None:
        return ""
    check_function(
        "wants_more", wants_more, "of a ByPrompt that returns which prompts want more rollouts"
    )
    return f", wants_more={getattr(wants_more, '__name__', wants_more)}"


def _wanting(wants_more: WantsMore | None, seen: ByPrompt) -> NDArray[np.bool_]:
    """Which prompts want more by the user's rule; by default those whose scored rollouts all
    failed. Shape (P,)."""
    if wants_more is None:
        return np.asarray((seen.successes_P == 0) & (seen.n_P > 0))
    more_P = wants_more(seen)
    if np.shape(more_P) != seen.n_P.shape:
        raise InputError(
            "wants_more",
            f"gave shape {np.shape(more_P)}: give True or False for each prompt of the seen.",
        )
    return np.asarray(more_P, dtype=np.bool_)


def followed_by(
    policy: Policy,
    more: Callable[[View, IntArray, ByPrompt, int], Rounds],
    share: float,
    name: str,
    *,
    once: bool = False,
) -> Policy:
    """`policy` with all but a share of the budget, followed by the rounds of `more` with the rest.

    `more` gets the view, the counts spent, shape (P,), their rollouts and how many are left.
    The share, in (0, 1), is lowered if either part could not be spent in whole groups. With `once`,
    `policy` spends the whole budget where rounds are not possible.
    """

    def after(decide: Decide) -> Decide:
        def rounds(view: View, plan: IntArray | Rounds, reserve: int) -> Rounds:
            spent_P, seen = yield from _counted(plan, view.ids_P)
            yield from more(view, spent_P, seen, reserve)

        def decide_in_rounds(view: View) -> IntArray | Rounds:
            if once and (view.once or rollouts_alone(view.budget) is None):
                return decide(view)
            total = view.rollouts_only(name.partition("(")[0])
            reserve = _reserve(view.budget, len(view.ids_P), share)
            if not reserve:
                return decide(view)
            plan = decide(replace(view, budget=replace(view.budget, rollouts=total - reserve)))
            return rounds(view, plan, reserve)

        return decide_in_rounds

    return _wrapped(policy, name, after)


def _wrapped(
    policy: Policy, name: str, after: Callable[[Decide], Decide], *, by_group: bool = False
) -> Policy:
    """`policy` with another name and decisions in rounds, which `after` makes of its own."""
    featured = policy.featured
    return replace(
        policy,
        name=name,
        decide=after(policy.decide),
        featured=featured and _wrapped(featured, name, after, by_group=by_group),
        needs=replace(policy.needs, keep_batch=False, by_group=by_group),
    )


def _reserve(budget: Budget, prompts: int, share: float) -> int:
    """At most `share` of the budget, such that both it and the rest can be spent in whole
    groups."""
    total, low, high = int(budget.rollouts or 0), budget.smallest_group, budget.largest_group
    for reserve in range(int(share * total) // budget.quantum * budget.quantum, 0, -budget.quantum):
        # new groups must be able to take it
        if budget.fewest == 0 and -(-reserve // high) * low > reserve:
            continue
        if can_spend(budget, total - reserve, prompts):
            return reserve
    return 0


def _counted(
    plan: IntArray | Rounds, ids_P: Sequence[Id]
) -> Generator[IntArray | Hinted, ByPrompt, tuple[IntArray, ByPrompt]]:
    """The rounds of another decision; returns their total counts and their rollouts."""
    spent_P, seen = np.zeros(len(ids_P), dtype=np.int64), ByPrompt.none(ids_P)
    if isinstance(plan, np.ndarray):
        seen = yield plan
        return spent_P + plan, seen
    try:
        wanted = next(plan)
        # none: it has ended
        while (counts_P := wanted.counts_P if isinstance(wanted, Hinted) else wanted).any():
            spent_P += counts_P
            seen = yield wanted
            wanted = plan.send(seen)
    except StopIteration:
        pass
    return spent_P, seen


@keywords
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
    is larger. As many groups start at once as the beliefs expect to spend the budget. If they need
    less, further prompts start; if more, the last groups of a random order do not grow.

    The final counts do not depend on which groups end first. A trainer that can extend a group
    while others are still being generated does so (verl, `Needs.by_group`), unless groups may reach
    the cap. Others, such as TRL, generate whole rounds, a dozen or more. With `rounds`, the last
    round spends what is left: first on groups that want more, then on prompts that have not
    started. Use it where every round costs time, as in TRL.

    Where a step cannot see its own rewards (`allocate`), or the budget has tokens or quotas, the
    counts are those of `policy`.

    Keep the posterior baseline, as with `sequential`: the mean of a group that grows by its
    outcomes is biased. The new policy starts with a copy of what `policy` has learned.

    Args:
        policy: Plans the counts, in one round. If all candidates have been started, the rest of the
            budget extends their groups in a last round.
        first: Rollouts to start a group with, at least 1.
        most: Rollouts that a group may grow to, at least `first`. The last of `rounds` may exceed
            it.
        rounds: Most rounds of a step, at least 2; None for as many as needed. Two rollouts become
            eight in 3.
        wants_more: From the step's rollouts so far (`ByPrompt`) to the prompts whose groups go on,
            shape (P,), each by its own outcomes.

    >>> import budgetalloc as ba
    >>> policy = growing(ba.uniform(), most=4)
    >>> step = policy.begin(["a", "b", "c", "d"], ba.Budget(rollouts=10, floor=0))
    >>> step.request()
    array([2, 2, 2, 0])
    >>> step.observe(["a", "a"], [0, 0])
    >>> step.request(running=["b", "c"])  # a goes on at once
    array([2, 0, 0, 0])
    """
    check_type("policy", policy, Policy, "a policy such as policies.sampled()")
    check_integer("first", first, 1)
    check_integer("most", most, first)
    if rounds is not None:
        check_integer("rounds", rounds, 2)
    rule = _rule_in_name(wants_more)

    def growing_from(decide: Decide) -> Decide:
        def plan(view: View, budget: Budget) -> IntArray:
            return counts_at_once(decide, replace(view, budget=budget), f"growing({policy})")

        def decide_in_rounds(view: View) -> IntArray | Rounds:
            budget = view.budget
            total = rollouts_alone(budget)
            if view.once or total is None:
                return decide(view)

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
    return _wrapped(policy, name, growing_from, by_group=rounds is None)


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
    `most_K`, and those after it stay as they are. What is granted in the end therefore does not
    depend on the order in which groups end. In the last of `rounds` all groups have ended, and the
    first of the queue get what they want while the budget lasts.
    """
    budget, prompts = view.budget, len(view.belief_P)
    spending, quantum = Spending(budget, prompts), budget.quantum
    total, low, high = spending.left, budget.smallest_group, budget.largest_group
    first_K = np.clip(-(-first_K // quantum) * quantum, low, high)
    most_K = np.clip(-(-most_K // quantum) * quantum, low, high)
    if budget.fewest:  # all start
        at_once, first_K = len(queue), np.minimum(first_K, total // prompts // quantum * quantum)
    whole = order_matters(budget, int(most_K.max()))
    spending.give_each(queue[:at_once], first_K[:at_once])
    yielded = spending.counts_P.copy()
    for number in count(2):  # of the round that is decided
        seen = yield yielded
        waits, before_P = bool(seen.running_P.any()), spending.counts_P.copy()
        if not spending.left:
            return
        had_K, running_K = before_P[queue], seen.running_P[queue]
        over_K = (had_K > 0) & ~running_K & (~_wanting(wants_more, seen)[queue] | (had_K >= most_K))
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
