"""PVPO: routes by a reference mean, or by a prompt's own rollouts."""

from policy_steps import chosen

from budgetalloc import Budget
from budgetalloc.methods import pvpo

NAN = float("nan")


IDS = ["solved", "half", "failed", "new"]


def test_pvpo_routes_by_the_reference_mean():
    reference = {"solved": 1.0, "half": 0.5, "failed": 0.0}
    two = Budget(2, floor=0)
    assert chosen(lambda seed: pvpo(reference=reference, explore=0.0, seed=seed), [], IDS, two) == {"half", "new"}
    shown = lambda seed: pvpo(reference=reference, explore=0.0, demonstrations=True, seed=seed)  # noqa: E731
    assert chosen(shown, [], IDS, two) == {"half", "failed", "new"}


def test_pvpo_without_a_reference_goes_by_enough_own_rollouts_in_a_row_also_in_groups_of_one():
    one = Budget(1, floor=0, min_group=1)
    build = lambda seed: pvpo(enough=3, explore=0.0, group=1, seed=seed)  # noqa: E731
    twice, thrice = [(["x", "y", "z"], [1.0, 0.0, 1.0])] * 2, [(["x", "y", "z"], [1.0, 0.0, 1.0])] * 3
    assert chosen(build, twice, ["x", "y"], one) == {"x", "y"}
    assert chosen(build, thrice, ["x", "y", "new"], one) == {"new"}
    turned = [*thrice, (["x", "y", "z"], [0.0, NAN, 1.0])]  # x fails once; y without a reward; z goes on
    assert chosen(build, turned, ["x", "y", "z"], one) == {"x"}
    graded = [(["x"] * 4 + ["y"] * 4, [0.5] * 4 + [1.0] * 4)]
    assert chosen(build, graded, ["x", "y"], one) == {"x"}
