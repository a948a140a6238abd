"""The limits of a model that stands still, against groups drawn from gradients that are known."""

import limits  # in benchmarks/scale
import numpy as np
import pytest
from gradients import World


@pytest.fixture(scope="module")
def known():
    """A world of 20 prompts with 150 rollouts each: rewards, and the gradient of each rollout's log-probability."""
    rng = np.random.default_rng(0)
    prompts, samples, size = 20, 150, 6
    rates_P = rng.uniform(0.1, 0.9, prompts)
    rewards_PS = (rng.random((prompts, samples)) < rates_P[:, None]).astype(float)
    common, own_PD = rng.normal(size=size), rng.normal(size=(prompts, size))
    towards_PSD = (rewards_PS - rates_P[:, None])[..., None] * (common + own_PD[:, None])
    scores_PSD = 2 * towards_PSD + rng.normal(size=(prompts, samples, size))
    scores_PSD -= scores_PSD.mean(1, keepdims=True)
    scores_RD = scores_PSD.reshape(-1, size)
    return rewards_PS, scores_PSD, World(rewards_PS, np.ones_like(rewards_PS), scores_RD @ scores_RD.T, range(prompts))


@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_square_of_a_group_is_that_of_groups_that_were_drawn(known, size):
    rewards_PS, scores_PSD, world = known
    rng = np.random.default_rng(1)
    draws = 6000
    at_B, of_BG = rng.integers(len(rewards_PS), size=draws), rng.integers(rewards_PS.shape[1], size=(draws, size))
    rewards_BG = rewards_PS[at_B[:, None], of_BG]
    advantages_BG = rewards_BG - (rewards_BG.sum(1, keepdims=True) - rewards_BG) / (size - 1)
    sum_BD = (advantages_BG[..., None] * scores_PSD[at_B[:, None], of_BG]).sum(1)
    drawn = (sum_BD**2).sum(1).mean() / size
    assert limits.group_square(world, limits.Moments(world), size) == pytest.approx(drawn, rel=0.06)
