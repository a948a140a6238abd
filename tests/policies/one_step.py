"""Advantages of one step by itself: what `batch_advantages` gives where nothing else was seen before."""

import numpy as np

from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.beliefs.ids import factorize
from budgetalloc.beliefs.posterior import Beta
from budgetalloc.beliefs.rewards import to_unit
from budgetalloc.policies.advantages import batch_advantages
from budgetalloc.policies.rollouts import Rollouts


def rollouts_of(
    rewards, ids, *, belief_R=None, success_R=None, expected_R=None, lengths_R=None, reward_range=None, earlier=None
):
    """Rollouts whose success is the reward in (0, 1), or in this range, or as given."""
    rewards_R, ids = np.array([np.nan if x is None else x for x in rewards], dtype=float), list(ids)
    low, high = reward_range or (0.0, 1.0)
    unit_R = np.clip(to_unit(rewards_R, (low, high)), 0.0, 1.0)
    belief_R = belief_R or Beta(np.ones(len(ids)), np.ones(len(ids)))
    return Rollouts(
        ids_R=ids,
        group_R=factorize(ids)[1],
        rewards_R=rewards_R,
        success_R=unit_R if success_R is None else np.asarray(success_R, dtype=float),
        belief_R=belief_R,
        baseline_R=belief_R,
        prior=Beta(np.full(len(ids), 1e-12), np.full(len(ids), 1e-12)),  # none
        earlier=earlier or Sums(),
        reward_range=(low, high) if success_R is None else None,
        jump=high - low,
        expected_R=None if expected_R is None else np.asarray(expected_R, dtype=float),
        lengths_R=np.zeros(len(ids), dtype=int) if lengths_R is None else lengths_R,
        round_R=np.zeros(len(ids), dtype=int),
        hinted_R=np.zeros(len(ids), dtype=bool),
        scores_RF=rewards_R[:, None],
    )


def advantages_of_step(rewards, ids, baseline="group", scale="group", weight="rollout", **given):
    """The advantages themselves, shape (R,)."""
    return batch_advantages(rollouts_of(rewards, ids, **given), baseline, scale, weight).values_R
