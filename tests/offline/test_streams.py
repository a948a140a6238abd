"""Streams of many keys are NumPy's own, to the bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc.offline.streams import generators

EDGES = st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**63 - 1])
KEYS = st.lists(st.integers(2**32, 2**64 - 1), max_size=4)


@given(EDGES | st.integers(0, 2**63 - 1), KEYS, EDGES | st.integers(0, 99))
def test_each_key_has_the_stream_of_numpy(seed, keys, sweep):
    made = generators(seed, np.array(keys, dtype=np.uint64), sweep)
    for rng, key in zip(made, keys, strict=True):
        assert rng.bit_generator.state == np.random.default_rng([seed, key, sweep]).bit_generator.state


@pytest.mark.parametrize("rewards", range(12))
def test_a_list_is_shuffled_as_an_array(rewards):
    """`Replay` shuffles lists, which is faster."""
    logged = list(range(rewards))
    drawn = np.array(logged)
    one, other = np.random.default_rng(rewards), np.random.default_rng(rewards)
    one.shuffle(logged)
    other.shuffle(drawn)
    assert logged == drawn.tolist()
    assert one.random() == other.random()
