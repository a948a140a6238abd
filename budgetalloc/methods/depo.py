"""DEPO: prompts whose last visits had the largest advantages, and the least visited ones."""

import math

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_integer, check_number
from budgetalloc.methods.mean_advantage import mean_advantage
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.ranking import ranked

__all__ = ["depo", "depo_eligible"]


def depo_eligible(
    explorable_P: FloatArray, visits_P: FloatArray, share: float, replay: float
) -> NDArray[np.bool_]:
    """The share of the most explorable prompts, and the share `replay` of the others with the
    fewest visits.

    Shares are of all prompts, rounded up; ties go to the first prompt.
    """
    prompts = len(explorable_P)
    chosen_P = np.zeros(prompts, dtype=np.bool_)
    chosen_P[np.argsort(-explorable_P, kind="stable")[: math.ceil(share * prompts - 1e-9)]] = True
    rest = np.flatnonzero(~chosen_P)
    chosen_P[
        rest[np.argsort(visits_P[rest], kind="stable")[: math.ceil(replay * prompts - 1e-9)]]
    ] = True
    return chosen_P


def depo(
    *,
    group: int = 8,
    window: int = 3,
    alpha: float = 0.5,
    decay: float = 0.05,
    lowest: float = 0.2,
    replay: float = 0.1,
    seed: int = 0,
) -> Policy:
    """Prompts of high explorability, and the least visited ones (the online part of DEPO, arXiv
    2509.01321).

    Explorability is the mean |A| of a visit (`mean_advantage`), averaged over the last `window`
    visits. In epoch e the eligible prompts are the share alpha - decay e of the candidates with the
    highest explorability, and the share `replay` of the others with the fewest visits. As many
    eligible prompts as groups of `group` fit into the budget are chosen at random; if there are too
    few, others are added at random. A prompt never seen counts as the most explorable.

    The paper multiplies |A| by the mean token entropy of a rollout and leaves out wrong rollouts of
    high entropy. That needs the trainer's entropies and is not included, nor is the curation before
    training. The values of window, alpha, decay and replay were not found. They are our defaults,
    as are `lowest`, e as the candidates' mean number of visits, rounded down, and a window of
    visits instead of epochs.

    Args:
        group: Rollouts of a chosen prompt, at least 1.
        window: s, visits to average over, 1 to 1,000.
        alpha: alpha_0, the share at the start, in [0, 1].
        decay: d, by which the share falls in an epoch, in [0, 1].
        lowest: Smallest value of the share, in [0, 1].
        replay: rho, share of the least visited, in (0, 1]; it brings prompts without signal back.
        seed: Seeds the draws and the ties.

    >>> from budgetalloc import Budget
    >>> policy = depo(alpha=0.25, replay=0.25, seed=0)
    >>> ids, solved = ["solved", "failed", "half", "rare"], [1] * 8
    >>> policy.observe([x for x in ids for _ in range(8)], solved + [0] * 8 + [0, 1] * 4 + [0] * 7 + [1])
    >>> policy.observe(["solved"] * 8, solved)
    >>> policy.allocate(ids, Budget(rollouts=16, floor=0))  # "half" by explorability, "failed" as rarely visited
    array([0, 8, 8, 0])
    """
    check_integer("group", group, 1)
    check_integer("window", window, 1, 1000)
    check_number("alpha", alpha, 0, 1)
    check_number("decay", decay, 0, 1)
    check_number("lowest", lowest, 0, 1)
    check_number("replay", replay, 0, 1, without=(0,))
    recent = [f"recent {k}" for k in range(window)]  # the last visit's first

    def learn(memory: Memory, visit: Visit) -> None:
        at_V, columns = visit.at_V, memory.columns
        for newer, older in zip(recent[-2::-1], recent[:0:-1], strict=True):
            columns[older][at_V] = columns[newer][at_V]
        columns[recent[0]][at_V] = mean_advantage(visit.rewards_R, visit.group_R, len(at_V))
        columns["visits"][at_V] += 1

    def decide(view: View) -> IntArray:
        prompts, visits_P = len(view.ids_P), view.recall["visits"]
        known_P = np.minimum(visits_P, window)
        total_P = sum((np.nan_to_num(view.recall[name]) for name in recent), np.zeros(prompts))
        explorable_P = np.where(known_P > 0, total_P / np.maximum(known_P, 1), np.inf)
        share = max(alpha - decay * math.floor(visits_P.mean()), lowest)
        chosen_P = depo_eligible(explorable_P, visits_P, share, replay)
        return ranked(chosen_P + view.rng.random(prompts) + 1e-12, group, view)

    settings = f"group={group}, window={window}, alpha={alpha}, decay={decay}, lowest={lowest}, replay={replay}"
    memory = Memory({"visits": 0.0, **dict.fromkeys(recent, math.nan)}, learn)
    needs = Needs(candidates="all", baseline="group")
    return Policy(
        f"depo({settings}, seed={seed})", decide, BetaEstimator(), seed, needs, memory=memory
    )
