"""What every attachment of a policy resolves: sizes of groups, and the prompts on offer."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import Budget, policies
from budgetalloc.errors import InputError
from budgetalloc.policies.interface import Bounds, Needs


@pytest.mark.parametrize(
    ("needs", "given", "expected"),
    [
        (Needs(), {}, (1, 2, 2)),
        (Needs(candidates="all", min_group=1), {}, ("all", 0, 1)),
        (Needs(candidates="all", min_group=1), {"candidates": 1}, (1, 2, 1)),
        (Needs(), {"candidates": 4, "min_group": 8}, (4, 0, 8)),
        (Needs(), {"floor": 0}, (1, 0, 2)),
    ],
)
def test_what_is_left_out_is_what_the_policy_needs(needs, given, expected):
    bounds = Bounds.resolve(needs, **given)
    assert (bounds.candidates, bounds.floor, bounds.min_group) == expected


@pytest.mark.parametrize("candidates", [0, True, 1.5, "some"])
def test_candidates_are_a_positive_integer_or_all(candidates):
    with pytest.raises(InputError, match=f"candidates={candidates!r}"):
        Bounds.resolve(Needs(), candidates=candidates)


def test_a_cap_left_out_is_eight_groups_and_more_where_prompts_are_few():
    bounds = Bounds.resolve(Needs())
    assert bounds.budget(256, prompts=32, group=8).cap == 64
    assert bounds.budget(256, prompts=2, group=8).cap == 128
    assert Bounds.resolve(Needs(), quantum=3).budget(24, prompts=8, group=1).cap == 9
    assert Bounds.resolve(Needs(), cap=5).budget(256, prompts=64, group=8).cap == 5


def test_the_offer_holds_the_batch_and_as_many_others_as_asked_for():
    pool = [f"p{k}" for k in range(20)]
    batch = pool[3:7]
    assert Bounds.resolve(Needs()).offer(batch, pool, 0, 0) == batch
    assert Bounds.resolve(Needs(), candidates="all").offer(batch, iter(pool), 0, 0) == pool
    three = Bounds.resolve(Needs(), candidates=3)
    offered = three.offer(batch, pool, 0, 0)
    assert offered[:4] == batch
    assert len(set(offered)) == three.on_offer(4, 20) == 12
    assert set(offered) < set(pool)
    assert three.offer(batch, dict.fromkeys(pool), 0, 0) == offered
    assert three.offer(batch, pool, 0, 1) != offered != three.offer(batch, pool, 1, 0)
    assert Bounds.resolve(Needs(), candidates="all").on_offer(4, 20) == three.on_offer(7, 20) == 20
    assert sorted(Bounds.resolve(Needs(), candidates=99).offer(batch, pool, 0, 0)) == sorted(pool)


IDS = [f"p{k}" for k in range(2000)]


@pytest.mark.parametrize("build", [ba.adaptive, ba.thompson, ba.methods.vade])
def test_a_budget_that_names_no_floor_leaves_it_to_the_policy(build):
    """`Budget`'s own floor of 2 made `adaptive()` uniform, and was refused with more prompts than rollouts."""
    for prompts in (32, 2000):
        counts_P = build().allocate(IDS[:prompts], Budget(rollouts=256))
        assert counts_P.sum() == 256
        needs = build().needs
        asked = Budget(rollouts=256, floor=0, min_group=needs.min_group)
        assert counts_P.tolist() == build().allocate(IDS[:prompts], asked).tolist()
    assert (counts_P == 0).any()


def test_a_budget_overrides_what_it_names():
    known = policies.sampled(groups=2)
    known.observe([x for x in IDS[:128] for _ in range(8)], [0, 1] * 512)
    assert (known.allocate(IDS[:128], Budget(rollouts=256)) == 1).any()
    assert known.allocate(IDS[:128], Budget(rollouts=256, floor=2)).min() == 2
    counts_P = known.allocate(IDS[:128], Budget(rollouts=256, min_group=4))
    assert set(counts_P.tolist()) >= {0, 4}
    assert not {1, 2, 3} & set(counts_P.tolist())
    assert known.allocate(IDS[:128], Budget(rollouts=256, floor=0, cap=3)).max() <= 3
    with pytest.raises(ba.BudgetError, match="prompts at floor=2 need 4000 rollouts"):
        known.allocate(IDS, Budget(rollouts=256, floor=2))


@given(
    needs=st.builds(Needs, candidates=st.sampled_from([1, 2, "all"]), min_group=st.integers(1, 9)),
    floor=st.none() | st.integers(0, 9),
    group=st.none() | st.integers(1, 9),
)
def test_what_is_filled_never_contradicts_and_changes_nothing_that_was_named(needs, floor, group):
    try:
        budget = Budget(rollouts=64, floor=floor, min_group=group)
    except ba.BudgetError:
        assume(False)
    filled = Bounds.resolve(needs).filled(budget)  # does not raise
    assert floor in (None, filled.floor)
    assert group in (None, filled.min_group)
    assert filled.min_group <= (filled.floor or 9)
    assert Bounds.resolve(needs).filled(filled) == filled
