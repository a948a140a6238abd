"""Expected lengths: the pool's for new prompts, the prompt's own for known ones, for successes and failures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc.beliefs.ids import Pool
from budgetalloc.beliefs.lengths import Lengths, expected_tokens


def trained(*visits):
    """Lengths after these visits of (id, tokens, successes of 0 and 1, tokens of the prompt)."""
    lengths = Lengths()
    for name, tokens, success, prompt in visits:
        lengths.observe([name] * len(tokens), tokens, success, [prompt] * len(tokens))
    return lengths


def test_failures_alone_predict_the_length_of_a_success():
    """Failures are three times as long as the pool's. The same is then expected of successes."""
    success_P, _ = expected_tokens([[0, 0], [0, 1e6]], [[0, 0], [0, 3e8]], [50, 100])
    assert success_P == pytest.approx([50, 150], rel=1e-3)


@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(0, 20), st.floats(1, 500), st.floats(1, 500)), min_size=1),
    st.tuples(st.floats(1, 500), st.floats(1, 500)),
)
def test_what_is_expected_lies_between_the_lengths_that_were_seen(prompts, mean):
    """Within the range of own lengths and of the pool's means, scaled by the prompt's length relative to the pool."""
    weight = np.array([[a, b] for a, b, _, _ in prompts])
    each = np.array([[c, d] for _, _, c, d in prompts])
    both = np.stack(expected_tokens(weight, weight * each, mean), axis=1)
    ratio = each / np.array(mean)
    low, high = np.minimum(ratio.min(axis=1), 1.0), np.maximum(ratio.max(axis=1), 1.0)
    assert (both >= low[:, None] * mean * (1 - 1e-9)).all()
    assert (both <= high[:, None] * mean * (1 + 1e-9)).all()


def test_lengths_that_are_constant_are_known_exactly():
    lengths = trained(("a", [40] * 5, [1, 0, 0, 1, 0], 7), ("b", [40] * 2, [0, 0], 9))
    prompt_P, answer_P = lengths.expected(["b", "new", "a"], [0.1, 0.5, 0.9])
    assert prompt_P.tolist() == [9, 8, 7]
    assert answer_P == pytest.approx([40, 40, 40])


def test_old_rollouts_fade():
    lengths = trained(("a", [100] * 50, [1] * 50, 5), *[("a", [300], [1], 5)] * 44)
    assert lengths.expected(["a"], [1.0])[1] == pytest.approx(300, rel=0.1)


def test_without_rollouts_all_prompts_are_alike():
    prompt_P, answer_P = Lengths().expected(["a", "b"], [0.2, 0.8])
    assert prompt_P.tolist() == answer_P.tolist() == [1.0, 1.0]


def test_rollouts_without_success_are_left_out_and_empty_answers_have_a_token():
    lengths = trained(("a", [7, 0], [np.nan, 1.0], 5), ("b", [9], [np.nan], 5))
    assert len(lengths) == 1
    assert lengths.expected(["a"], [1.0])[1] == pytest.approx(1.0)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 99), st.floats(0, 1)), max_size=40), st.integers(0, 9))
def test_a_few_prompts_have_the_same_expectation_as_in_the_whole_pool(rollouts, start):
    lengths = Lengths()
    for name, tokens, success in rollouts:
        lengths.observe([name], [tokens], [success], [3 + name])
    pool, rate_P = Pool(range(10)), np.linspace(0, 1, 10)
    whole = np.stack(lengths.expected(pool, rate_P))
    few = np.stack(lengths.expected([start, (start + 3) % 10], rate_P[[start, (start + 3) % 10]]))
    assert (few == whole[:, [start, (start + 3) % 10]]).all()


def test_a_state_restores_all_to_the_bit():
    lengths = trained(("a", [40, 80], [1, 0], 7), ("b", [10], [0.25], 9))
    copy = Lengths()
    copy.load_state_dict(lengths.state_dict())
    for each in (lengths, copy):
        each.observe(["c", "a"], [5, 6], [0, 1], [1, 7])
    ids, rate = ["a", "b", "c", "d"], [0.1, 0.2, 0.3, 0.4]
    assert np.array_equal(lengths.expected(ids, rate), copy.expected(ids, rate))
