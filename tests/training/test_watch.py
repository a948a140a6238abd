"""What goes on for many steps in a row is said once."""

import logging

import numpy as np

from budgetalloc.training.watch import Watch


def test_leaning_advantages_are_said_after_ten_steps_in_a_row(caplog):
    watch = Watch()
    for _ in range(9):
        watch.look(np.array([-1.0, -1.0, -1.0, 0.5]))
    watch.look(np.array([-1.0, 1.0]))
    for _ in range(9):
        watch.look(np.array([-1.0, -1.0, -1.0, 0.5]))
    assert not caplog.records
    for _ in range(5):
        watch.look(np.array([-1.0, -1.0, -1.0, 0.5]))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "every sampled completion down" in caplog.text


def test_rewards_that_exceed_the_beliefs_while_the_model_learns_are_not_said(caplog):
    watch = Watch()
    for _ in range(20):
        watch.look(np.array([1.0, 1.0, 1.0, -0.9, -0.4]))  # 0.38 of the root mean square
    assert not caplog.records
    for _ in range(10):
        watch.look(np.array([1.0, 1.0, 1.0, 0.5]))
    assert "every sampled completion up" in caplog.text


def test_prompts_that_never_return_are_said_once(caplog):
    watch = Watch()
    for cold in [True] * 19 + [False] + [True] * 19:
        watch.look_at_prompts(np.array([True, cold]))
    assert not caplog.records
    for _ in range(30):
        watch.look_at_prompts(np.array([True, True]))
    assert len(caplog.records) == 1
    assert "candidates='all'" in caplog.text
