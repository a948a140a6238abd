"""GRPO-RoC: proportions, and the penalty's column."""

import numpy as np
import pytest

from budgetalloc import InputError
from budgetalloc.policies.published.which_rollouts.roc import roc


def step(groups):
    """Ids and rewards of groups given as (successes, failures)."""
    ids = [at for at, n in enumerate(groups) for _ in range(sum(n))]
    return ids, np.array([x for wins, losses in groups for x in [1.0] * wins + [0.0] * losses])


def kept_of(policy, groups, rows, scores_RF=None):
    """The (successes, failures) kept of each group."""
    ids, rewards = step(groups)
    kept = policy.keep(ids, rewards, rows, scores_RF)
    return [
        (sum(ids[k] == at and rewards[k] == 1 for k in kept), sum(ids[k] == at and rewards[k] == 0 for k in kept))
        for at in range(len(groups))
    ]


GROUPS = [(1, 7), (4, 4), (8, 0), (0, 8)]


def test_roc_keeps_proportions():
    assert kept_of(roc(), GROUPS, 16) == [(1, 3), (2, 2), (4, 0), (0, 4)]


def test_roc_reads_the_penalty_from_the_column_of_its_reward_function():
    ids, rewards = ["a"] * 6, np.array([1.0, 1, 1, 0, 0, 0])
    scores_RF = np.stack([rewards, [0.5, 0.2, 0.0, 0, 0, 0]], axis=1)
    assert roc(penalty=1).keep(ids, rewards, 4, scores_RF).tolist() == [1, 2, 3, 4]
    assert roc().keep(ids, rewards, 4, scores_RF).tolist() == [0, 1, 3, 4]
    with pytest.raises(InputError, match=r"penalty=2: of the columns .* there are 2"):
        roc(penalty=2).keep(ids, rewards, 4, scores_RF)
    with pytest.raises(InputError, match="none was passed"):
        roc(penalty=1).keep(ids, rewards, 4, None)
