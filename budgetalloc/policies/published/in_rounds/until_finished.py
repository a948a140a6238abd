"""Methods that continue a prompt until its rewards say that it is finished, and start other prompts with the rest."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import check_choice, check_integer, check_number
from budgetalloc.policies.downselect.rules import balanced
from budgetalloc.policies.interface import Needs, Outcome, Rounds, Tally, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.rounds import Spending

__all__ = ["ar3po", "disagreement", "fused", "next_gain", "reinforce_ada", "speed", "v05"]


def _until_finished(
    method: str,
    view: View,
    first: int,
    more: int,
    most: int,
    finished: Callable[[Tally], NDArray[np.bool_]],
    generate: int = 1,
) -> Rounds:
    """Rounds that continue unfinished prompts, and start new prompts with the rest of the budget.

    Prompts start in the order of the view, and only as many as could all be continued to `most`. At most the last one
    then stays unfinished. With a floor all prompts start at once, and several may. If no prompt is left to continue or
    to start, the prompts with the fewest rollouts get more, until the step has what is trained on.

    Args:
        method: The method's name, for errors.
        view: The view of the decision.
        first, more, most: Rollouts to start a prompt with, to continue it with, and in all.
        finished: Which prompts need no more, shape (P,).
        generate: Rollouts that a step may generate for each one that is trained on.
    """
    total, prompts = view.rollouts_only(method), len(view.belief_P)
    spending, tally = Spending(view.budget, prompts), Tally.empty(prompts)
    started, most, spare = 0, min(most, view.budget.largest_group), total - -(-total // generate)
    while spending.left:
        before_P = spending.counts_P.copy()
        if view.budget.fewest and not started:
            share = spending.left // prompts // view.budget.quantum * view.budget.quantum
            spending.give_each(np.arange(prompts), min(first, share))
            started = prompts
        open_P = (before_P > 0) & (before_P < most) & ~finished(tally)
        spending.give_each(np.flatnonzero(open_P), np.minimum(more, most - before_P[open_P]))
        owed = int(np.maximum(most - spending.counts_P[open_P], 0).sum())  # if none of these finishes
        starts = max(spending.left - owed, 0) // most or int((spending.counts_P == before_P).all())
        spending.give_each(np.arange(started, min(started + starts, prompts)), first)
        started = min(started + starts, prompts)
        if (spending.counts_P == before_P).all():  # no prompt to continue or to start
            spending.spread(np.argsort(spending.counts_P, kind="stable"), keep=spare)
            if (spending.counts_P == before_P).all():
                return
        tally = yield spending.counts_P - before_P


def ar3po(*, group: int = 8, stages: int = 2, seed: int = 0) -> Policy:
    """Stops a prompt at its first success: AR3PO's adaptive rollout (arXiv 2509.25808).

    Each stage gives `group / stages` rollouts to every prompt without a success. The rollouts saved start further
    prompts, so that the budget is spent exactly. Groups that always pass stay without signal. The group's mean is
    biased upwards (for two stages of k, by (1-p)^k p / 2). Any graded success above 0 counts as a success.

    The paper's number of stages was not found, only that group = 8; two is our default. Its reuse of responses is not
    included.

    Args:
        group: Most rollouts of a prompt, at least 1.
        stages: Rounds to reach it, 1 to `group`.
        seed: Seeds the ties.

    >>> from budgetalloc import Budget
    >>> step = ar3po(seed=0).begin(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    >>> step.request()
    array([4, 4, 0, 0])
    >>> step.observe(["a", "a", "a", "a", "b", "b", "b", "b"], [0, 1, 0, 0, 0, 0, 0, 0])
    >>> step.request()  # b continues; what a does not need will start c
    array([0, 4, 0, 0])
    """
    check_integer("group", group, 1)
    check_integer("stages", stages, 1, group)
    each = -(-group // stages)

    def decide(view: View) -> Rounds:
        return _until_finished("ar3po", view, each, each, group, lambda tally: tally.successes_P > 0)

    needs = Needs(candidates=stages, baseline="group")
    return Policy(f"ar3po(group={group}, stages={stages}, seed={seed})", decide, BetaEstimator(), seed, needs)


def reinforce_ada(
    *, group: int = 8, stages: int = 4, quota: Literal["balanced", "positive"] = "balanced", seed: int = 0
) -> Policy:
    """Samples a prompt until it has `group / 2` successes and as many failures (Reinforce-Ada, arXiv 2510.04996).

    Each of up to `stages` rounds gives `group` rollouts to every prompt that lacks either. `group` rows of a prompt are
    then trained on, balanced where possible; advantages are computed over all generated rollouts. The budget is a
    limit, of which only the share `1 / stages` that is trained on is always spent. With `quota="positive"` one success
    is enough, the paper's lighter rule. Graded success of 0.5 counts as half a success and half a failure. The number
    of rounds is our default. The paper's estimation-based variant is not included.

    Args:
        group: Rollouts of a round, and of a prompt in training.
        stages: Most rounds.
        quota: "balanced" or "positive".
        seed: Seeds the ties.

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
        return _until_finished("reinforce_ada", view, group, group, group * stages, finished, stages)

    needs = Needs(baseline="group", generate=stages)
    name = f"reinforce_ada(group={group}, stages={stages}, quota={quota!r}, seed={seed})"
    return Policy(name, decide, BetaEstimator(), seed, needs, keep=balanced)


def speed(*, init: int = 4, cont: int = 20, seed: int = 0) -> Policy:
    """Screens prompts with `init` rollouts and continues those with both outcomes by `cont` (SPEED, arXiv 2506.09016).

    A round continues the prompts that the previous round screened and screens new ones, until the budget is spent. The
    paper does both in one call of the inference engine. Rollouts that no prompt needs go to the prompts with the
    fewest. A step may take a dozen rounds, the last of them small. The paper trains on continued prompts only; here a
    prompt that was not continued stays in the batch, with `init` equal rewards. 4 and 20 are the examples of the
    paper's project page.

    Among continued prompts, the mean of the screening rewards is biased towards 1/2: it is
    (p - p^k) / (1 - p^k - (1-p)^k) for k = `init`, which is 0.29 for p = 0.1 and k = 4. A baseline that contains these
    rewards is biased; the posterior mean before the step, `baseline=policy.belief(ids_R).mean`, is unbiased.

    Args:
        init: Rollouts to screen a prompt with, at least 2.
        cont: Rollouts to continue it with, at least 1.
        seed: Seeds the order in which prompts are screened.

    >>> from budgetalloc import Budget
    >>> step = speed(init=2, cont=4, seed=0).begin(["a", "b", "c", "d"], Budget(rollouts=12, floor=0))
    >>> step.request()
    array([2, 2, 0, 0])
    >>> step.observe(["a", "a", "b", "b"], [0, 1, 1, 1]); step.request()  # a continues; the rest will screen another
    array([4, 0, 0, 0])
    """
    check_integer("init", init, 2)
    check_integer("cont", cont, 1)

    def decide(view: View) -> Rounds:
        return _until_finished("speed", view, init, cont, init + cont, lambda tally: ~tally.mixed())

    needs = Needs(candidates=-(-(init + cont) // init), baseline="group")
    return Policy(f"speed(init={init}, cont={cont}, seed={seed})", decide, BetaEstimator(), seed, needs)


def disagreement(mean_P: FloatArray, value_P: FloatArray, n_P: FloatArray) -> FloatArray:
    """The squared error of a value, estimated from a group's mean for rewards of -1 and 1, shape (P,).

    max(0, (2 mean - 2 value)^2 - 1 / n), where 1 / n is the largest variance of a mean of n; 0 where n is 0.
    """
    return np.where(n_P > 0, np.maximum(4 * (mean_P - value_P) ** 2 - 1 / np.maximum(n_P, 1), 0.0), 0.0)


def fused(mean_P: FloatArray, value_P: FloatArray, n_P: FloatArray) -> FloatArray:
    """V0.5's baseline: w mean + (1 - w) value, w = d / (d + 1 / n) with d the `disagreement`, shape (P,)."""
    error_P = disagreement(mean_P, value_P, n_P)
    weight_P = error_P / (error_P + 1 / np.maximum(n_P, 1))
    return np.asarray(weight_P * mean_P + (1 - weight_P) * value_P)


def next_gain(error_P: ArrayLike, n_P: ArrayLike) -> FloatArray:
    """The fall of the squared error of `fused` by one more rollout, d / (d n + 1) - d / (d (n + 1) + 1), shape (P,)."""
    error, n = np.asarray(error_P, dtype=np.float64), np.asarray(n_P, dtype=np.float64)
    return np.asarray(error / (error * n + 1) - error / (error * (n + 1) + 1))


def v05(*, first: int = 4, most: int = 16, more: int = 1, cost: float = 0.0039, seed: int = 0) -> Policy:
    """Groups of `first`, and more rollouts where they contradict the belief (V0.5, arXiv 2603.10848).

    The baseline is the believed success V where the group's mean agrees with it, and otherwise lies between V and the
    mean (`fused`). The test is whether their distance exceeds the noise of the mean. A group continues, up to `most`,
    while one more rollout lowers the expected squared error of the baseline by more than `cost` (`next_gain`). What it
    does not need starts further prompts, so that the budget is spent exactly. Graded success enters through its mean
    alone.

    The paper's V is a pretrained value model. Here it is the posterior mean before the step, with the prior of the pool
    for a prompt never seen. Rules and constants are from a reader's notes of the paper. The scale of the advantages was
    not found; here it is their root mean square. The baseline contains the rollout's own reward where the group
    disagrees. Groups of 1 and 2 did not converge in the paper.

    Args:
        first: Rollouts to start a prompt with, at least 1.
        most: Most rollouts of a prompt, at least `first`.
        more: Rollouts to continue a group with, at least 1, the paper's. Larger numbers take fewer rounds.
        cost: The fall of the squared error that a further rollout must exceed; 0.0039 is 1 / 16^2.
        seed: Seeds the ties.

    >>> from budgetalloc import Budget
    >>> policy = v05()
    >>> for _ in range(3):
    ...     policy.observe(["known", "fell"] * 8, [1] * 16)
    >>> step = policy.begin(["known", "fell"], Budget(rollouts=16, floor=4))
    >>> step.request()
    array([4, 4])
    >>> step.observe(["known"] * 4 + ["fell"] * 4, [1] * 4 + [0] * 4); step.request()
    array([0, 1])
    """
    check_integer("first", first, 1)
    check_integer("most", most, first)
    check_integer("more", more, 1)
    check_number("cost", cost, 0, 1)

    def decide(view: View) -> Rounds:
        value_P = view.belief_P.mean

        def settled(tally: Tally) -> NDArray[np.bool_]:
            mean_P = tally.successes_P / np.maximum(tally.scored_P, 1)
            return next_gain(disagreement(mean_P, value_P, tally.scored_P), tally.scored_P) <= cost

        return _until_finished("v05", view, first, more, most, settled)

    def expect(outcome: Outcome) -> FloatArray:
        return fused(outcome.mean_G, outcome.belief_G.mean, outcome.scored_G)[outcome.group_R]

    name = f"v05(first={first}, most={most}, more={more}, cost={cost}, seed={seed})"
    estimator, needs = BetaEstimator(prior="pool", discount=0.9), Needs(candidates=2, baseline="policy", scale="rms")
    return Policy(name, decide, estimator, seed, needs, expect=expect)
