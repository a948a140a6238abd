"""E3, DARS and DART: known answers of the rules, budgets that are kept, and cold prompts."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from budgetalloc import Budget, InputError, UnsupportedError
from budgetalloc.policies.hardness import dars, dars_counts, dart, e3, hardness_ranks, rank_shares

GRADED = {"solved": 1.0, "most": 0.75, "half": 0.5, "never": 0.0}


def observe(policy, rates, group=8):
    """One step with the given mean reward of each prompt."""
    ids_R = [x for x in rates for _ in range(group)]
    policy.observe(ids_R, [float(k < round(r * group)) for r in rates.values() for k in range(group)])


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


# E3


def paper_algorithm_1(ranks, rollouts, fewest, most):
    """Algorithm 1 of arXiv 2505.18573 as it stands: the proportional step is not clipped."""
    rest = rollouts - fewest * len(ranks)
    counts = [fewest + math.floor(rest * k / sum(ranks) + 1e-9) for k in ranks]
    left = rollouts - sum(counts)
    for at in sorted(range(len(ranks)), key=lambda at: -ranks[at]):
        extra = max(0, min(most - counts[at], left))
        counts[at], left = counts[at] + extra, left - extra
    return counts, left


@given(
    ranks=st.lists(st.integers(1, 100), min_size=1, max_size=20),
    fewest=st.integers(1, 8),
    data=st.data(),
)
@settings(max_examples=50, deadline=None)
def test_e3_follows_algorithm_1_wherever_that_keeps_to_the_bounds(ranks, fewest, data):
    most = fewest + data.draw(st.integers(0, 12))
    rollouts = data.draw(st.integers(len(ranks) * fewest, len(ranks) * most))
    counts = rank_shares(np.array(ranks) / 100, rollouts, fewest, most)
    assert counts.sum() == rollouts
    assert counts.min() >= fewest
    assert counts.max() <= most
    expected, left = paper_algorithm_1(ranks, rollouts, fewest, most)
    assume(max(expected) <= most and left == 0)
    assert counts.tolist() == expected


@given(ranks=st.lists(st.integers(1, 100), min_size=1, max_size=20, unique=True), fewest=st.integers(1, 8))
@settings(max_examples=50, deadline=None)
def test_e3_never_gives_an_easier_prompt_more(ranks, fewest):
    ranks = sorted(ranks)
    counts = rank_shares(np.array(ranks) / 100, len(ranks) * (fewest + 2), fewest, fewest + 5)
    assert (np.diff(counts) >= 0).all()


def test_e3_clips_a_share_above_g_max_where_the_paper_does_not():
    ranks = [0.1, 0.1, 0.1, 1.0]  # computed by hand: 4 + floor(16 / 1.3) = 16
    assert paper_algorithm_1(ranks, 32, 4, 12)[0][3] == 16
    assert rank_shares(ranks, 32, 4, 12).tolist() == [8, 6, 6, 12]


def test_e3_gives_the_default_share_to_an_unknown_rank():
    assert rank_shares([0.2, np.nan, 1.0, 0.6], 32, 4, 12)[1] == 8  # exact: 4 + 16 * 0.6 / 2.4
    assert rank_shares([np.nan] * 3, 24, 4, 12).tolist() == [8, 8, 8]


def test_e3_ranks_of_equal_rates_are_equal_and_the_hardest_has_rank_1():
    assert hardness_ranks([0.0, 1.0, 0.0, 1.0, 0.5]).tolist() == [0.9, 0.3, 0.9, 0.3, 0.6]
    assert hardness_ranks([0.7]).tolist() == [1.0]
    assert hardness_ranks([]).size == 0


def test_e3_bounds_move_apart_by_two_an_epoch_to_4_and_12():
    policy, ids, seen = e3(epoch=2), [f"p{k}" for k in range(16)], []
    for _ in range(8):
        counts = policy.allocate(ids, Budget(128))
        seen.append((int(counts.min()), int(counts.max())))
        observe(policy, {x: k / 15 for k, x in enumerate(ids)}, group=15)
    assert seen[:2] == [(8, 8)] * 2
    assert all(6 <= low < high <= 10 for low, high in seen[2:4])
    assert all(4 <= low <= 5 and 11 <= high <= 12 for low, high in seen[4:])  # ranks 1/16 to 1


def test_e3_does_not_take_a_cold_prompt_for_the_easiest_as_the_released_code_does():
    policy = e3(epoch=1)
    for _ in range(2):
        observe(policy, GRADED)
    counts = dict(zip([*GRADED, "cold"], policy.allocate([*GRADED, "cold"], Budget(40)).tolist(), strict=True))
    assert counts["solved"] < counts["cold"] == 8 < counts["never"]


def test_e3_ranks_over_all_prompts_seen_and_not_over_the_batch():
    policy = e3(epoch=1)
    for _ in range(2):
        observe(policy, {**{f"easy {k}": 1.0 for k in range(20)}, "hard": 0.25, "harder": 0.0})
    # ranks 21/22 and 22/22 are nearly equal; within the batch they would be 1/2 and 1: 6 and 10
    assert policy.allocate(["hard", "harder"], Budget(16)).tolist() == [7, 9]


def test_e3_mean_is_cumulative_without_decay():
    policy = e3(epoch=1)
    for _ in range(9):
        observe(policy, {"learned": 0.0, "steady": 0.5})
    for _ in range(8):
        observe(policy, {"learned": 1.0, "steady": 0.5})  # 8 of 17 steps is still below a half
    learned, steady = policy.allocate(["learned", "steady"], Budget(16))
    assert learned > steady
    for _ in range(2):
        observe(policy, {"learned": 1.0, "steady": 0.5})
    learned, steady = policy.allocate(["learned", "steady"], Budget(16))
    assert learned < steady


def test_e3_mean_weighs_every_rollout_and_not_every_visit():
    policy = e3(epoch=1)
    observe(policy, {"a": 0.0, "b": 0.25}, group=4)
    observe(policy, {"a": 0.5}, group=40)  # 20 of 44 is more than 1 of 4; the mean of visits would be equal
    a, b = policy.allocate(["a", "b"], Budget(16))
    assert a < b
    observe(policy, {"c": 0.75}, group=4)
    observe(policy, {"d": 0.5}, group=4)
    observe(policy, {"d": 0.5}, group=4)  # 4 of 8 is less than 3 of 4
    c, d = policy.allocate(["c", "d"], Budget(16))
    assert c < d


def test_e3_takes_ranks_anew_only_when_an_epoch_ends():
    policy = e3(epoch=3)
    for at in range(6):
        counts = policy.allocate(["a", "b"], Budget(16)).tolist()
        assert counts == ([8, 8] if at < 3 else [7, 9])  # b was the harder one in the first epoch
        observe(policy, {"a": 1.0, "b": 0.0} if at < 3 else {"a": 0.0, "b": 1.0}, group=8 if at < 3 else 80)
    assert policy.allocate(["a", "b"], Budget(16)).tolist() == [10, 6]  # exact: 4 + 8 / 1.5 and the one left over


def test_e3_bounds_are_scaled_to_the_mean_of_the_budget():
    policy = e3(epoch=1)
    for _ in range(3):
        observe(policy, GRADED)
    assert policy.allocate([*GRADED], Budget(128)).tolist() == [22, 28, 35, 43]  # 16 + floor(64 k / 2.5), two left


def test_e3_draws_a_batch_of_groups_where_it_may_leave_prompts_out():
    policy = e3()
    counts = policy.allocate(list(range(100)), Budget(64, floor=0))
    assert sorted(counts.tolist())[-8:] == [8] * 8
    policy.observe([0], [1.0])
    assert (policy.allocate(list(range(100)), Budget(64, floor=0)) != counts).any()


# DARS

TABLE = {  # section 5.2 of the method sheet: computed from the released rule
    (8, "ET", None): {0: 35, 1: 19, 2: 11, 3: 9, 4: 8, 5: 8, 8: 8},
    (8, "ET", 32): {0: 32, 1: 19, 2: 11, 3: 9, 4: 8, 5: 8, 8: 8},
    (8, "HW", None): {0: 64, 1: 32, 2: 16, 3: 11, 4: 8, 5: 8, 8: 8},
    (8, "HW", 64): {0: 64, 1: 32, 2: 16, 3: 11, 4: 8, 5: 8, 8: 8},
    (16, "ET", None): {0: 133, 1: 69, 2: 37, 4: 22, 6: 18, 8: 16, 9: 16, 16: 16},
    (16, "ET", 32): {0: 32, 1: 32, 2: 32, 4: 22, 6: 18, 8: 16, 9: 16, 16: 16},
    (16, "HW", None): {0: 256, 1: 128, 2: 64, 4: 32, 6: 22, 8: 16, 9: 16, 16: 16},
    (16, "HW", 64): {0: 64, 1: 64, 2: 64, 4: 32, 6: 22, 8: 16, 9: 16, 16: 16},
}


@pytest.mark.parametrize(("group", "variant", "most"), TABLE)
def test_dars_counts_are_those_of_the_table(group, variant, most):
    row = TABLE[group, variant, most]
    assert dars_counts(list(row), group, variant, most).tolist() == list(row.values())


@pytest.mark.parametrize(("variant", "std"), list(product(["ET", "HW"], [False, True])))
@given(group=st.integers(2, 40), share=st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_dars_reaches_the_target_sum_of_advantages_and_not_one_rollout_more(variant, std, group, share):
    a = share if share > 1e-6 else 0.5 / group
    total = int(dars_counts([share * group], group, variant, std=std)[0])
    if a >= 0.5:
        assert total == group
        return
    each = 2 * math.sqrt(a * (1 - a)) if std else 2 * a * (1 - a)  # sum of |advantage| a rollout
    target = (group if std else group / 2) * (1 if variant == "ET" else 2 * (1 - a))
    assert total * each >= target * (1 - 1e-8)
    assert (total - 1) * each < target * (1 + 1e-8) or total == group


def test_dars_counts_of_whole_numbers_are_not_rounded_up_by_floating_point():
    assert dars_counts([9, 18], 66, "HW").tolist() == [242, 121]  # exact: 66 * 66 / (2 s)
    assert dars_counts([48], 120, "ET").tolist() == [125]  # exact: 120 / (4 * 0.4 * 0.6)


def test_dars_fills_the_hard_prompts_up_to_the_table_where_the_budget_has_room():
    ids = list(range(40))
    rates = {k: (k % 9) / 8 for k in ids}
    first, second = play(dars(share=0.4), ids, Budget(400, floor=0), rates)
    assert first.sum() == 160  # 0.4 of the budget in pilots of 8
    piloted = first > 0
    asked = dars_counts([rates[k] * 8 for k in ids], 8, "ET", 32)
    assert second.sum() == 240
    assert asked[piloted].sum() <= 400
    got = (first + second)[piloted]
    assert (got >= asked[piloted]).all()  # what is left over starts others and fills up the rest
    assert (first + second)[~piloted].max() >= 8


@pytest.mark.parametrize(("variant", "most"), [("ET", 32), ("HW", 64)])
def test_dars_extras_are_scaled_alike_to_what_the_budget_has_left(variant, most):
    ids = list(range(40))
    rates = {k: (k % 9) / 8 for k in ids}
    first, second = play(dars(variant=variant, share=0.8), ids, Budget(400, floor=0), rates)
    piloted = first > 0
    extras = dars_counts([rates[k] * 8 for k in ids], 8, variant, most) - 8
    assert second.sum() == 80 < extras[piloted].sum()
    assert not second[~piloted].any()
    assert np.abs(second - np.where(piloted, extras, 0) * 80 / extras[piloted].sum()).max() < 1


def test_dars_caps_extras_at_32_with_et_and_64_with_hw_unless_told():
    assert "most=32" in dars().name
    assert "most=64" in dars(variant="HW").name
    assert "most=100" in dars(group=100).name
    ids = list(range(3))
    for build, top in ((dars(share=0.2), 32), (dars(variant="HW", share=0.2), 64), (dars(most=20, share=0.2), 20)):
        first, second = play(build, ids, Budget(top + 8, floor=0), dict.fromkeys(ids, 0.0))
        assert (first + second).max() == top
        assert (first > 0).sum() == 1


def test_dars_pilots_everybody_under_a_floor_with_the_share_of_the_budget():
    ids = list(range(16))
    rates = dict.fromkeys(ids, 1.0) | {3: 0.0}
    first, second = play(dars(), ids, Budget(128, floor=2), rates)
    assert (first == 5).all()  # 0.625 of 8
    assert second[3] == 9 + 2  # exact: 5 / (4 * 0.1 * 0.9) = 13.9 in all; of the other 39 everybody has 2 or 3
    assert set(np.delete(second, 3).tolist()) == {2, 3}


def test_dars_gives_no_more_to_a_pilot_without_rewards():
    policy = dars(share=0.5)
    step = policy.begin(["a", "b", "c", "d"], Budget(32, floor=0))
    first = step.request()
    step.observe(np.repeat(["a", "b", "c", "d"], first), [np.nan] * 16)
    second = step.request()
    assert not second[first > 0].any()
    assert second.sum() == 16


def test_dars_group_mean_is_biased_upwards_as_its_docstring_says():
    p = 0.25  # pilots of 2: without a success the group grows to ceil(2 / (4 * 1/4 * 3/4)) = 3
    sizes = dars_counts([0, 1, 2], 2, "ET")
    assert sizes.tolist() == [3, 2, 2]
    mean = (1 - p) ** 2 * (p / 3) + 2 * p * (1 - p) / 2 + p**2  # exact, over the pilot's outcomes
    assert mean == pytest.approx(p + p * (1 - p) ** 2 / 3)
    assert mean > p


def test_dars_spends_rollouts_only():
    with pytest.raises(UnsupportedError, match="spends rollouts only"):
        dars().allocate(["a"], Budget(None, tokens=100, cap=8), costs_P=[1.0])


# DART


def test_dart_reduces_prompts_that_pass_more_than_60_percent():
    policy = dart()
    observe(policy, {"sixty": 0.6, "more": 0.75, "never": 0.0}, group=40)
    assert policy.allocate(["sixty", "more", "never", "cold"], Budget(28)).tolist() == [8, 4, 8, 8]


def test_dart_takes_exactly_the_threshold_for_not_easy():
    policy = dart(easy=0.5)
    assert policy.allocate(["cold a", "cold b"], Budget(16)).tolist() == [8, 8]
    policy.observe(["up"], [1.0])
    assert policy.allocate(["up", "cold"], Budget(12)).tolist() == [4, 8]


def test_dart_gives_what_it_saves_to_further_prompts():
    policy, ids = dart(), list(range(100))
    assert (policy.allocate(ids, Budget(160, floor=0)) > 0).sum() == 20
    observe(policy, dict.fromkeys(ids, 1.0))
    counts = policy.allocate(ids, Budget(160, floor=0))
    assert (counts > 0).sum() == 40
    assert counts.max() == 4


def test_dart_shares_a_batch_in_proportion_under_a_floor():
    policy = dart()
    observe(policy, {"easy": 1.0, "hard": 0.0})
    assert policy.allocate(["easy", "hard"], Budget(36)).tolist() == [12, 24]


@pytest.mark.parametrize("build", [e3, dart], ids=lambda build: build.__name__)
@pytest.mark.parametrize("floor", [0, 2])
def test_tokens_and_quotas_are_served_too(build, floor):
    policy = build()
    observe(policy, {k: (k % 5) / 4 for k in range(12)})
    costs = np.linspace(10, 40, 12)
    counts = policy.allocate(list(range(12)), Budget(None, tokens=1500, cap=16, floor=floor), costs)
    assert 1400 < counts @ costs <= 1500
    domains = ["math"] * 6 + ["code"] * 6
    quotas = {"math": (60, 64), "code": (0, 40)}
    counts = policy.allocate(list(range(12)), Budget(96, cap=16, floor=floor, quotas=quotas), domains_P=domains)
    assert counts.sum() == 96
    assert 60 <= counts[:6].sum() <= 64


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: e3(group=0), "group=0"),
        (lambda: e3(fewest=9), "fewest=9: use an integer from 1 to 8"),
        (lambda: e3(most=7), "most=7: use an integer of at least 8"),
        (lambda: e3(change=-1), "change=-1"),
        (lambda: e3(epoch=0), "epoch=0"),
        (lambda: rank_shares([1.0], 20, 4, 12), "rollouts=20: 1 prompts with 4 to 12"),
        (lambda: dars(group=True), "group=True"),
        (lambda: dars(variant="et"), "variant='et'"),
        (lambda: dars(most=7), "most=7: use an integer of at least 8"),
        (lambda: dars(share=1.0), "share=1.0"),
        (lambda: dars_counts([9], 8, "ET"), r"successes_P=\[9\]"),
        (lambda: dars_counts([np.nan], 8, "ET"), "successes_P="),
        (lambda: dars_counts([1], 8, "ET", most=4), "most=4"),
        (lambda: dart(group=0), "group=0"),
        (lambda: dart(reduced=9), "reduced=9"),
        (lambda: dart(easy=1.5), "easy=1.5"),
        (lambda: dart(discount=2), "discount=2"),
    ],
)
def test_a_bad_setting_is_named(make, text):
    with pytest.raises(InputError, match=text):
        make()
