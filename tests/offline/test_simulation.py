"""Runs in a world: budgets, rounds, what policies ask for, and that uniform allocation learns."""

import json
from dataclasses import replace

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.errors import BudgetError, InputError
from budgetalloc.offline.simulation import simulate
from budgetalloc.offline.worlds import Learner, Task
from budgetalloc.policies import Needs, sampled

SMALL = Task(skills=((0, 1, 0.6), (2, 0, 0.1), (0, 2, 0.3)), coins=(0.25,), per_skill=20, held_out=5, dims=8)


class Watched:
    """A world that keeps its requests and advantages."""

    def __init__(self, world):
        self.world, self.requests, self.advantages = world, [], []
        self.ids = world.ids

    def rollout(self, ids_R):
        self.requests.append(list(ids_R))
        return self.world.rollout(ids_R)

    def learn(self, advantages_R):
        self.advantages.append(np.array(advantages_R))
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
    for asked, seen in zip(world.requests, run, strict=True):
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
    epochs = [sorted(x for asked in world.requests[at : at + 10] for x in set(asked)) for at in (0, 10)]
    assert epochs == [world.ids, world.ids]
    assert world.requests[0] != world.requests[10]


def test_uniform_gets_trl_advantages():
    world, _ = watched(ba.uniform(), steps=1)
    twin = Learner(SMALL, seed=0)
    rewards_GN = twin.rollout(world.requests[0]).reshape(8, 8)
    expected = (rewards_GN - rewards_GN.mean(1, keepdims=True)) / (rewards_GN.std(1, ddof=1, keepdims=True) + 1e-4)
    np.testing.assert_allclose(world.advantages[0], expected.ravel())


def test_defaults_are_the_needs_of_the_policy():
    for options in ({}, {"baseline": "group", "scale": "none", "weight": "prompt"}):
        policy, twin, shadow = sampled(groups=2), Learner(SMALL, seed=0), sampled(groups=2)
        world, _ = watched(policy, steps=4, **options)
        settings = {"baseline": "posterior", "scale": policy.needs.scale, "weight": "rollout", **options}
        for ids_R, given_R in zip(world.requests, world.advantages, strict=True):
            rewards_R = twin.rollout(ids_R)
            belief_R = shadow.begin(world.ids, ba.Budget(64, floor=0)).baseline_belief(ids_R, rewards_R)
            expected_R = ba.group_advantages(rewards_R, ids_R, **settings, belief_R=belief_R)
            # Under scale "group" all advantages of a step are divided by one number, learned from earlier steps.
            times = np.abs(given_R).sum() / np.abs(expected_R).sum() if not options else 1.0
            np.testing.assert_allclose(given_R, times * expected_R)
            shadow.observe(ids_R, rewards_R)
            twin.learn(given_R)
        assert twin.success() == world.success()


def in_two_rounds(view):
    """4 rollouts a prompt, then all the rest to the first prompt whose rollouts were mixed."""
    prompts = len(view.belief_P)
    seen = yield np.full(prompts, 4)
    yield (np.arange(prompts) == np.argmax(seen.mixed_P)) * (view.budget.rollouts - 4 * prompts)


def test_rounds_are_one_step_and_one_update():
    world, run = watched(replace(ba.uniform(), decide=in_two_rounds), ba.Budget(rollouts=64, floor=2))
    assert [seen["rounds"] for seen in run] == [2] * 6
    assert [len(asked) for asked in world.requests] == [32, 32] * 6
    assert [len(given) for given in world.advantages] == [64] * 6
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
    rewards_R = twin.rollout(world.requests[0])
    alone = Learner(SMALL, seed=0)
    alone._rows = [(at_R[:64], strategy_R[:64]) for at_R, strategy_R in twin._rows]
    advantages_R = ba.group_advantages(rewards_R, world.requests[0])[:64]
    # Adam's first step does not depend on the gradient's length, so that it is compared by itself.
    np.testing.assert_allclose(twin.gradient(world.advantages[0]), alone.gradient(advantages_R), rtol=1e-9, atol=1e-12)
    alone.learn(advantages_R)
    np.testing.assert_allclose(world.world.theta, alone.theta, rtol=1e-6)


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


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"prompts": 81}, InputError, "prompts=81: use an integer from 1 to 80"),
        ({"budget": ba.Budget(rollouts=None, tokens=100.0, cap=8)}, InputError, "neither token costs nor domains"),
        ({"budget": 8, "prompts": 8}, BudgetError, "8"),
        ({"mixture": "learn"}, InputError, "mixture='learn' without domain="),
        ({"domain": {0: "a", 1: "b"}, "mixture": "learn"}, InputError, "of each of the 80 prompts"),
    ],
)
def test_refusals(arguments, error, text):
    settings = {"budget": 64, "steps": 2, "prompts": 8, **arguments}
    with pytest.raises(error, match=text):
        next(simulate(ba.uniform(), Learner(SMALL), **settings))


def test_a_mixture_divides_the_rollouts_of_a_world():
    """The rule prefers the mixed one of three kinds: with even quotas a third of the rollouts is in mixed groups."""
    kinds = {name: ("failing", "mixed", "solved")[name % 3] for name in range(24)}
    given = {"domain": kinds, "prompts": 8, "candidates": "all"}
    runs = []
    for more in ({"mixture": "learn"}, {"quotas": dict.fromkeys(kinds.values(), (0.25, 0.4))}):
        run = list(simulate(ba.uniform(), ba.testing.three_kinds(), 64, 20, **given, **more))
        runs.append(np.mean([x["mixed_rollouts"] for x in run[10:]]))
        assert {"share/failing", "share/mixed", "share/solved"} < set(run[0])
    assert runs[0] > runs[1] + 0.2


def test_rewards_on_another_scale_change_no_decision():
    """The world of three kinds does not learn, so nothing else changes either."""
    for make in (ba.adaptive, ba.knapsack, ba.methods.dapo, ba.methods.pods):
        plain, scaled = (
            list(ba.simulate(make(seed=3), ba.testing.three_kinds(), 64, 6, prompts=8, **more))
            for more in ({}, {"reward": lambda success_R: 12 * success_R - 7})
        )
        assert [x["prompts"] for x in plain] == [x["prompts"] for x in scaled]
        assert [x["reward"] for x in scaled] == pytest.approx([12 * x["reward"] - 7 for x in plain])


@pytest.mark.parametrize(
    ("reward", "message"), [(1.0, "reward=1.0"), (lambda u: u[:1], "has shape"), (lambda u: u / 0.0, "finite")]
)
def test_a_reward_that_is_no_function_of_success_is_refused(reward, message):
    with np.errstate(all="ignore"), pytest.raises(InputError, match=message):
        list(ba.simulate(ba.uniform(), ba.testing.three_kinds(), 64, 1, prompts=8, reward=reward))
