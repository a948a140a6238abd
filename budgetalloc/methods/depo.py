"""DEPO: prompts whose last visits had the largest advantages, and the least visited ones."""

import math
from typing import Annotated

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.memory import Memory
from budgetalloc.budget import IntArray
from budgetalloc.methods.rules import count_visits, latest_first, mean_advantage, ranked
from budgetalloc.methods.table import AboveZero, Between, Count, Share, method, policy
from budgetalloc.policies import Policy, View


@method("which prompts", "released code")
def depo(
    *,
    group: Count = 8,
    window: Annotated[int, Between(1, 1000)] = 3,
    alpha: Share = 1.0,
    decay: Share = 0.03,
    lowest: Share = 0.4,
    replay: AboveZero = 0.1,
    seed: int = 0,
) -> Policy:
    """Chooses the prompts whose last visits had the largest advantages, and some of the least
    visited. It is meant to save the rollouts of prompts with little signal and still to return to
    them.

    Formula: the share alpha_0 - d e with the largest mean |A| of the last visits, and the share rho
    least visited.

    Source: DEPO (arXiv 2509.01321). Compared with the released code (txy77/DEPO@eb99f9a), which
    gives the constants. rho is our default: in the code the least visited only fill the GPUs. The
    entropy factor and the filter, which need the trainer, are left out.

    e is the candidates' mean number of visits, rounded down. Prompts never seen are chosen besides.

    Args:
        window: s, visits to average over.
        alpha, decay, lowest: alpha_0, the share at the start; d, its fall in an epoch; its minimum.
        replay: rho, share of the least visited; it brings prompts without signal back.

    >>> from budgetalloc import Budget
    >>> policy, ids = depo(alpha=0.25, lowest=0.2, replay=0.25, seed=0), ["solved", "failed",
    ...     "half"]
    >>> policy.observe([x for x in ids for _ in range(8)], [1] * 8 + [0] * 8 + [0, 1] * 4)
    >>> policy.observe(["solved"] * 8, [1] * 8)
    >>> policy.allocate(ids, Budget(rollouts=16, floor=0))  # "failed" was visited less often
    array([0, 8, 8])
    """

    def learn(memory: Memory, seen: ByPrompt) -> None:
        recent = memory.columns["recent"]
        at_P = memory.rows(seen.ids_P)
        size_P = mean_advantage(seen.rewards_R, seen.prompt_R, len(at_P))
        recent[at_P] = latest_first(recent[at_P], size_P)
        count_visits(memory, seen)

    def decide(view: View) -> IntArray:
        visits_P, prompts = view.recall["visits"], len(view.ids_P)
        explorable_P = view.recall["recent"].sum(axis=1) / np.clip(visits_P, 1, window)
        share = max(alpha - decay * math.floor(visits_P.mean()), lowest)
        seen = np.flatnonzero(visits_P)
        best = seen[np.lexsort((visits_P[seen], -explorable_P[seen]))]
        best, rest = np.split(best, [int(share * len(seen) + 1e-9)])
        rarest = rest[np.lexsort((-explorable_P[rest], visits_P[rest]))]
        chosen_P = visits_P == 0
        chosen_P[np.r_[best, rarest[: math.ceil(replay * prompts - 1e-9)]]] = True
        return ranked(chosen_P + view.rng.random(prompts) + 1e-12, group, view)

    memory = Memory({"visits": 0.0, "recent": [0.0] * window}, learn)
    return policy(decide, memory=memory, candidates="all")
