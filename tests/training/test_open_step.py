"""The record of a step, and what is computed from it."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.policies.batch_advantages import by_beliefs, sums_of
from budgetalloc.training.log_writer import append
from budgetalloc.training.open_step import Round, record
from budgetalloc.training.scoring import Measure
from budgetalloc.training.success import Rule

rollouts = st.tuples(st.sampled_from(["a", "b", 7]), st.sampled_from([0.0, 1.0, 0.25, np.nan]), st.integers(1, 9))


def as_round(rows, hinted=False):
    ids_R, rewards_R, lengths_R = ([row[at] for row in rows] for at in range(3))
    rewards_R = np.array(rewards_R)
    return Round(ids_R, rewards_R, rewards_R[:, None], rewards_R / 2, np.array(lengths_R), hinted)


def as_batch(rounds, policy=None, step=0, measure=None):
    """A batch of these rounds, in which the total reward is success on a range of (0, 2)."""
    policy = policy or ba.uniform()
    ids_P = list(dict.fromkeys(name for each in rounds for name in each.ids_R))
    opened = policy.begin(ids_P, ba.Budget(rollouts=2 * len(ids_P)))
    return record(rounds, opened, measure or Measure(Rule(), (0.0, 2.0), ("reward",), slope=1.0), Sums(), step)


@given(st.lists(st.tuples(st.lists(rollouts, min_size=1, max_size=6), st.booleans()), min_size=1, max_size=4))
def test_rounds_become_one_batch_in_order(rounds):
    policy = ba.knapsack()
    policy.observe(["a", "a", 7], [1, 0, 1])
    batch = as_batch([as_round(*each) for each in rounds], policy, step=5)
    rows = [(*row, hinted) for made, hinted in rounds for row in made]
    assert len(batch) == len(rows)
    assert batch.ids_R == [row[0] for row in rows]
    np.testing.assert_array_equal(batch.rewards_R, [row[1] for row in rows])
    np.testing.assert_array_equal(batch.scores_RF[:, 0], batch.rewards_R)
    np.testing.assert_array_equal(batch.lengths_R, [row[2] for row in rows])
    np.testing.assert_array_equal(batch.hinted_R, [row[3] for row in rows])
    np.testing.assert_array_equal(batch.learned_R, [np.nan if row[3] else row[1] / 2 for row in rows])
    assert batch.counts_R.tolist() == [batch.ids_R.count(row[0]) for row in rows]
    np.testing.assert_array_equal(batch.belief_R.mean, policy.belief(batch.ids_R).mean)
    assert (batch.step, batch.policy_step) == (5, 1)


def test_a_batch_does_not_change():
    batch = as_batch([as_round([("a", 1.0, 3)])])
    with pytest.raises(FrozenInstanceError):
        batch.step = 1


def test_the_ledger_names_rollouts_with_a_hint_apart_and_predicts_nothing_of_them(tmp_path):
    plain, hinted = as_round([("a", 0.0, 3)] * 2), as_round([("a", 1.0, 4)], hinted=True)
    batch = as_batch([plain, hinted], step=2)
    append(ba.LedgerWriter(tmp_path / "ledger.jsonl"), batch)
    log = ba.Ledger.read(tmp_path / "ledger.jsonl")
    assert log.frame.prompt.tolist() == ["a", "a", "a (hinted)"]
    assert log.frame.get("trainer_step", log.frame.step).tolist() == [2, 2, 2]
    assert log.frame.step.tolist() == [0, 0, 0]  # the policy's
    assert log.frame.success.tolist() == [0.0, 0.0, 0.5]
    assert log.reward_range == (0.0, 2.0)
    np.testing.assert_array_equal(log.frame.predicted.to_numpy(), [0.5, 0.5, np.nan])


def test_advantages_are_computed_from_success_as_it_was_measured():
    rewards_R, success_R = np.array([2.0, 0.0]), np.array([1.0, 0.0])
    made = Round(["a", "b"], rewards_R, rewards_R[:, None], success_R, np.array([4, 4]))
    step = ba.uniform().begin(["a", "b"], ba.Budget(rollouts=4))
    batch = record([made], step, Measure(Rule(), (0.0, 2.0), ("reward",), slope=1.0), Sums(), trainer_step=0)
    assert by_beliefs(batch).line.at(np.array([0.0, 0.5])).tolist() == [0.0, 1.0]
    swapped = batch.with_rewards(np.array([2.0, 1.5]))  # a stored correct response in place of the failure
    assert (swapped.rewards_R.tolist(), swapped.success_R.tolist()) == ([2.0, 1.5], [1.0, 1.0])
    hinted = as_batch([as_round([("a", 0.0, 3)]), as_round([("a", 1.0, 4)], hinted=True)])
    assert (sums_of(hinted).n, sums_of(hinted).s) == (1, 0)  # rollouts with a hint teach nothing of the prompt
    assert (batch.prior.alpha_P.tolist(), batch.prior.beta_P.tolist()) == ([0.5, 0.5], [0.5, 0.5])
