"""The recommended policy: rollouts drawn at random in proportion to a weight."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.estimator import BetaEstimator, Estimator
from budgetalloc.beliefs.features import Features
from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import (
    BudgetError,
    InputError,
    check_flag,
    check_integer,
    check_number,
    keywords,
)
from budgetalloc.policies.composition import least_groups, spend, top
from budgetalloc.policies.group_advantages import Scale
from budgetalloc.policies.interface import Decide, Needs, Rounds, View, budget_of_groups
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.retries import retrying
from budgetalloc.policies.rounds import growing
from budgetalloc.solvers.domains import Domains, totals_of_domains
from budgetalloc.solvers.proportional import systematic, systematic_in_groups

IDLE = 0.98  # discount of the evidence at each step
_KEPT = 0.96  # of the evidence at a visit in `adaptive`: 20 visits change a mind
PRIOR = (0.3, 0.3)
# mass of a belief with which single rollouts are compared: a prior of 0.6 and one rollout
_ENOUGH = 1.6


@keywords
def sampled(
    *,
    power: tuple[int, int] = (1, 2),
    draw: bool = True,
    prior: tuple[float, float] = PRIOR,
    discount: float = 1.0,
    idle: float = IDLE,
    groups: int = 0,
    estimator: Estimator | None = None,
    unsolved: float = 0.0,
    explore: float = 0.0,
    seed: int = 0,
) -> Policy:
    """Draws more rollouts for prompts that fail often but sometimes succeed, by systematic
    sampling.

    Formula: counts in proportion to sqrt(p^i (1-p)^j), at each prompt's drawn rate p.

    With power=(1, 1) the weight is the standard deviation of a 0/1 reward. With (1, 2), the
    default, its square is also multiplied by 1 - p, as in Knapsack RL (arXiv 2509.25849) and VADE
    (2511.18902): mastered prompts get few rollouts, prompts with rare successes many. The Thompson
    draw of p explores prompts with little evidence.

    There is no importance weighting: the expected gradient of a step is that of a mean of the
    success rates with the weights of the draw, divided by each prompt's deviation if the advantages
    are. At known rates, power (1, 2) and scaled advantages the weight is sqrt(1-p).

    The posterior baseline allows groups of one: a step can cover as many prompts as it has
    rollouts. Evidence is discounted at every step without a visit of the prompt. The belief about a
    prompt without visits returns to the prior, and the prompt is drawn again; that about a prompt
    visited at every step forgets nothing, unless `discount` is below 1.

    If rollouts have costs, weights are divided by the root of the cost of a rollout, and prompts
    that are long relative to their answers get groups (`least_groups`). Under quotas the rollouts
    are first divided between the domains in proportion to their total weights. Of a very large pool
    a step sees a part, drawn anew at each step (`Needs.seen_of`).

    Args:
        power: i and j, integers from 0 to 16.
        draw: Draw p from the belief; otherwise E[p^i (1-p)^j] under the belief is used.
        prior, discount, idle: As in `BetaEstimator`.
        groups: An integer from 0 to 4. Above 0, a prompt with a vague belief (a mass below 1.6
            rollouts) gets either nothing or a group: the larger the less is known (`first_groups`),
            and at least `groups`. Advantages then have scale "group". With 0, all prompts may get
            single rollouts, and advantages have scale "rms".
        estimator: Keeps the beliefs, such as a `TrackingEstimator`, in place of a `BetaEstimator`
            of prior, discount and idle.
        unsolved: Share of the rollouts of visited prompts that is drawn in proportion to 1 - p
            instead, from 0 to 1. Above 0, so are all rollouts of unvisited prompts. Shared beliefs
            otherwise treat a class of unsolved prompts as hopeless.
        explore: Share of the rollouts that is drawn evenly from all prompts, from 0 to 1, or by
            their costs alone. It also reaches prompts whose weight is near 0.
        seed: Seeds the draws.

    >>> from budgetalloc import Budget
    >>> policy = sampled(seed=0)
    >>> policy.observe(["mastered"] * 16 + ["half"] * 16, [1] * 16 + [0, 1] * 8)
    >>> policy.allocate(["mastered", "half", "new"], Budget(rollouts=16, floor=0, min_group=1))
    array([ 0, 11,  5])
    """
    try:
        i, j = (check_integer("power", x, 0, 16) for x in power)
    except (TypeError, ValueError) as error:  # InputError is a ValueError
        raise InputError(
            "power", "use two integers from 0 to 16, such as (1, 2).", power
        ) from error
    check_flag("draw", draw)
    check_integer("groups", groups, 0, 4)
    unsolved = check_number("unsolved", unsolved, 0, 1)
    explore = check_number("explore", explore, 0, 1)
    if estimator is None:
        estimator = BetaEstimator(prior=prior, discount=discount, idle=idle)
        beliefs = f"prior={prior!r}, discount={discount}, idle={idle}"
    elif (prior, discount, idle) != (PRIOR, 1.0, IDLE):
        raise InputError(
            f"estimator={estimator}:", "leave out prior, discount and idle, which it replaces."
        )
    else:
        beliefs = f"estimator={estimator}"

    def decide(view: View) -> IntArray:
        belief: Belief = view.belief_P.sample(view.rng) if draw else view.belief_P
        budget = view.budget
        weights_P = belief.moment(i, j)
        if i and j:
            weights_P *= belief.spread_P
        np.sqrt(weights_P, out=weights_P)
        if unsolved:
            failure_P = np.sqrt(belief.moment(0, 2))
            weights_P = towards_unsolved(weights_P, failure_P, view.cold_P, unsolved)
        if explore:
            weights_P = (1 - explore) * weights_P + explore * weights_P.mean()
        least_P: IntArray | int = 1
        if (costs := view.priced) is not None:
            prompt_costs_P, costs_P = costs
            least_P = least_groups(prompt_costs_P, costs_P, budget)
            of_rollout_P = costs_P + prompt_costs_P / least_P
            weights_P /= np.sqrt(of_rollout_P / of_rollout_P.mean())
        weights_P += 1e-9  # prompts without variance come last
        if budget.rollouts is not None and budget.rollouts >= len(weights_P) and view.cold_P.any():
            # There are rollouts for all prompts: unseen ones get equal weights.
            weights_P[view.cold_P] = weights_P[view.cold_P].mean()
        if budget.rollouts is None or budget.tokens is not None:
            return spend(belief, top(weights_P, budget.smallest_group), view, None)

        mass_P = view.belief_P.mass

        def drawn(rows: slice | IntArray, rollouts: int) -> IntArray:
            weights, least = weights_P[rows], least_P if isinstance(least_P, int) else least_P[rows]
            if groups:
                prompts = len(weights) + view.left_out
                sizes = first_groups(mass_P[rows], prompts, rollouts, idle, groups)
                least = np.maximum(least, sizes)
            alone = replace(budget, rollouts=rollouts, quotas=None)
            if isinstance(least, int):
                return systematic(weights, alone, view.rng)
            return systematic_in_groups(weights, least, alone, view.rng)

        if budget.quotas is None:
            return drawn(slice(None), budget.rollouts)
        domains = Domains.of(view.domains_P, budget)
        counts_P = np.zeros(len(view.ids_P), dtype=np.int64)
        total_D = totals_of_domains(weights_P, domains, view.rng).tolist()
        for rows, rollouts in zip(domains.rows_D, total_D, strict=True):
            if rollouts:
                counts_P[rows] = drawn(rows, rollouts)
        return counts_P

    scale: Scale = "group" if groups else "rms"
    part = 16 if explore == 1 else 128  # few prompts may have most of the weight
    needs = Needs("all", baseline="posterior", scale=scale, min_group=1, costs=True, part=part)
    name = (
        f"sampled(power={power}, draw={draw}, {beliefs}, groups={groups}, unsolved={unsolved}, "
        f"explore={explore}, seed={seed})"
    )
    return Policy(name, decide, estimator, seed, needs)


def towards_unsolved(
    weights_P: FloatArray, failure_P: FloatArray, cold_P: NDArray[np.bool_], share: float
) -> FloatArray:
    """Weights of which this share is proportional to the failure rates 1 - p; all of it for prompts
    never visited.

    >>> weights_P, failure_P = np.array([3.0, 1.0, 0.0]), np.array([0.5, 0.5, 0.8])
    >>> towards_unsolved(weights_P, failure_P, np.array([False, False, True]), 0.5)
    array([0.625, 0.375, 0.8  ])
    """
    mixed_P = failure_P.copy()
    seen_P = ~cold_P
    if (total := weights_P[seen_P].sum()) > 0:
        usual_P = weights_P[seen_P] * (failure_P[seen_P].sum() / total)
        mixed_P[seen_P] = share * failure_P[seen_P] + (1 - share) * usual_P
    return mixed_P


def first_groups(
    mass_P: FloatArray, prompts: int, rollouts: int, idle: float, least: int
) -> IntArray:
    """The group size of each prompt, from 1 to 4 and at most `rollouts`, with which its belief
    weighs 1.6 rollouts when it returns.

    A prompt is drawn again after about prompts / rollouts steps, when idle ** (prompts / rollouts)
    of the evidence is left. If that is less than a quarter, each prompt is visited about once, and
    its first group is all that it is compared with.

    Args:
        mass_P: The mass alpha + beta of each belief, shape (P,). From 1.6 on a prompt gets single
            rollouts.
        prompts, rollouts: Of the pool, and of a step.
        idle: Discount of the evidence at each step.
        least: Smallest group of a prompt with a mass below 1.6.

    >>> first_groups(np.array([0.6, 1.0, 1.5, 1.6]), 32400, 256, 0.98, least=1)  # a quarter is left
    array([4, 2, 1, 1])
    """
    left = max(idle ** (prompts / rollouts), 0.25)
    sizes = min(least, rollouts), min(4, rollouts)  # else no new prompt would fit a tiny step
    vague_P = np.clip(np.rint((_ENOUGH - mass_P) / left), *sizes)
    return np.where(mass_P < _ENOUGH, vague_P, 1.0).astype(np.int64)


@keywords
def adaptive(
    *,
    features: Features | None = None,
    explore: float | None = None,
    rounds: int = 1,
    seed: int = 0,
) -> Policy:
    """The recommended policy: rollouts over the whole dataset, retries of what failed, and a belief
    about each prompt as the baseline.

    Prompts are drawn alike. One with history gets a single rollout, one without history a group of
    2, or of up to 4 in a pool so large that history fades before a prompt returns (`first_groups`).
    While all rollouts of a prompt fail, it is retried in the next step with as many as have failed,
    until 8 have failed in a row (`retrying`); not with a floor, tokens or quotas.
    The policy asks a trainer for `candidates="all"`, `baseline="posterior"`, `scale="none"` and
    `min_group=1`.

    At each step a belief keeps 98 % of the evidence about a prompt that is not visited, and 96 % of
    that about a prompt that is: of a prompt met at every step, 25 steps count.

    Args:
        features: Features of the prompts, by which they share what is learned. The beliefs are then
            those of a `TrackingEstimator`, nothing is retried, prompts are drawn by `sampled`, half
            of the rollouts in proportion to 1 - p (its `unsolved`), and `scale` is "group": as it
            was measured with features.
        explore: The share of the rollouts that is drawn evenly from all prompts, the others as in
            `sampled`. By default 1, and 0 with rounds or features.
        rounds: Generations of a step, at least 1. With 3, groups start with 2 rollouts at most, and
            what failed is continued in the same step (`growing`), which waits for the longest
            rollout of each round. Evidence about visited prompts does not fade then, and `scale` is
            "group".
        seed: Seeds the draws.

    >>> adaptive()
    adaptive(seed=0)
    >>> adaptive(explore=0.1, rounds=3)
    adaptive(explore=0.1, rounds=3, seed=0)
    >>> from budgetalloc import Budget
    >>> policy, budget = adaptive(), Budget(rollouts=4, floor=0, min_group=1)
    >>> policy.observe(["easy", "easy", "hard", "hard"], [1, 0, 0, 0])
    >>> policy.allocate(["easy", "hard", "new"], budget)
    array([0, 2, 2])
    """
    once = check_integer("rounds", rounds, 1) == 1
    kept, alike = (_KEPT, 1.0) if once else (1.0, 0.0)
    given = f"explore={explore}, " if explore is not None else ""
    given += f"rounds={rounds}, " if not once else ""
    even = alike if explore is None else explore
    policy = sampled(groups=2, explore=even, discount=kept, seed=seed)
    featured = sampled(groups=2, unsolved=0.5, explore=explore or 0.0, seed=seed)
    if once:
        policy = replace(retrying(policy), needs=replace(policy.needs, scale="none"))
    else:
        policy, featured = growing(policy, rounds=rounds), growing(featured, rounds=rounds)
    policy = replace(policy, name=f"adaptive({given}seed={seed})", featured=featured)
    return policy if features is None else policy.with_features(features)


def uniform_groups(size: int) -> Decide:
    """The rule of uniform GRPO: groups of this size, of prompts drawn uniformly at random.

    With a floor all prompts get equal counts. Groups are halved until quotas can be kept.

    >>> import budgetalloc as ba
    >>> policy, budget = ba.adaptive(), ba.Budget(rollouts=8, floor=0, min_group=1)
    >>> sorted(policy.begin(range(9), budget, decide=uniform_groups(4)).request().tolist())
    [0, 0, 0, 0, 0, 0, 0, 4, 4]
    """
    alike = sampled(power=(0, 0), draw=False).decide

    def decide(view: View) -> IntArray | Rounds:
        least = size
        while True:
            budget = budget_of_groups(least, view.budget)
            try:
                return alike(replace(view, budget=budget, costs_P=None, prompt_costs_P=None))
            except BudgetError:
                if budget.smallest_group <= view.budget.smallest_group:
                    raise
            least //= 2

    return decide
