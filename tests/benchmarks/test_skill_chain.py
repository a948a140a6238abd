"""The skill chains of a peer: success, rewards and gradients by hand."""

import numpy as np
import pytest
import skill_chain  # in benchmarks/peer


@pytest.fixture
def model():
    made = skill_chain.Chains(2, seed=0)
    made.logits[:, 0] = np.log(9.0)  # a right action has the chance 9 / 18
    return made


def test_a_task_passes_as_often_as_all_its_skills_act_right(model):
    success_T = model.success()
    assert success_T[[0, 1, 11, 12]] == pytest.approx([0.5, 0.25, 0.5**12, 0.5])
    tasks_R = np.repeat([0, 2, 13], 4000)
    _, rewards_R = model.roll_out(tasks_R)
    assert rewards_R.reshape(3, -1).mean(1) == pytest.approx([0.5, 0.125, 0.25], abs=0.03)


def test_a_step_follows_the_gradient_of_the_log_probabilities_of_the_tasks_skills_alone(model):
    actions_RL = np.zeros((2, skill_chain.LEVELS), dtype=int)
    actions_RL[1, 0] = 3
    before = model.logits.copy()
    model.learn(np.array([13, 0]), actions_RL, np.array([1.0, -2.0]), rate=0.1)
    moved = (model.logits - before) * 2 / 0.1
    chance = np.array([0.5, *[0.5 / 9] * 9])
    right, third = np.eye(10)[0], np.eye(10)[3]
    assert moved[12] == pytest.approx(right - chance)  # the first skill of the second chain, for task 13
    assert moved[13] == pytest.approx(right - chance)
    assert moved[0] == pytest.approx(-2 * (third - chance))
    assert not moved[[1, 11, 14]].any()


def test_small_pools_train_in_uniform_groups_unless_told_otherwise():
    plain = skill_chain.run(3, "`adaptive()`, as it attaches", 64.0, 0)
    alone = skill_chain.run(3, "`adaptive()`, `fallback=False`", 64.0, 0)
    assert plain != alone
    assert 0.85 < plain[0] < plain[1] <= plain[2] <= 1
