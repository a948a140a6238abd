"""Groups that are kept whole: the mixed ones, or those of most variance."""

import numpy as np

from budgetalloc.policies.published.which_rollouts.whole_groups import keep_mixed, top_p


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


def test_only_mixed_groups_are_kept():
    assert kept_of(keep_mixed(), GROUPS, 16) == [(1, 7), (4, 4), (0, 0), (0, 0)]
    assert kept_of(top_p(share=0.6), GROUPS, 8) == [(0, 0), (4, 4), (0, 0), (0, 0)]  # variances 1/8, 2/7: 70 %
