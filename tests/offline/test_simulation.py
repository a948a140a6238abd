"""Runs in a world: budgets, rounds, what policies ask for, and that uniform allocation learns."""

import json
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.errors import BudgetError, InputError
from budgetalloc.offline.simulation import simulate
from budgetalloc.offline.worlds import Learner, Task
from budgetalloc.policies import Needs

SMALL = Task(skills=((0, 1, 0.6), (2, 0, 0.1), (0, 2, 0.3)), coins=(0.25,), per_skill=20, held_out=5, dims=8)


class Watched:
    """A world that keeps what it was asked and told."""

    def __init__(self, world):
        self.world, self.asked, self.told = world, [], []
        self.ids = world.ids

    def rollout(self, ids_R):
        self.asked.append(list(ids_R))
        return self.world.rollout(ids_R)

    def learn(self, advantages_R):
        self.told.append(np.array(advantages_R))
        self.world.learn(advantages_R)

    def success(self):
        return self.world.success()


def watched(policy, budget=64, steps=6, **options):
    world = Watched(Learner(SMALL, seed=0))
    return world, list(simulate(policy, world, budget, steps, prompts=8, **options))


POLICIES = {
    "uniform": ba.uniform(),
    "knapsack": ba.knapsack(),
    "thompson": ba.thompson(),
    "adaptive": ba.adaptive(),
}


@pytest.mark.parametrize("candidates", [1, 3, "all"])
@pytest.mark.parametrize("name", POLICIES)
def test_every_step_spends_its_budget_within_its_bounds(name, candidates):
    world, run = watched(POLICIES[name], candidates=candidates)
    on_offer = {1: 8, 3: 24, "all": 80}[candidates]
    assert [seen["step"] for seen in run] == [1, 2, 3, 4, 5, 6]
    assert [seen["rollouts"] for seen in run] == [64 * k for k in range(1, 7)]
    for asked, seen in zip(world.asked, run, strict=True):
        _, sizes = np.unique(asked, return_counts=True)
        assert sizes.sum() == 64
        # adaptive() asks for groups of one, as it gets them in a trainer.
        assert sizes.min() >= (1 if name == "adaptive" and candidates != 1 else 2)
        assert sizes.max() <= 64
        assert seen["prompts"] == len(sizes) <= on_offer
        if candidates == 1:
            assert len(sizes) == 8
    assert json.loads(json.dumps(run)) == run  # plain values


def test_the_loader_shows_every_prompt_once_an_epoch():
    world, _ = watched(ba.uniform(), steps=20)
    epochs = [sorted(x for asked in world.asked[at : at + 10] for x in set(asked)) for at in (0, 10)]
    assert epochs == [world.ids, world.ids]
    assert world.asked[0] != world.asked[10]


def test_uniform_gets_trl_advantages():
    world, _ = watched(ba.uniform(), steps=1)
    twin = Learner(SMALL, seed=0)
    rewards_GN = twin.rollout(world.asked[0]).reshape(8, 8)
    expected = (rewards_GN - rewards_GN.mean(1, keepdims=True)) / (rewards_GN.std(1, ddof=1, keepdims=True) + 1e-4)
    np.testing.assert_allclose(world.told[0], expected.ravel())


def test_what_a_policy_needs_is_what_it_gets_unless_told_otherwise():
    for options in ({}, {"baseline": "group", "scale": "none", "weight": "prompt"}):
        policy, twin, shadow = ba.adaptive(), Learner(SMALL, seed=0), ba.adaptive()
        world, _ = watched(policy, steps=4, **options)
        settings = {"baseline": "posterior", "scale": policy.needs.scale, "weight": "rollout", **options}
        for ids_R, told_R in zip(world.asked, world.told, strict=True):
            rewards_R = twin.rollout(ids_R)
            belief_R = shadow.begin(world.ids, ba.Budget(64, floor=0)).baseline_belief(ids_R, rewards_R)
            expected_R = ba.group_advantages(rewards_R, ids_R, **settings, belief_R=belief_R)
            # Under scale "group" all advantages of a step are divided by one number, learned from earlier steps.
            times = np.abs(told_R).sum() / np.abs(expected_R).sum() if not options else 1.0
            np.testing.assert_allclose(told_R, times * expected_R)
            shadow.observe(ids_R, rewards_R)
            twin.learn(told_R)
        assert twin.success() == world.success()


def in_two_rounds(view):
    """4 rollouts a prompt, then all the rest to the prompts whose first rollouts were mixed, or to the first."""
    counts_P = np.full(len(view.belief_P), 4)
    tally = yield counts_P
    rest, mixed_P = view.budget.rollouts - 4 * len(counts_P), tally.mixed()
    counts_P = np.zeros(len(counts_P), dtype=np.int64)
    counts_P[np.argmax(mixed_P)] = rest
    yield counts_P


def test_rounds_are_one_step_and_one_update():
    world, run = watched(replace(ba.uniform(), decide=in_two_rounds), ba.Budget(rollouts=64, floor=2))
    assert [seen["rounds"] for seen in run] == [2] * 6
    assert [len(asked) for asked in world.asked] == [32, 32] * 6
    assert [len(told) for told in world.told] == [64] * 6
    assert run[-1]["rollouts"] == 6 * 64


def test_a_rule_that_spends_nothing_is_refused():
    idle = replace(ba.uniform(), decide=lambda view: np.zeros(len(view.belief_P), dtype=np.int64))
    with pytest.raises(InputError, match="requested no rollout at step 1"):
        watched(idle)


def test_rows_that_are_not_kept_do_not_move_the_world():
    """Twice the budget is generated and counted; the update is that of the kept rows alone."""

    def keep(ids_R, rewards_R, rows, scores_RF, success_R):
        return np.arange(rows)

    policy = replace(ba.uniform(), needs=Needs(generate=2), keep=keep)
    world, run = watched(policy, steps=1)
    assert run[0]["rollouts"] == 128
    twin = Learner(SMALL, seed=0)
    rewards_R = twin.rollout(world.asked[0])
    alone = Learner(SMALL, seed=0)
    alone._rows = [(at_R[:64], strategy_R[:64]) for at_R, strategy_R in twin._rows]
    advantages_R = ba.group_advantages(rewards_R, world.asked[0])[:64]
    # Adam's first step does not depend on the gradient's length, so that it is compared by itself.
    np.testing.assert_allclose(twin.gradient(world.told[0]), alone.gradient(advantages_R), rtol=1e-9, atol=1e-12)
    alone.learn(advantages_R)
    np.testing.assert_allclose(world.world.theta, alone.theta, rtol=1e-6)


def test_a_row_that_is_kept_twice_counts_twice():
    def keep(ids_R, rewards_R, rows, scores_RF, success_R):
        return np.repeat(np.arange(rows // 2), 2)

    policy = replace(ba.uniform(), needs=Needs(generate=2), keep=keep)
    world, _ = watched(policy, steps=1)
    assert (world.told[0][32:] == 0).all()
    all_told = watched(
        replace(policy, keep=lambda ids_R, rewards_R, rows, scores_RF, success_R: np.arange(rows)), steps=1
    )[0].told
    np.testing.assert_allclose(world.told[0][:32], 2 * all_told[0][:32])


def test_same_seed_same_run():
    one, same, other = (
        list(simulate(ba.adaptive(seed=seed), Learner(SMALL, seed=seed), 64, 5, prompts=8)) for seed in (0, 0, 1)
    )
    assert one == same != other


def test_shares_of_mixed_groups():
    world, run = watched(ba.thompson(), steps=1)
    rewards_R = Learner(SMALL, seed=0).rollout(world.asked[0])
    ids, group_R = np.unique(world.asked[0], return_inverse=True)
    spread = np.array([np.ptp(rewards_R[group_R == at]) > 0 for at in range(len(ids))])
    assert run[0]["mixed_groups"] == pytest.approx(spread.mean())
    assert run[0]["mixed_rollouts"] == pytest.approx(spread[group_R].mean())
    assert run[0]["reward"] == pytest.approx(rewards_R.mean())


def test_uniform_learns():
    ends = []
    for seed in range(3):
        world = Learner(seed=seed)
        start = world.success()
        run = list(simulate(ba.uniform(seed=seed), world, 256, 150))
        ends.append((start, run[-1]["success"]))
        assert run[0]["mixed_groups"] > run[-1]["mixed_groups"]
    start, end = np.mean(ends, axis=0)
    assert 0.40 < start < 0.50
    assert end > start + 0.2


def test_it_stops_when_the_caller_does():
    world = Watched(Learner(SMALL, seed=0))
    assert len(list(islice(simulate(ba.uniform(), world, 64, 100, prompts=8), 2))) == 2
    assert len(world.told) == 2


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"candidates": 0}, InputError, "candidates=0"),
        ({"candidates": "some"}, InputError, "candidates='some'"),
        ({"steps": 0}, InputError, "steps=0"),
        ({"prompts": 81}, InputError, "80 prompts"),
        ({"budget": ba.Budget(rollouts=None, tokens=100.0, cap=8)}, InputError, "neither token costs nor domains"),
        ({"budget": 8, "prompts": 8}, BudgetError, "8"),
        ({"baseline": "mean"}, InputError, "baseline='mean'"),
    ],
)
def test_what_cannot_be_run_is_refused(arguments, error, text):
    settings = {"budget": 64, "steps": 2, "prompts": 8, **arguments}
    with pytest.raises(error, match=text):
        next(simulate(ba.uniform(), Learner(SMALL), **settings))


# --- success beside the reward ---


def test_rewards_on_another_scale_change_no_decision():
    """What advantages see is another matter; the world of three kinds does not learn."""
    for make in (ba.adaptive, ba.knapsack, ba.policies.dapo, ba.policies.pods):
        plain, scaled = (
            [x["prompts"] for x in ba.simulate(make(seed=3), ba.testing.three_kinds(), 64, 6, prompts=8, **more)]
            for more in ({}, {"reward": lambda success_R: 12 * success_R - 7})
        )
        assert plain == scaled


def test_a_point_for_the_format_sends_no_rollouts_to_hopeless_prompts():
    run = list(
        ba.simulate(ba.adaptive(seed=0), ba.testing.three_kinds(), 64, 20, prompts=8, reward=lambda u: 0.2 + 0.8 * u)
    )
    plain = list(ba.simulate(ba.adaptive(seed=0), ba.testing.three_kinds(), 64, 20, prompts=8))
    assert [x["reward"] for x in run] == pytest.approx([0.2 + 0.8 * x["reward"] for x in plain])


@pytest.mark.parametrize(
    ("reward", "message"), [(1.0, "reward=1.0"), (lambda u: u[:1], "has shape"), (lambda u: u / 0.0, "finite")]
)
def test_a_reward_that_is_no_function_of_success_is_refused(reward, message):
    with np.errstate(all="ignore"), pytest.raises(InputError, match=message):
        list(ba.simulate(ba.uniform(), ba.testing.three_kinds(), 64, 1, prompts=8, reward=reward))


@pytest.mark.parametrize("given", ["adaptive", ba.adaptive])
def test_a_policy_may_be_a_name_or_a_function(given):
    runs = [list(simulate(policy, ba.Learner(seed=0), 64, 3)) for policy in (given, ba.adaptive())]
    assert runs[0] == runs[1]
