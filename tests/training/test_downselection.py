"""The rollouts that are trained on, where a policy generates more."""

from types import SimpleNamespace

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.training.downselection import check_kept_rows, rows_to_train_on


class Rollouts(SimpleNamespace):
    def __len__(self):
        return len(self.ids_R)


def batch(rows):
    rewards_R = np.arange(rows, dtype=float)
    return Rollouts(ids_R=["a"] * rows, rewards_R=rewards_R, scores_RF=rewards_R[:, None], success_R=rewards_R)


def choosing(rule):
    return SimpleNamespace(keep=rule)


def test_all_are_kept_unless_there_are_more_than_wanted():
    never = choosing(lambda *_: pytest.fail("was asked"))
    assert rows_to_train_on(never, batch(4), 4).tolist() == [0, 1, 2, 3]
    assert rows_to_train_on(choosing(None), batch(6), 4).tolist() == [0, 1, 2, 3, 4, 5]


def test_the_rule_sees_the_rewards_that_are_trained_on():
    policy = choosing(lambda ids, rewards_R, rows, *_: np.sort(np.argsort(-rewards_R)[:rows]))
    assert rows_to_train_on(policy, batch(6), 2).tolist() == [4, 5]
    assert rows_to_train_on(policy, batch(6), 2, -np.arange(6.0)).tolist() == [0, 1]


@pytest.mark.parametrize("rows", [[0], [0, 1, 2], [[0, 1]], [0.0, 1.0]])
def test_another_number_of_rows_is_refused(rows):
    with pytest.raises(ba.InputError, match="return the indices of 2 rollouts of the 6"):
        check_kept_rows(rows, 6, 2, "policy")


def test_rows_that_there_are_not_are_refused():
    with pytest.raises(ba.InputError, match="indices from -1 to 6: return indices from 0 to 5"):
        check_kept_rows([-1, 6], 6, 2, "policy")
