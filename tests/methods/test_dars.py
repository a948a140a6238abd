"""DARS: the table of its counts, targets and extras."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import Budget
from budgetalloc.methods.dars import dars, dars_counts


def play(policy, ids, budget, rates):
    """One step in which the share `rates` of each round's rewards is 1, the first ones: the counts of each round."""
    step, rounds = policy.begin(ids, budget), []
    while (counts_P := step.request()).any():
        step.observe(
            np.repeat(ids, counts_P),
            [float(k < rates[x] * n) for x, n in zip(ids, counts_P, strict=True) for k in range(n)],
        )
        rounds.append(counts_P)
    step.end()
    return rounds


TABLE = {  # computed from the released rule
    (8, "ET"): {0: 35, 1: 19, 2: 11, 3: 9, 4: 8, 5: 8, 8: 8},
    (8, "HW"): {0: 64, 1: 32, 2: 16, 3: 11, 4: 8, 5: 8, 8: 8},
    (16, "ET"): {0: 133, 1: 69, 2: 37, 4: 22, 6: 18, 8: 16, 9: 16, 16: 16},
    (16, "HW"): {0: 256, 1: 128, 2: 64, 4: 32, 6: 22, 8: 16, 9: 16, 16: 16},
    (66, "HW"): {9: 242, 18: 121},  # exact: 66 * 66 / (2 s), not rounded up by floating point
    (120, "ET"): {48: 125},  # exact: 120 / (4 * 0.4 * 0.6)
}


def counts(successes_P, group, variant, most=10**6, std=False):
    rate_P = np.array(successes_P) / group
    return np.minimum(dars_counts(rate_P, np.full(len(rate_P), group), variant, std), most)


@pytest.mark.parametrize(("group", "variant"), TABLE)
def test_dars_counts_are_those_of_the_table(group, variant):
    row = TABLE[group, variant]
    assert counts(list(row), group, variant).tolist() == list(row.values())


@pytest.mark.parametrize(("variant", "std"), list(product(["ET", "HW"], [False, True])))
@given(group=st.integers(2, 40), share=st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_dars_reaches_the_target_sum_of_advantages_and_not_one_rollout_more(variant, std, group, share):
    a = share if share > 1e-6 else 0.5 / group
    total = int(counts([share * group], group, variant, std=std)[0])
    if a >= 0.5:
        assert total == group
        return
    each = 2 * math.sqrt(a * (1 - a)) if std else 2 * a * (1 - a)  # sum of |advantage| a rollout
    target = (group if std else group / 2) * (1 if variant == "ET" else 2 * (1 - a))
    assert total * each >= target * (1 - 1e-8)
    assert (total - 1) * each < target * (1 + 1e-8) or total == group


def test_dars_fills_the_hard_prompts_up_to_the_table_where_the_budget_has_room():
    ids = list(range(40))
    rates = {k: (k % 9) / 8 for k in ids}
    first, second = play(dars(share=0.4), ids, Budget(400, floor=0), rates)
    assert first.sum() == 160  # 0.4 of the budget in pilots of 8
    piloted = first > 0
    asked = counts([rates[k] * 8 for k in ids], 8, "ET", 32)
    assert second.sum() == 240
    assert asked[piloted].sum() <= 400
    got = (first + second)[piloted]
    assert (got >= asked[piloted]).all()  # what is left over starts others and fills up the rest
    assert (first + second)[~piloted].max() >= 8


def test_dars_caps_extras_at_32_with_et_and_64_with_hw_unless_told():
    ids = list(range(3))
    for build, top in ((dars(share=0.2), 32), (dars(variant="HW", share=0.2), 64), (dars(most=20, share=0.2), 20)):
        first, second = play(build, ids, Budget(top + 8, floor=0), dict.fromkeys(ids, 0.0))
        assert (first + second).max() == top
        assert (first > 0).sum() == 1


def test_with_a_floor_every_prompt_has_a_pilot_as_large_as_the_share_allows():
    ids = list(range(16))
    rates = dict.fromkeys(ids, 1.0) | {3: 0.0}
    first, second = play(dars(), ids, Budget(128, floor=2), rates)
    assert (first == 5).all()  # 0.625 of 8
    assert second[3] == 9 + 2  # exact: 5 / (4 * 0.1 * 0.9) = 13.9 in all; each has 2 or 3 of the other 39
    assert set(np.delete(second, 3).tolist()) == {2, 3}
