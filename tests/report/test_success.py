"""Solved and failed are of success, mixed is of rewards: what a run with several reward functions needs."""

import json

import numpy as np
import pandas as pd
import pytest

from budgetalloc import InputError, Ledger
from budgetalloc.report import as_json, as_text, report
from budgetalloc.report.log_scan import measure
from budgetalloc.report.policy_replays import unit_rewards


def log_of(rewards, success=None, ids=None, reward_range=None, **columns):
    n = len(rewards)
    frame = pd.DataFrame({"step": np.repeat(np.arange(n // 4), 4), "prompt": ids or ["a"] * n, "reward": rewards})
    frame = frame.assign(**columns)
    return Ledger.of_frame(frame if success is None else frame.assign(success=success), reward_range=reward_range)


def test_a_format_reward_solves_nothing():
    """A prompt that never succeeds and always earns the format's 1 of 2 is never solved; its groups are all fail."""
    waste = measure(log_of([1.0] * 8, success=[0] * 8, reward_range=(0, 2)))
    assert waste.shares()["all_fail"] == 1
    assert [len(waste.never()), len(waste.always())] == [1, 0]
    assert waste.success_S.tolist() == [0, 0]
    assert waste.reward_S.tolist() == [4, 4]


def test_rewards_that_differ_make_a_group_mixed_though_nobody_succeeds():
    waste = measure(log_of([1, 0, 1, 1], success=[0] * 4, reward_range=(0, 2)))
    assert waste.shares()["mixed"] == 1
    assert len(waste.never()) == 1


def test_equal_rewards_of_success_and_failure_are_tied():
    assert measure(log_of([1.0] * 4, success=[0, 1, 0, 1], reward_range=(0, 2))).shares()["tied"] == 1


def test_the_range_of_the_ledger_is_used():
    waste = measure(log_of([-1, -1, -1, -1, 3, 3, 3, 3], reward_range=(-1, 3)))
    assert waste.shares()["all_fail"] == waste.shares()["all_pass"] == 0.5
    assert waste.reward_range == (-1, 3)
    run = report(log_of([-1, -1, 3, 3] * 2, reward_range=(-1, 3)), policies=())
    assert run.notes == {}
    with pytest.raises(InputError, match="outside"):
        measure(log_of([-1, -1, 3, 3]))


def test_a_replay_plays_success():
    log = log_of([1, 2, 1, 2], success=[0, 1, 0, 1], reward_range=(0, 2))
    assert unit_rewards(log, (0.0, 2.0)).frame.reward.tolist() == [0, 1, 0, 1]


def test_decisions_are_counted_beside_the_trainers_steps():
    """Two generation batches in one optimizer step are two decisions."""
    log = log_of([0, 1] * 8, trainer_step=np.repeat([0, 1], 8))
    run = report(log, policies=())
    assert json.loads(as_json(run))["trainer_steps"] == 2
    assert "4 decisions in 2 training steps" in " ".join(as_text(run).split())
    assert "4 steps" in " ".join(as_text(report(log_of([0, 1] * 8), policies=())).split())
