"""GRPO-RoC: proportions, and the penalty's column."""

import numpy as np
import pytest
from policy_steps import kept_of

from budgetalloc import InputError
from budgetalloc.methods.roc import roc


def test_roc_keeps_proportions():
    assert kept_of(roc(), 16) == [(1, 3), (2, 2), (4, 0), (0, 4)]


def test_roc_reads_the_penalty_from_the_column_of_its_reward_function():
    ids, rewards = ["a"] * 6, np.array([1.0, 1, 1, 0, 0, 0])
    scores_RF = np.stack([rewards, [0.5, 0.2, 0.0, 0, 0, 0]], axis=1)
    assert roc(penalty=1).keep(ids, rewards, 4, scores_RF).tolist() == [1, 2, 3, 4]
    assert roc().keep(ids, rewards, 4, scores_RF).tolist() == [0, 1, 3, 4]
    with pytest.raises(InputError, match=r"penalty=2: of the columns .* there are 2"):
        roc(penalty=2).keep(ids, rewards, 4, scores_RF)
    with pytest.raises(InputError, match="none was passed"):
        roc(penalty=1).keep(ids, rewards, 4, None)
