"""Published methods that decide in rounds within a step, on the rewards of the rounds before.

Everything that is generated counts against the step's budget. Where a prompt gets more rollouts *because* of its
rewards, the mean of its group is biased, and so is a baseline that contains it. What was believed before the step is
not: `baseline=policy.belief(ids_R).mean` keeps each rollout's gradient unbiased.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.errors import check_choice, check_integer, check_number
from budgetalloc.policies.base import Policy
from budgetalloc.policies.decision import Needs, Rounds, Tally, View
from budgetalloc.policies.downselect import balanced, mixed_first
from budgetalloc.policies.rounds import Rollouts, in_rounds


def ar3po(*, group: int = 8, stages: int = 2, seed: int = 0) -> Policy:
    """Stops a prompt at its first success: AR3PO's adaptive rollout (arXiv 2509.25808).

    Each stage gives `group / stages` rollouts to every prompt that has no success yet. What that saves starts further
    prompts, so that the budget is spent exactly. Only failures are waited out: an all-pass group stays without
    signal. The group's mean is biased upwards (for two stages of k, by (1-p)^k p / 2). How many stages the paper uses
    is not known to us, only that group = 8: two is our default. Its response reuse is not part of this. A success is
    any reward above 0.

    Args:
        group: Most rollouts of a prompt, at least 1.
        stages: Rounds to reach it, 1 to `group`.
        seed: Of ties.

    >>> from budgetalloc import Budget
    >>> step = ar3po(seed=0).begin(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    >>> step.request()
    array([4, 4, 0, 0])
    >>> step.observe(["a", "a", "a", "a", "b", "b", "b", "b"], [0, 1, 0, 0, 0, 0, 0, 0])
    >>> step.request()  # b goes on; what a does not need will start c
    array([0, 4, 0, 0])
    """
    check_integer("group", group, 1)
    check_integer("stages", stages, 1, group)
    each = -(-group // stages)

    def decide(view: View) -> Rounds:
        return in_rounds(view, each, each, group, lambda tally: tally.successes_P > 0, view.rollouts_only("ar3po"))

    needs = Needs(candidates=stages, baseline="group")
    return Policy(f"ar3po(group={group}, stages={stages}, seed={seed})", decide, BetaEstimator(), seed, needs)


def pilot_commit(*, pilot: int = 4, group: int = 16, share: float = 0.5, seed: int = 0) -> Policy:
    """A pilot of every prompt, then the rest to those whose rewards varied most (Pilot-Commit, arXiv 2605.26606).

    The pilots take `share` of the budget; the prompts with the largest variance of pilot rewards are then filled up to
    `group`, in all. Prompts that all passed or all failed get more only where nobody else can take it. The released
    code differs: it commits, at random from a buffer of recent pilots, to prompts whose pilot mean lies in
    [0.125, 0.75], and leaves prompts that all passed out of the next epoch. Buffer and eviction are not part of this: a
    prompt that was not committed to is met again when the loader offers it. Its runs pilot with a quarter of the group
    (16 of 64, 32 of 128); our group is smaller.

    Args:
        pilot: Rollouts of a pilot, at least 2.
        group: Rollouts of a prompt that is committed to, more than `pilot`.
        share: Of the budget, spent on pilots, in (0, 1).
        seed: Of ties.

    >>> from budgetalloc import Budget
    >>> step = pilot_commit(pilot=2, group=6, seed=0).begin(["a", "b", "c", "d"], Budget(rollouts=8, floor=0))
    >>> step.request()
    array([2, 2, 0, 0])
    >>> step.observe(["a", "a", "b", "b"], [1, 1, 0, 1]); step.request()
    array([0, 4, 0, 0])
    """
    check_integer("group", group, 3)
    check_integer("pilot", pilot, 2, group - 1)  # one rollout shows no variance
    check_number("share", share, 0, 1, without=(0, 1))

    def decide(view: View) -> Rounds:
        prompts = len(view.belief_P)
        given = Rollouts(view.budget, prompts)
        rest = (1 - share) * given.left
        for at in range(prompts):
            if view.budget.floor:  # everybody has a pilot, as large as there is room for
                given.give(at, min(pilot, given.left // (prompts - at)))
            elif at == 0 or given.left > rest:
                given.give(at, pilot)
        before_P = given.counts_P.copy()
        tally = yield before_P
        rate_P = tally.successes_P / np.maximum(tally.scored_P, 1)
        best = np.argsort(-rate_P * (1 - rate_P), kind="stable")
        chosen = best[tally.mixed()[best] & (before_P[best] < group)]
        given.give_each(chosen, group - before_P[chosen])
        given.spread(best)
        yield given.counts_P - before_P

    name = f"pilot_commit(pilot={pilot}, group={group}, share={share}, seed={seed})"
    return Policy(name, decide, BetaEstimator(), seed, Needs(candidates=2, baseline="group"))


def reinforce_ada(
    *, group: int = 8, stages: int = 4, quota: Literal["balanced", "positive"] = "balanced", seed: int = 0
) -> Policy:
    """Samples a prompt until it has `group / 2` successes and as many failures (Reinforce-Ada, arXiv 2510.04996).

    Each of up to `stages` rounds gives `group` rollouts to every prompt that lacks either; `group` rows a prompt are
    then trained on, balanced where it can be. A step generates up to `stages` times what it trains on, all of it
    counted; the budget is a limit and may not be spent, beyond its share `1 / stages` that a trainer trains on.
    Advantages are taken over all that was generated. With `quota="positive"` one success is enough, the paper's lighter
    rule. Its estimation-based variant is not part of this; the number of rounds is our default.

    Args:
        group: Rollouts of a round, and of a prompt in training.
        stages: Most rounds.
        quota: "balanced" as above, or "positive".
        seed: Of ties.

    >>> from budgetalloc import Budget
    >>> step = reinforce_ada(group=2, stages=3, seed=0).begin(["a", "b"], Budget(rollouts=12, floor=2))
    >>> step.request()
    array([2, 2])
    >>> step.observe(["a", "a", "b", "b"], [0, 0, 0, 1]); step.request()
    array([2, 0])
    """
    check_integer("group", group, 1)
    check_integer("stages", stages, 1)
    check_choice("quota", quota, ("balanced", "positive"))
    wins, fails = (max(1, group // 2), max(1, group // 2)) if quota == "balanced" else (1, 0)

    def finished(tally: Tally) -> NDArray[np.bool_]:
        return np.asarray((tally.successes_P >= wins) & (tally.scored_P - tally.successes_P >= fails))

    def decide(view: View) -> Rounds:
        trained = -(-view.rollouts_only("reinforce_ada") // stages)
        return in_rounds(view, group, group, group * stages, finished, trained)

    needs = Needs(baseline="group", generate=stages)
    name = f"reinforce_ada(group={group}, stages={stages}, quota={quota!r}, seed={seed})"
    return Policy(name, decide, BetaEstimator(), seed, needs, keep=balanced)


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

    Each round generates a whole batch of groups of new prompts; groups of equal rewards are dropped. It ends when the
    mixed groups fill the batch, or after `generate` batches. All of it is counted; the budget is a limit and may not
    be spent, beyond the one batch that a trainer trains on. With `order="thompson"` prompts are tried in the order of a
    Thompson draw of p (1-p)^2 over the whole dataset, as in VADE (arXiv 2511.18902), instead of in random order.

    Args:
        group: Rollouts of a prompt.
        generate: Most batches that a step may generate, at least 1.
        order: In which prompts are tried.
        discount, idle: Of `BetaEstimator`, for the draw.
        seed: Of ties and draws.

    >>> from budgetalloc import Budget
    >>> step = dapo(group=4, generate=2, seed=0).begin(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    >>> step.request()
    array([4, 4, 0, 0])
    >>> step.observe(["a"] * 4 + ["b"] * 4, [1, 0, 0, 0, 0, 1, 0, 0]); step.request()  # both are mixed: enough
    array([0, 0, 0, 0])
    """
    check_integer("group", group, 1)
    check_integer("generate", generate, 1)
    check_choice("order", order, ("random", "thompson"))

    def decide(view: View) -> Rounds:
        given = Rollouts(view.budget, len(view.belief_P))
        total, batch = given.left, -(-given.left // generate)
        queue = list(range(len(view.belief_P)))[::-1]
        if order == "thompson":
            queue = np.argsort(view.belief_P.sample(view.rng).moment(1, 2), kind="stable").tolist()
        if view.budget.floor:  # every prompt has its floor: there is nobody to resample
            batch = given.left
        useful = 0
        while queue and given.left and useful < batch:
            before_P, end = given.counts_P.copy(), max(given.left - batch, 0)
            while queue and given.left > end:
                size = min(group, given.left // len(queue)) if view.budget.floor else group
                if not given.give(queue.pop(), min(size, given.left - end)):
                    break
            if (given.counts_P == before_P).all():
                break
            tally = yield given.counts_P - before_P
            useful = int(given.counts_P[tally.mixed()].sum())
        before_P = given.counts_P.copy()  # too few prompts for a batch: they get larger groups
        given.spread(np.argsort(before_P, kind="stable"), keep=total - batch)
        yield given.counts_P - before_P

    estimator = BetaEstimator(prior=(1.0, 1.0), discount=discount, idle=idle)
    needs = Needs(candidates="all" if order == "thompson" else generate, baseline="group", generate=generate)
    name = f"dapo(group={group}, generate={generate}, order={order!r}, discount={discount}, idle={idle}, seed={seed})"
    return Policy(name, decide, estimator, seed, needs, keep=mixed_first)
