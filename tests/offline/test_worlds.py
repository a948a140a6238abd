"""The Learner world: its gradient, its known answers, and that skills help and hurt each other."""

from dataclasses import replace

import numpy as np
import pytest

from budgetalloc import group_advantages
from budgetalloc.cli.testbed.skills import SKILLS
from budgetalloc.errors import InputError
from budgetalloc.offline.worlds import _SPEED, U_SHAPE, Learner, Task

SMALL = Task(skills=((0, 1, 0.6), (2, 0, 0.1), (0, 2, 0.3)), coins=(0.25,), per_skill=4, held_out=3, dims=5)


def trained(world, ids_R, updates=1):
    """Plain GRPO on these rows."""
    for _ in range(updates):
        world.learn(group_advantages(world.rollout(ids_R), ids_R))
    return world


def by_skill(world):
    skills = np.array(world.ids) // world.task.per_skill
    return np.bincount(skills, weights=world.rates(world.ids)) / np.bincount(skills)


def test_the_gradient_equals_finite_differences():
    world = trained(Learner(SMALL, seed=1), np.repeat(range(16), 8), updates=3)  # away from the start
    ids_R = [0, 0, 5, 5, 9, 14, 0]  # a trap among them
    advantages_R = np.array([1.0, -0.5, 2.0, 0.3, -1.0, 0.7, 0.1])
    world.rollout(ids_R[:3])
    world.rollout(ids_R[3:])  # rollouts of several rounds are one update
    strategy_R = np.concatenate([strategies for _, strategies in world._rows])

    def objective():
        return np.mean(advantages_R * np.log(world.probabilities(ids_R)[np.arange(7), strategy_R]))

    expected = np.empty_like(world.theta)
    for at in np.ndindex(world.theta.shape):
        both = []
        for small in (1e-6, -1e-6):
            world.theta[at] += small
            both.append(objective())
            world.theta[at] -= small
        expected[at] = (both[0] - both[1]) / 2e-6
    np.testing.assert_allclose(world.gradient(advantages_R), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_an_update_is_clipped_adam():
    torch = pytest.importorskip("torch")
    world = Learner(SMALL, rate=1e-3, seed=0)
    theta = torch.nn.Parameter(torch.tensor(world.theta))
    adam = torch.optim.AdamW([theta], lr=1e-3 * _SPEED, weight_decay=0.0)
    for _ in range(4):
        ids_R = np.repeat(range(16), 4)
        advantages_R = group_advantages(world.rollout(ids_R), ids_R)
        theta.grad = torch.tensor(-world.gradient(advantages_R))
        torch.nn.utils.clip_grad_norm_([theta], 1.0)
        adam.step()
        world.learn(advantages_R)
    np.testing.assert_allclose(world.theta, theta.detach().numpy(), rtol=1e-6)


def test_success_equals_enumeration():
    """Prompts to train on have the held-out ones' distribution; the arrays behind both are read here."""
    world = trained(Learner(SMALL, seed=2), np.repeat(range(16), 8), updates=2)
    held, total = world._held_out, 0.0
    for skill, features, start in zip(held.skill_P, held.features_PD, held.start_PK, strict=True):
        doubt = world._doubt_SK[skill] * float(world._common @ world.theta[:, 8])
        odds = [np.exp(start[k] + features @ world.theta[:, k] + doubt[k]) for k in range(8)]
        total += odds[SMALL.skills[skill][0]] / sum(odds)
    assert sorted(set(held.skill_P.tolist())) == [0, 1, 2]  # no trap
    assert world.success() == pytest.approx(total / 9, abs=1e-12)


def test_rates_are_the_frequencies_of_reward():
    world = trained(Learner(SMALL, seed=3), np.repeat(range(16), 8))
    draws = 4000
    for prompt, rate in zip(world.ids, world.rates(world.ids), strict=True):
        rewards_R = world.rollout([prompt] * draws)
        assert set(rewards_R) <= {0.0, 1.0}
        assert abs(rewards_R.mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / draws) + 1e-3


def test_the_start_is_what_the_task_shows():
    world = Learner(replace(U_SHAPE, offset=0.0, other=1e-9), seed=0)
    np.testing.assert_allclose(by_skill(world)[:24], [shown for _, _, shown in U_SHAPE.skills], atol=1e-6)
    np.testing.assert_allclose(by_skill(world)[24:], U_SHAPE.coins)


def test_same_seed_same_run():
    ids_R = np.repeat(range(0, 2000, 100), 8)
    one, same, other = (trained(Learner(seed=seed), ids_R, updates=5) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.theta, same.theta)
    assert one.success() == same.success() != other.success()


def test_learning_one_skill_raises_it_helps_some_and_hurts_others():
    helped, hurt = [], []
    for seed in range(3):
        world = Learner(seed=seed)
        before = by_skill(world)
        skill = 11  # shown 0.44, so that it has something to learn from
        trained(world, np.repeat(np.arange(32) + 80 * skill, 8), updates=10)
        change = by_skill(world) - before
        assert change[skill] > 0.2
        others = np.delete(change[:24], skill)
        helped.append(others.max())
        hurt.append(others.min())
    assert min(helped) > 0.02
    assert max(hurt) < -0.05


def test_the_preset_is_the_mix_of_the_demo_language():
    assert [skill[2] for skill in U_SHAPE.skills] == [skill.shown for skill in SKILLS if not skill.is_trap]
    assert list(U_SHAPE.coins) == [skill.coin for skill in SKILLS if skill.is_trap]
    assert len(Learner(U_SHAPE).ids) == 2080


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"skills": ()}, "nothing can be learned"),
        ({"skills": ((0, 0, 0.5),)}, r"skills\[0\]"),
        ({"skills": ((0, 8, 0.5),)}, r"skills\[0\]"),
        ({"skills": ((0, (), 0.5),)}, r"skills\[0\]"),
        ({"skills": ((0, (1, 0), 0.5),)}, r"skills\[0\]"),
        ({"skills": ((0, (1, 1), 0.5),)}, r"skills\[0\]"),
        ({"skills": ((0, (1, "2"), 0.5),)}, r"skills\[0\]"),
        ({"skills": ((0, 1, 0.5), (4, 1, 0.5)), "strategies": 4}, r"skills\[1\].*from 0 to 3"),
        ({"strategies": 3}, "strategies=3"),
        ({"skills": ((0, 1, 1.0),)}, r"skills\[0\]"),
    ],
)
def test_a_task_out_of_range_is_refused(settings, text):
    with pytest.raises(InputError, match=text):
        replace(SMALL, **settings)


def test_a_learner_refuses_bad_arguments():
    world = Learner(SMALL)
    with pytest.raises(InputError, match="16 is not a prompt"):
        world.rollout([0, 16])
    with pytest.raises(InputError, match="'a' is not a prompt"):
        world.rates(["a"])
    with pytest.raises(InputError, match="for 0 rollouts"):
        world.learn([])
    world.rollout([0, 1])
    for bad in ([1.0], [1.0, np.nan]):
        with pytest.raises(InputError, match="for 2 rollouts"):
            world.learn(bad)
    world.learn([1.0, -1.0])
    with pytest.raises(InputError, match="for 0 rollouts"):  # an update uses its rollouts up
        world.learn([1.0, -1.0])


def test_several_wrong_strategies_are_alike_and_share_what_the_right_one_leaves():
    task = replace(SMALL, skills=((0, tuple(range(1, 12)), 0.12), (4, (5, 6), 0.3)), strategies=12, offset=0.0)
    world = Learner(replace(task, coins=()), seed=0)
    first, second = world.probabilities([0, task.per_skill])
    np.testing.assert_allclose(first, [0.12] + [0.08] * 11)  # none is left for `other`
    np.testing.assert_allclose(second[4:7], np.array([0.3, 0.35, 0.35]) * (1 - task.other))
    np.testing.assert_allclose(np.delete(second, [4, 5, 6]), task.other / 9)


def test_a_world_that_grades_pays_by_prompt_and_strategy_and_draws_the_same_rollouts():
    class Halved(Learner):
        def pay(self, ids_R, strategy_R, toss_R):
            assert ((toss_R >= 0) & (toss_R < 1)).all()
            return np.where(ids_R < 4, 0.5, 1.0) * super().pay(ids_R, strategy_R, toss_R)

    ids_R = list(range(16)) * 8
    plain, halved = Learner(SMALL, seed=0).rollout(ids_R), Halved(SMALL, seed=0).rollout(ids_R)
    assert plain.any()
    assert halved.tolist() == (plain * np.where(np.array(ids_R) < 4, 0.5, 1.0)).tolist()
