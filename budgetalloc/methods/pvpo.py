"""PVPO: prompts by the mean reward of a reference model."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.errors import check_array, check_flag, check_integer, check_number, check_type
from budgetalloc.methods.gates import pass_or_explore
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy

__all__ = ["pvpo", "pvpo_route"]


def pvpo_route(rates_P: ArrayLike) -> NDArray[np.str_]:
    """PVPO's treatment of prompts by mean reference reward: "drop", "keep" or "demonstrate"; NaN is
    kept.

    >>> pvpo_route([1.0, 0.5, 0.0, np.nan]).tolist()
    ['drop', 'keep', 'demonstrate', 'keep']
    """
    rates = check_array("rates_P", rates_P, "the mean reference reward of each prompt")
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
    """Drops prompts that a reference model always or never solves: PVPO's sampling (arXiv
    2508.21104).

    The paper rolls out a reference model M times for each prompt, renewed from time to time. A
    prompt of mean reward 1 is dropped. One of 0 goes to a larger model whose answer replaces one
    rollout. The rest is kept (`pvpo_route`). Such means are `reference`. Prompts without one are
    judged by their own rollouts, which is our rule: `enough` consecutive rewards of 1 count as a
    mean of 1, of 0 as a mean of 0, and anything else, graded success included, as mixed. A prompt
    dropped for its own rollouts returns when exploration shows another reward; one dropped for its
    `reference` returns when the user updates it.

    The paper's baseline is the reference mean, so that groups of 1 and 2 have a signal. Here the
    posterior baseline serves this purpose. In the paper, two rollouts gave 97 % of GRPO's result
    with 5.

    Args:
        group: Rollouts of a chosen prompt, at least 1.
        reference: Mean reward of the reference model by prompt.
        enough: M, at least 1, of a prompt's own rollouts. The paper's was not found.
        demonstrations: Whether the trainer adds a demonstration to the group of a prompt of mean 0.
            The prompt is then kept, otherwise dropped.
        explore: Probability that a dropped prompt passes, in [0, 1]; our default.
        seed: Seeds the draws.

    >>> from budgetalloc import Budget
    >>> reference = {"solved": 1.0, "failed": 0.0, "half": 0.5}
    >>> pvpo(reference=reference, seed=0).allocate(reference, Budget(rollouts=2, floor=0))
    array([0, 0, 2])
    >>> pvpo(reference=reference, demonstrations=True, seed=0).allocate(reference, Budget(rollouts=4, floor=0))
    array([0, 2, 2])
    """
    check_integer("enough", enough, 1)
    check_flag("demonstrations", demonstrations)
    if reference is not None:
        check_type(
            "reference", reference, Mapping, "a mapping from a prompt's id to its mean reward"
        )
    for x, rate in (reference or {}).items():
        check_number(f"reference[{x!r}]", rate, 0, 1)

    def learn(memory: Memory, visit: Visit) -> None:
        # rollouts in a row: above 0 of reward 1, below 0 of reward 0
        run, at_V = memory.columns["run"], visit.at_V
        longer_V = np.where(visit.mean_V == 0, np.minimum(run[at_V], 0) - visit.scored_V, 0)
        run[at_V] = np.where(visit.mean_V == 1, np.maximum(run[at_V], 0) + visit.scored_V, longer_V)

    # a success of 0 or 1 may change
    def rescale(memory: Memory, scale: float, shift: float) -> None:
        run = memory.columns["run"]
        memory.columns["run"] = np.clip(
            run, -math.inf if shift <= 0 else 0, math.inf if scale + shift >= 1 else 0
        )

    def passes(view: View) -> NDArray[np.bool_]:
        run_P = view.recall["run"]
        rate_P = np.select([run_P >= enough, run_P <= -enough], [1.0, 0.0], math.nan)
        if reference:
            given_P = np.array([reference.get(x, math.nan) for x in view.ids_P], dtype=np.float64)
            rate_P = np.where(np.isnan(given_P), rate_P, given_P)
        route_P = pvpo_route(rate_P)
        return np.asarray((route_P == "keep") | ((route_P == "demonstrate") & demonstrations))

    given = "given" if reference else None
    settings = f"group={group}, reference={given}, enough={enough}, demonstrations={demonstrations}, explore={explore}"
    needs = Needs(candidates="all", baseline="posterior", min_group=1)
    memory = Memory({"run": 0.0}, learn, lowest={"run": -math.inf}, rescale=rescale)
    decide = pass_or_explore(passes, group, explore)
    return Policy(
        f"pvpo({settings}, seed={seed})", decide, BetaEstimator(), seed, needs, memory=memory
    )
