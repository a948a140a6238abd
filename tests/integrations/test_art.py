"""The recipe of integrations/art, with ART's own TrajectoryGroup and gather_trajectory_groups.

Runs in the environment that `make trainers` makes, and skips elsewhere.
"""

import asyncio
import random

import pytest

art = pytest.importorskip("art")
pytestmark = pytest.mark.slow

from budgetalloc_art import gather  # noqa: E402

import budgetalloc as ba  # noqa: E402

SCENARIOS = {f"s{at}": at for at in range(12)}
BUDGET = ba.Budget(rollouts=48, floor=0)


def rollouts(rate, failing=()):
    rng = random.Random(0)

    async def rollout(at):
        if at in failing:
            raise RuntimeError("the environment is down")
        answer = {"role": "assistant", "content": "4"}
        return art.Trajectory(messages_and_choices=[answer], reward=float(rng.random() < rate(at)))

    return rollout


def sizes(groups):
    return {group.metadata["scenario_id"]: len(group) for group in groups}


def test_scenarios_that_are_mixed_get_more_trajectories():
    policy = ba.knapsack(seed=0)
    rollout = rollouts(lambda at: 0.5 if at < 4 else 0.0)
    for _ in range(12):
        groups = asyncio.run(gather(policy, SCENARIOS, rollout, BUDGET))
        assert all(isinstance(group, art.TrajectoryGroup) for group in groups)
        assert sum(map(len, groups)) == 48
    assert sum(sizes(groups).get(f"s{at}", 0) for at in range(4)) > 24  # of 4 among 12 scenarios: 16


def test_the_policy_learns_each_reward_of_its_own_scenario():
    policy = ba.thompson(seed=0)
    groups = asyncio.run(gather(policy, SCENARIOS, rollouts(lambda at: at % 2), BUDGET))
    for name, size in sizes(groups).items():
        belief, prior = policy.belief([name]), policy.belief(["never seen"])
        passed = size * (SCENARIOS[name] % 2)
        assert belief.alpha_P[0] - prior.alpha_P[0] == pytest.approx(passed)
        assert belief.beta_P[0] - prior.beta_P[0] == pytest.approx(size - passed)


def test_what_failed_is_not_observed():
    policy = ba.uniform(seed=0)
    groups = asyncio.run(gather(policy, SCENARIOS, rollouts(lambda at: 1.0, failing=(3,)), BUDGET, max_exceptions=4))
    assert sizes(groups) == {name: 4 * (name != "s3") for name in SCENARIOS}
    assert policy.cold(["s3", "s4"]).tolist() == [True, False]


def test_a_policy_with_a_baseline_of_its_own_is_refused():
    with pytest.raises(ba.UnsupportedError, match="needs baseline='posterior', and ART subtracts the mean"):
        asyncio.run(gather(ba.adaptive(), SCENARIOS, rollouts(lambda at: 1.0), BUDGET))


def test_a_resumed_policy_decides_as_one_that_never_stopped(tmp_path):
    policy, again = ba.thompson(seed=0), ba.thompson(seed=0)
    rollout = rollouts(lambda at: at / 12)
    for _ in range(3):
        asyncio.run(gather(policy, SCENARIOS, rollout, BUDGET))
    ba.save_state(tmp_path / "beliefs.npz", policy.state_dict())
    again.load_state_dict(ba.load_state(tmp_path / "beliefs.npz")[0])
    one, other = (asyncio.run(gather(each, SCENARIOS, rollout, BUDGET)) for each in (policy, again))
    assert sizes(one) == sizes(other)
