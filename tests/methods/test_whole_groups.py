"""Groups that are kept whole: the mixed ones, or those of most variance."""

from policy_steps import kept_of

from budgetalloc.methods.whole_groups import keep_mixed, top_p


def test_only_mixed_groups_are_kept():
    assert kept_of(keep_mixed(), 16) == [(1, 7), (4, 4), (0, 0), (0, 0)]
    assert kept_of(top_p(share=0.6), 8) == [(0, 0), (4, 4), (0, 0), (0, 0)]  # variances 1/8, 2/7: 70 %
