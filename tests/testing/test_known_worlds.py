"""The worlds for tests have the answers that they say they have."""

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc import InputError, testing
from budgetalloc.offline.worlds import World


@pytest.mark.parametrize("build", [testing.three_kinds, testing.rising, testing.turning])
def test_a_world_pays_what_its_rates_say(build):
    world = build()
    for _ in range(45):  # more steps than rows: the last one stays
        rewards_R = world.rollout(np.repeat(world.ids, 400).tolist())
        row = world.rates_SP[min(world.step, len(world.rates_SP) - 1)]
        assert rewards_R.reshape(24, 400).mean(axis=1) == pytest.approx(row, abs=0.13)
        assert (world.rates(world.ids) == row).all()
        assert world.success() == pytest.approx(row.mean())
        world.learn(np.zeros(24 * 400))


def test_a_third_of_uniform_groups_is_mixed_and_a_policy_that_learns_finds_them():
    world: World = testing.three_kinds()
    seen = list(ba.simulate(ba.uniform(), world, 64, 300, prompts=8))
    assert np.mean([x["mixed_rollouts"] for x in seen]) == pytest.approx((1 - 2 / 2**8) / 3, abs=0.03)
    *_, last = ba.simulate(ba.thompson(), testing.three_kinds(), 64, 30, prompts=8)
    assert last["mixed_rollouts"] > 0.6


def test_who_never_forgets_stays_behind_when_the_world_turns():
    mixed = {}
    for discount in (1.0, 0.2):
        policy = ba.knapsack(discount=discount)
        run = list(ba.simulate(policy, testing.turning(), 64, 40, prompts=24))
        mixed[discount] = np.mean([x["mixed_rollouts"] for x in run[21:30]])
    assert mixed[0.2] > mixed[1.0]


def test_a_log_is_the_world_in_shuffled_epochs():
    world = testing.rising(24, 40)
    log = testing.log_of(world, 40, prompts=8, group=200).frame
    ids_SP = log.prompt.to_numpy(dtype=int).reshape(40, 8, 200)
    assert (ids_SP == ids_SP[:, :, :1]).all()
    assert all(len(set(ids_SP[k : k + 3, :, 0].ravel())) == 24 for k in range(0, 39, 3))
    rates = world.rates_SP[np.arange(40)[:, None], ids_SP[:, :, 0]]
    assert log.reward.to_numpy().reshape(40, 8, 200).mean(axis=2) == pytest.approx(rates, abs=0.16)
    assert (log.step == np.repeat(np.arange(40), 1600)).all()
    assert set(log.groupby(["step", "prompt"]).size()) == {200}
    left_out = testing.log_of(testing.three_kinds(10), 6, prompts=4)  # what does not fill a batch waits
    assert len(left_out.frame) == 6 * 4 * 8


@pytest.mark.parametrize("rates", [[], [[0.5, 1.1]], [[[0.5]]], [float("nan")]])
def test_rates_are_rates(rates):
    with pytest.raises(InputError, match="rates_SP"):
        testing.Known(rates)


def test_a_batch_fits_the_world():
    with pytest.raises(InputError, match="prompts=30"):
        testing.log_of(testing.three_kinds(), 3, prompts=30)
