"""A baseline that does not depend on the rollout's own reward, and follows a change of all rewards at once."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_step import rollouts_of

from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.beliefs.posterior import Beta
from budgetalloc.policies.batch_advantages import batch_advantages, by_beliefs, sums_of
from budgetalloc.policies.rollouts import Rollouts

steps = st.builds(
    lambda seed, prompts, rounds: random_step(seed, prompts, rounds),
    st.integers(0, 10_000),
    st.integers(6, 12),
    st.integers(1, 3),
)


def random_step(seed: int, prompts: int, rounds: int, rows: int = 24) -> Rollouts:
    """0/1 rewards of rollouts in rounds, with vague beliefs about some prompts and firm ones about others."""
    rng = np.random.default_rng(seed)
    at_R, rewards_R = rng.integers(0, prompts, rows), rng.integers(0, 2, rows).astype(float)
    mass_P, mean_P = rng.uniform(0.6, 20, prompts), rng.uniform(0.02, 0.98, prompts)
    belief_R = Beta((mass_P * mean_P)[at_R], (mass_P * (1 - mean_P))[at_R])
    made = rollouts_of(rewards_R, at_R.tolist(), belief_R=belief_R)
    return replace(made, round_R=rng.integers(0, rounds, rows))


def flipped(rollouts: Rollouts, row: int) -> Rollouts:
    rewards_R = rollouts.rewards_R.copy()
    rewards_R[row] = 1 - rewards_R[row]
    return replace(rollouts, rewards_R=rewards_R, success_R=rewards_R)


@given(steps, st.integers(0, 23), st.sampled_from(["group", "none", "batch"]), st.sampled_from(["rollout", "prompt"]))
def test_a_rollouts_baseline_does_not_depend_on_its_own_reward(rollouts, row, scale, weight):
    """Nor on rollouts of its prompt or of others that later rounds added. The gradient is therefore unbiased."""
    one, other = (batch_advantages(x, "posterior", scale, weight) for x in (rollouts, flipped(rollouts, row)))
    assert one.baseline_R[row] == pytest.approx(other.baseline_R[row], abs=1e-12)


@pytest.mark.parametrize("weight", ["rollout", "prompt"])
def test_the_divisor_hardly_depends_on_it(weight):
    """What a rollout's reward adds to its advantage, under scale "none": 2 % at most, among 256 rollouts."""
    rollouts = random_step(0, 64, 2, rows=256)
    for row in range(0, 256, 16):
        pair = [(x, batch_advantages(x, "posterior", "none", weight)) for x in (rollouts, flipped(rollouts, row))]
        rises = [(made.values_R / (x.rewards_R - made.baseline_R))[row] for x, made in pair]
        assert rises[0] == pytest.approx(rises[1], rel=0.02)


@given(steps, st.integers(0, 23), st.integers(0, 23))
def test_later_rounds_change_no_baseline_of_earlier_ones(rollouts, row, other):
    if rollouts.round_R[other] <= rollouts.round_R[row]:
        return
    one, changed = (batch_advantages(x, "posterior", "none") for x in (rollouts, flipped(rollouts, other)))
    assert one.baseline_R[row] == pytest.approx(changed.baseline_R[row], abs=1e-12)


def gradient(baseline: str) -> tuple[float, float]:
    """The expected sum of A d log P / dp over a step, and the expected sum of d p / dp, with all outcomes enumerated.

    Prompts 0 and 1 get two rollouts, and 0 two more if both fail, else 1; prompts 2 and 3 get one.
    """
    p, total, rollouts = np.array([0.3, 0.6, 0.5, 0.8]), 0.0, 0.0
    for bits in range(2**8):
        outcome = np.array([(bits >> k) & 1 for k in range(8)], dtype=float)
        at = [0, 0, 1, 1, 2, 3] + ([0, 0] if not outcome[:2].any() else [1, 1])
        ids_R = np.array(at)
        chance = np.prod(np.where(outcome == 1, p[ids_R], 1 - p[ids_R]))
        belief_R = Beta(np.array([0.4, 1.0, 2.0, 0.5])[ids_R], np.array([0.7, 0.5, 2.0, 0.5])[ids_R])
        made = replace(rollouts_of(outcome, at, belief_R=belief_R), round_R=np.array([0] * 6 + [1] * 2))
        away_R = outcome - batch_advantages(made, baseline, "none").baseline_R
        total += chance * np.sum(away_R * np.where(outcome == 1, 1 / p[ids_R], -1 / (1 - p[ids_R])))
        rollouts += chance * len(at)
    return total, rollouts


def test_the_gradient_is_the_true_one_in_rounds_too():
    total, rollouts = gradient("posterior")
    assert total == pytest.approx(rollouts, rel=1e-12)
    assert abs(gradient("group")[0] - rollouts) > 0.01 * rollouts


def world(change, prompts=256, seed=0):
    """The mean advantage relative to the root mean square where beliefs are firm and every rate has changed."""
    rng = np.random.default_rng(seed)
    rate_P = rng.uniform(0.02, 0.98, prompts)
    success_R = (rng.random(prompts) < change(rate_P)).astype(float)
    made = rollouts_of(success_R, range(prompts), belief_R=Beta(20 * rate_P, 20 * (1 - rate_P)), earlier=Sums())
    values_R = batch_advantages(made, "posterior", "group").values_R
    return values_R.mean() / np.sqrt((values_R**2).mean())


@pytest.mark.parametrize(
    "change", [np.square, np.sqrt, lambda p: p**4, lambda p: 0.1 * p, lambda p: 1 - p], ids=range(5)
)
def test_a_change_of_all_rates_gives_no_sign_to_the_advantages(change):
    assert abs(np.mean([world(change, seed=seed) for seed in range(5)])) < 0.12


def test_right_beliefs_are_hardly_moved():
    rng = np.random.default_rng(0)
    p_P = rng.uniform(0.02, 0.98, 4096)
    success_R = (rng.random(4096) < p_P).astype(float)
    made = rollouts_of(success_R, range(4096), belief_R=Beta(1e4 * p_P, 1e4 * (1 - p_P)))
    assert np.abs(by_beliefs(made).mean_R - p_P).max() < 0.02


def test_a_model_that_learns_quickly_keeps_its_advantages():
    """They exceed beliefs as in the steps before. As much more at once is a change of the reward."""
    rng, p_P = np.random.default_rng(0), np.linspace(0.1, 0.6, 256)
    success_R = (rng.random(256) < p_P + 0.2).astype(float)
    made = rollouts_of(success_R, range(256), belief_R=Beta(20 * p_P, 20 * (1 - p_P)))
    learning = replace(made, earlier=Sums(n=2560.0, lean=0.4 * 2560))
    assert batch_advantages(learning, "posterior", "group").values_R.mean() > 0.3
    assert abs(batch_advantages(made, "posterior", "group").values_R.mean()) < 0.05
    assert sums_of(learning).lean > 0.3 * 256
    assert sums_of(made).lean == 0  # what is usual has not changed
