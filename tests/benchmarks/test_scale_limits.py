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


def test_neymans_factor_is_that_of_draws_with_weights(known):
    """x of prompts that are drawn in proportion to s and weighed back, beside prompts that are drawn alike."""
    rewards_PS, scores_PSD, _ = known
    scores_PSD = scores_PSD * np.linspace(0.2, 3, len(scores_PSD))[:, None, None]
    scores_RD = scores_PSD.reshape(-1, scores_PSD.shape[-1])
    bounds_PS = (scores_PSD**2).sum(-1)
    world = World(rewards_PS, np.ones_like(rewards_PS), scores_RD @ scores_RD.T, range(len(rewards_PS)), bounds_PS)
    found = {name: float(figure) for name, figure in limits.neyman_factors(world)}
    assert found["Neyman's choice by its E[x^2]"] > 1.2 > 1.05 > found["Neyman's choice by its rate"]
    assert found["Neyman's choice by its rate and the head's bound"] == pytest.approx(
        found["Neyman's choice by its rate and gradients"], abs=0.02
    )
    square_P = limits.Moments(world).square_P
    s_P = np.sqrt(square_P + square_P.mean() / 5)
    share_P = s_P / s_P.sum()
    rng = np.random.default_rng(2)
    at_B, of_B = rng.choice(len(s_P), 40000, p=share_P), rng.integers(rewards_PS.shape[1], size=40000)
    x_BD = (rewards_PS - rewards_PS.mean(1, keepdims=True))[at_B, of_B, None] * scores_PSD[at_B, of_B]
    drawn = np.mean((x_BD**2).sum(1) / (len(s_P) * share_P[at_B]) ** 2)
    assert square_P.mean() / drawn == pytest.approx(found["Neyman's choice by its E[x^2]"], rel=0.05)
