"""Prompt ids: what is accepted, keys that depend on the id alone, pools and their rows."""

import copy
import json
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import InputError
from budgetalloc.beliefs import ids as module
from budgetalloc.beliefs.ids import (
    Index,
    Pool,
    blocks,
    check_distinct,
    check_ids,
    factorize,
    shuffled_order,
    stable_key,
    text_id,
)

IDS = st.lists(st.integers() | st.text(max_size=5), max_size=20)


@given(IDS)
@settings(max_examples=100, deadline=None)
def test_check_ids_keeps_ints_and_strings(ids):
    assert check_ids(ids, "ids_P") == ids
    assert check_ids(iter(ids), "ids_P") == ids


def test_numpy_ids_become_plain():
    for ids in ([np.int32(3), np.str_("a")], np.array([3, 4]), np.array(["a", "b"])):
        assert all(type(x) in (int, str) for x in check_ids(ids, "ids_P"))


def test_check_distinct():
    check_distinct([1, "1"], "ids_P")
    with pytest.raises(InputError, match="ids_P holds the id 'b' twice"):
        check_distinct(["a", "b", "c", "b"], "ids_P")
    with pytest.raises(InputError, match="ids_P is empty"):
        check_distinct([], "ids_P")


@given(IDS)
@settings(max_examples=100, deadline=None)
def test_factorize(ids):
    distinct, group_R = factorize(ids)
    assert distinct == list(dict.fromkeys(ids))
    assert [distinct[g] for g in group_R] == ids


def test_an_id_that_json_allows_and_utf_8_does_not_has_a_key():
    assert stable_key(json.loads('"\\ud800"')) != stable_key(json.loads('"\\udc00"'))


def test_keys_are_pinned():
    """A change would silently change every seeded decision."""
    assert (stable_key(0), stable_key("0")) == (7163381271710615482, 10398409859443960264)


def keys(ids):
    return np.array([stable_key(x) for x in ids], dtype=np.uint64)


def test_the_order_depends_on_the_set_of_ids_only():
    ids = [*range(20), *map(str, range(20))]
    turned = ids[7:] + ids[:7]
    order, other = shuffled_order(keys(ids), 3, 5), shuffled_order(keys(turned), 3, 5)
    assert [ids[i] for i in order] == [turned[i] for i in other]


@given(st.sets(st.integers(0, 2**64 - 1), min_size=1, max_size=60), st.integers(1, 80), st.integers(0, 9))
def test_a_part_of_the_order_is_its_beginning(found, about, step):
    key_P = np.array(sorted(found), dtype=np.uint64)
    part, whole = shuffled_order(key_P, 1, step, about), shuffled_order(key_P, 1, step)
    assert part.tolist() == whole[: len(part)].tolist()
    assert len(part) == len(whole) or about < len(whole)


def test_every_prompt_is_in_a_part_equally_often():
    key_P = keys(range(200))
    parts = [shuffled_order(key_P, 0, step, about=50) for step in range(2000)]
    assert abs(np.bincount(np.concatenate(parts), minlength=200) / 2000 - 0.25).max() < 0.05  # five deviations
    assert np.mean([len(part) for part in parts]) == pytest.approx(50, abs=0.7)
    assert np.std([len(part) for part in parts]) == pytest.approx((200 * 0.25 * 0.75) ** 0.5, rel=0.1)


def test_the_order_is_pinned():
    """A change would silently change every seeded decision."""
    assert shuffled_order(keys(range(12)), 3, 5).tolist() == [1, 5, 8, 9, 4, 10, 3, 2, 7, 0, 6, 11]
    alike = np.array([10250435474722081893, 14685334403891285191], dtype=np.uint64)  # until the last shift: 31 bits
    assert shuffled_order(alike, 0, 0).tolist() == [1, 0]


def test_the_order_does_not_depend_on_the_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    key_P = rng.integers(2**64, size=300, dtype=np.uint64)
    whole = shuffled_order(key_P, 1, 2).tolist()
    monkeypatch.setattr(module, "blocks", partial(blocks, size=7))
    assert shuffled_order(key_P, 1, 2).tolist() == whole


def test_the_id_of_a_prompt_does_not_depend_on_the_order_of_its_keys_and_its_text_need_not_be_ascii():
    assert text_id([{"role": "user", "content": "é"}]) == text_id([{"content": "é", "role": "user"}])
    assert text_id("é") == "b7cbc2fff315654e"


FEW_IDS = st.lists(st.one_of(st.integers(-3, 9), st.sampled_from(["a", "b", "1", "2"])), unique=True, min_size=1)
A_FEW = st.lists(st.integers(0, 99), max_size=8)


@given(FEW_IDS, A_FEW)
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


@given(FEW_IDS, st.lists(FEW_IDS, max_size=4), A_FEW)
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
