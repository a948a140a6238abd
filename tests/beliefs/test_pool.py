"""Prompts listed once, and the rows that others have for them."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.beliefs.ids import stable_key
from budgetalloc.beliefs.pool import Index, Pool

IDS = st.lists(st.one_of(st.integers(-3, 9), st.sampled_from(["a", "b", "1", "2"])), unique=True, min_size=1)
A_FEW = st.lists(st.integers(0, 99), max_size=8)


@given(IDS, A_FEW)
def test_a_pool_is_the_sequence_of_its_ids(ids, places):
    pool = Pool(ids)
    taken = list(dict.fromkeys(place % len(ids) for place in places))
    part, expected = pool.take(taken), [ids[at] for at in taken]
    for each, listed in ((pool, ids), (part, expected), (part[1:], expected[1:]), (part.take([]), [])):
        assert list(each) == [each[at] for at in range(len(each))] == listed
        assert each.keys_P.tolist() == [stable_key(x) for x in listed]
        assert each.find(["?", *ids]).tolist() == [-1, *(listed.index(x) if x in listed else -1 for x in ids)]
        counts_P = np.arange(len(listed)) % 3
        assert each.repeat(counts_P) == [x for x, n in zip(listed, counts_P, strict=True) for _ in range(n)]
        assert each == listed
        assert each != [*listed, "?"]
        assert repr(each) == f"Pool({listed})"
    assert copy.deepcopy(pool) == pool


@given(IDS, st.lists(IDS, max_size=4), A_FEW)
def test_the_rows_of_an_index_that_grows_are_those_found_anew(ids, added, places):
    pool, index, other = Pool(ids), Index(), Index(["a", 0])
    part = pool.take(list(dict.fromkeys(place % len(ids) for place in places)))
    for new in added:
        index.add(new)
        for each in (pool, part):
            assert index.find(each).tolist() == index.find(list(each)).tolist()
            assert other.find(each).tolist() == other.find(list(each)).tolist()


def test_a_policy_that_loads_a_state_has_other_rows():
    pool, policy = Pool(["a", "b"]), ba.uniform()
    empty = policy.state_dict()
    policy.observe(["b", "b"], [1, 1])
    assert policy.belief(pool).alpha_P.tolist() == [0.5, 2.5]
    policy.load_state_dict(empty)
    policy.observe(["a"], [1])
    assert policy.belief(pool).alpha_P.tolist() == [1.5, 0.5]
    assert policy.cold(pool).tolist() == [False, True]


@pytest.mark.parametrize(
    ("ids", "message"),
    [([], "ids is empty"), (["a", "a"], "holds the id 'a' twice"), ([1.5], r"ids\[0\] is 1.5"), ("ab", "one string")],
)
def test_what_is_no_pool(ids, message):
    with pytest.raises(ba.InputError, match=message):
        Pool(ids)


def test_a_large_pool_is_printed_in_short():
    assert repr(Pool(range(20))) == f"Pool({list(range(20))})"
    assert repr(Pool(range(1_000_000))) == "Pool([0, 1, 2] and 999,997 more)"
