"""What every attachment of a policy resolves: sizes of groups, and the prompts on offer."""

import numpy as np
import pytest

from budgetalloc.errors import InputError
from budgetalloc.policies.bounds import Bounds
from budgetalloc.policies.decision import Needs


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


def test_every_other_prompt_is_drawn_equally_often():
    three = Bounds.resolve(Needs(), candidates=3)
    drawn = [name for step in range(2000) for name in three.offer([0, 1], range(10), 0, step)[2:]]
    assert np.bincount(drawn, minlength=10)[2:] / 2000 == pytest.approx(np.full(8, 0.5), abs=0.05)
