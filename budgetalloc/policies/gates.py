"""Published methods that let only prompts of middling success rate pass, as predicted or as screened in the step."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import repeat

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_integer, check_number
from budgetalloc.policies.base import Policy
from budgetalloc.policies.chosen import ranked
from budgetalloc.policies.decision import Needs, Rounds, View
from budgetalloc.policies.rounds import in_rounds

Predict = Callable[[View], ArrayLike]
"""Predicted success rates of a view's prompts, shape (P,); NaN where nothing is known."""


def gate(
    *,
    group: int = 8,
    lo: float = 0.1,
    hi: float = 0.9,
    predict: Predict | None = None,
    explore: float = 0.05,
    discount: float = 0.9,
    idle: float = 1.0,
    seed: int = 0,
) -> Policy:
    """Rolls out prompts whose predicted success rate lies between `lo` and `hi`, in groups of equal size.

    A prompt outside passes all the same with the chance `explore`, so that one which the model has learned or forgotten
    is met again. Of those that pass, as many as groups of `group` fit into the budget are taken at random. If they are
    too few, or none, prompts that did not pass follow, at random too: the budget is spent exactly. All defaults are
    ours.

    Args:
        group: Rollouts of a chosen prompt, at least 1.
        lo, hi: Bounds of the rates that pass, both excluded; lo in [0, 1), hi in (lo, 1].
        predict: Gives the rates, from the view's `ids_P` for example; NaN passes. Without it they are the means of the
            beliefs, and prompts never seen pass. It must depend on nothing else that changes, or a resumed run differs.
        explore: Chance of a prompt outside to pass, in [0, 1]. With 0 it may never be met again.
        discount, idle: Of `BetaEstimator`.
        seed: Of the draws.

    >>> from budgetalloc import Budget
    >>> policy = gate(seed=0)
    >>> policy.observe(["solved"] * 8 + ["half"] * 8 + ["failed"] * 8, [1] * 8 + [0, 1] * 4 + [0] * 8)
    >>> policy.allocate(["solved", "half", "failed", "new"], Budget(rollouts=16, floor=0))
    array([0, 8, 0, 8])
    """
    check_number("lo", lo, 0, 1, without=(1,))
    check_number("hi", hi, lo, 1, without=(lo,))

    def passes(view: View) -> NDArray[np.bool_]:
        if predict is None:
            rate_P = np.where(view.cold_P, math.nan, view.belief_P.mean)
        else:
            rate_P = np.asarray(predict(view), dtype=np.float64)
        if rate_P.shape != (len(view.ids_P),):
            raise InputError(f"predict={_name(predict)} gave shape {rate_P.shape}: give one rate for each prompt.")
        return np.asarray(np.isnan(rate_P) | ((lo < rate_P) & (rate_P < hi)))

    settings = f"group={group}, lo={lo}, hi={hi}, predict={_name(predict)}, explore={explore}"
    name = f"gate({settings}, discount={discount}, idle={idle}, seed={seed})"
    estimator, needs = BetaEstimator(discount=discount, idle=idle), Needs(candidates="all", baseline="group")
    return Policy(name, _open(passes, group, explore), estimator, seed, needs)


def masa(*, group: int = 16, predict: Predict | None = None, explore: float = 0.05, seed: int = 0) -> Policy:
    """Skips prompts predicted to pass always or never: MASA's predictive gating (arXiv 2510.03259).

    In the paper the language model predicts its own success rate, and is trained to. Give such predictions as
    `predict`: rates of exactly 0 and 1 are then shut out. Without it the means of the beliefs stand in, which are never
    0 or 1, and those outside (0.1, 0.9) are: those bounds are ours, as are `explore` and the default of `group`. The
    paper's gating code is not public; its length cut-off and its training are not part of this. See `gate`.

    >>> from budgetalloc import Budget
    >>> policy = masa(group=8, predict=lambda view: [{"a": 0.0, "b": 0.2, "c": 1.0}[x] for x in view.ids_P], seed=0)
    >>> policy.allocate(["a", "b", "c"], Budget(rollouts=8, floor=0))
    array([0, 8, 0])
    """
    lo, hi = (0.1, 0.9) if predict is None else (0.0, 1.0)
    policy = gate(group=group, lo=lo, hi=hi, predict=predict, explore=explore, seed=seed)
    return replace(policy, name=f"masa(group={group}, predict={_name(predict)}, explore={explore}, seed={seed})")


def pvpo_route(rates_P: ArrayLike) -> NDArray[np.str_]:
    """What PVPO does with a prompt of this mean reference reward: "drop", "keep" or "demonstrate"; NaN is kept.

    >>> pvpo_route([1.0, 0.5, 0.0, np.nan]).tolist()
    ['drop', 'keep', 'demonstrate', 'keep']
    """
    rates = np.asarray(rates_P, dtype=np.float64)
    return np.select([rates == 1, rates == 0], ["drop", "demonstrate"], "keep")


def pvpo(
    *,
    group: int = 2,
    reference: Mapping[Id, float] | None = None,
    enough: int = 8,
    demonstrations: bool = False,
    explore: float = 0.05,
    seed: int = 0,
) -> Policy:
    """Drops prompts that a reference model always solves, and those it never does: PVPO's sampling (arXiv 2508.21104).

    The paper rolls out a reference model M times a prompt, renewed from time to time. A mean reward of 1 drops the
    prompt; of 0 sends it to a larger model whose answer replaces one rollout; the rest is kept (`pvpo_route`). Such
    means are `reference`; prompts without one are judged by their own rollouts, a stand-in of ours: `enough` in a row
    of reward 1 are a mean of 1, of reward 0 a mean of 0, and anything else is mixed. A prompt dropped by its own
    rollouts returns when it is explored and does otherwise; one dropped by `reference` when you renew that.

    The paper's baseline is the reference mean and not the group's, so that groups of 1 and 2 have a signal; here the
    posterior baseline does that, and groups of 1 are allowed. Two rollouts gave 97 % of GRPO's result with 5.

    Args:
        group: Rollouts of a chosen prompt, at least 1.
        reference: Mean reward of the reference model by prompt.
        enough: M, at least 1, of a prompt's own rollouts. The paper's is not known to us.
        demonstrations: Whether the trainer puts a demonstration into the group of a prompt of mean 0, which is then
            kept; otherwise it is dropped as well.
        explore: Chance of a dropped prompt to pass, in [0, 1]; ours.
        seed: Of the draws.

    >>> from budgetalloc import Budget
    >>> reference = {"solved": 1.0, "failed": 0.0, "half": 0.5}
    >>> pvpo(reference=reference, seed=0).allocate(reference, Budget(rollouts=2, floor=0))
    array([0, 0, 2])
    >>> pvpo(reference=reference, demonstrations=True, seed=0).allocate(reference, Budget(rollouts=4, floor=0))
    array([0, 2, 2])
    """
    check_integer("enough", enough, 1)
    for x, rate in (reference or {}).items():
        check_number(f"reference[{x!r}]", rate, 0, 1)

    def learn(memory: Memory, visit: Visit) -> None:
        run, at_V = memory.columns["run"], visit.at_V  # rollouts in a row: above 0 of reward 1, below 0 of reward 0
        longer_V = np.where(visit.mean_V == 0, np.minimum(run[at_V], 0) - visit.scored_V, 0)
        run[at_V] = np.where(visit.mean_V == 1, np.maximum(run[at_V], 0) + visit.scored_V, longer_V)

    def passes(view: View) -> NDArray[np.bool_]:
        run_P = view.recall["run"]
        rate_P = np.select([run_P >= enough, run_P <= -enough], [1.0, 0.0], math.nan)
        if reference:
            known = map(reference.get, view.ids_P, repeat(math.nan))
            given_P: FloatArray = np.fromiter(known, dtype=np.float64, count=len(view.ids_P))
            rate_P = np.where(np.isnan(given_P), rate_P, given_P)
        route_P = pvpo_route(rate_P)
        return np.asarray((route_P == "keep") | ((route_P == "demonstrate") & demonstrations))

    given = "given" if reference else None
    settings = f"group={group}, reference={given}, enough={enough}, demonstrations={demonstrations}, explore={explore}"
    needs = Needs(candidates="all", baseline="posterior", min_group=1)
    decide, memory = _open(passes, group, explore), Memory({"run": 0.0}, learn)
    return Policy(f"pvpo({settings}, seed={seed})", decide, BetaEstimator(), seed, needs, memory=memory)


def speed(*, init: int = 4, cont: int = 20, seed: int = 0) -> Policy:
    """Screens prompts with `init` rollouts and continues those with both outcomes by `cont` (SPEED, arXiv 2506.09016).

    A round continues the prompts that the last one screened and screens new ones, as the paper does in one call of the
    inference engine, until the budget is spent; all that is generated counts. What nobody wants goes to the prompts
    that have fewest. A step may take a dozen rounds, the last of them small. The paper trains on continued prompts
    only; here a prompt that was shut out stays in the batch, with `init` rollouts of equal reward. 4 and 20 are the
    examples of the paper's project page.

    Who is continued depends on the screening rewards, so their mean among the continued is drawn towards 1/2: it is
    (p - p^k) / (1 - p^k - (1-p)^k) for k = `init`, which for p = 0.1 and k = 4 is 0.29. A baseline that contains them
    is biased; what was believed before the step is not: `baseline=policy.belief(ids_R).mean`.

    Args:
        init: Rollouts to screen a prompt with, at least 2.
        cont: Rollouts to continue it with, at least 1.
        seed: Of the order in which prompts are screened.

    >>> from budgetalloc import Budget
    >>> step = speed(init=2, cont=4, seed=0).begin(["a", "b", "c", "d"], Budget(rollouts=12, floor=0))
    >>> step.request()
    array([2, 2, 0, 0])
    >>> step.observe(["a", "a", "b", "b"], [0, 1, 1, 1]); step.request()  # a goes on; what is left screens another
    array([4, 0, 0, 0])
    """
    check_integer("init", init, 2)
    check_integer("cont", cont, 1)

    def decide(view: View) -> Rounds:
        every = view.rollouts_only("speed")
        return in_rounds(view, init, cont, init + cont, lambda tally: ~tally.mixed(), every)

    needs = Needs(candidates=-(-(init + cont) // init), baseline="group")
    return Policy(f"speed(init={init}, cont={cont}, seed={seed})", decide, BetaEstimator(), seed, needs)


def _open(passes: Callable[[View], NDArray[np.bool_]], group: int, explore: float) -> Callable[[View], IntArray]:
    """The rule that takes prompts which pass, or are explored, in random order, and then the others."""
    check_integer("group", group, 1)
    check_number("explore", explore, 0, 1)

    def decide(view: View) -> IntArray:
        draws_2P = view.rng.random((2, len(view.ids_P)))
        return ranked((passes(view) | (draws_2P[0] < explore)) + draws_2P[1] + 1e-12, group, view)

    return decide


def _name(predict: Predict | None) -> str | None:
    return None if predict is None else getattr(predict, "__name__", repr(predict))
