"""Effects between domains: found where they are, silent where nothing moves, and a state that goes on."""

import json

import numpy as np
import pytest

from budgetalloc import StateError
from budgetalloc.policies.transfer import Transfer

EFFECT_DD = np.array([[0.2, -0.1, 0.0], [0.0, 0.1, 0.0], [0.0, 0.15, 0.0]])  # [i, j]: of 1,000 rollouts of j on i


def run(seed, effect_DD, steps=600, noise=0.002):
    rng, transfer, success_D = np.random.default_rng(seed), Transfer(3), np.zeros(3)
    for _ in range(steps):
        counts_D = rng.multinomial(256, rng.dirichlet(np.ones(3)))
        success_D = success_D + effect_DD @ counts_D / 1000
        transfer.observe(counts_D, success_D + rng.normal(0, noise, 3))
    return transfer


def test_known_effects_are_found_with_their_signs():
    transfer = run(0, EFFECT_DD)
    effect_DD, deviation_DD = transfer.effects()
    np.testing.assert_allclose(effect_DD, EFFECT_DD, atol=0.02)
    assert (deviation_DD < 0.01).all()
    np.testing.assert_array_equal(transfer.sure(), EFFECT_DD != 0)


def test_noise_has_no_sure_effect():
    assert sum(run(seed, np.zeros((3, 3)), noise=0.05).sure().sum() for seed in range(20)) == 0


def test_equal_shares_cannot_be_told_apart():
    """Both domains always get the same: only the sum of their effects is known, and no sign is sure."""
    rng, transfer, success_D = np.random.default_rng(0), Transfer(2), np.zeros(2)
    for _ in range(300):
        counts_D = np.full(2, rng.integers(1, 100))
        success_D = success_D + rng.normal(0, 0.01, 2)
        transfer.observe(counts_D, success_D)
    assert not transfer.sure().any()


def test_a_restored_state_goes_on_to_the_bit():
    one = run(1, EFFECT_DD, steps=53)
    other = Transfer(3)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    for transfer in (one, other):
        for step in range(20):
            transfer.observe([step, 20, 3], np.array([0.1 * step, 0.5, 0.7]))
    np.testing.assert_array_equal(one.effects()[0], other.effects()[0])
    fresh = Transfer(3)
    fresh.load_state_dict(json.loads(json.dumps(Transfer(3).state_dict())))  # success is not known yet
    assert not fresh.sure().any()


@pytest.mark.parametrize("change", [{"xx": [[1.0]]}, {"yy": "x"}, {"yy": [None] * 3}, {"success": [1.0]}])
def test_a_damaged_state_changes_nothing(change):
    transfer = run(2, EFFECT_DD, steps=30)
    before = transfer.state_dict()
    with pytest.raises(StateError, match="transfer is damaged"):
        transfer.load_state_dict(before | change)
    assert transfer.state_dict() == before
