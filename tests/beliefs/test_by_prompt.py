"""The rollouts of a step by prompt."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc.beliefs.by_prompt import ByPrompt

ROLLOUT = st.tuples(
    st.sampled_from("abc"), st.sampled_from([-1.0, 0.0, 0.2, 3.0, np.nan]), st.sampled_from([0.0, 0.25, 1.0, np.nan])
)


@given(rows=st.lists(ROLLOUT, max_size=12))
def test_each_column_is_that_of_the_prompts_own_rollouts(rows):
    place = {"a": 0, "b": 1, "c": 2}
    at_R = np.array([place[x] for x, _, _ in rows], dtype=np.int64)
    seen = ByPrompt(list("abc"), at_R, np.array([r for _, r, _ in rows]), np.array([u for _, _, u in rows]))
    for at, name in enumerate("abc"):
        rewards = [r for x, r, _ in rows if x == name and not np.isnan(r)]
        success = [u for x, _, u in rows if x == name and not np.isnan(u)]
        assert seen.n_P[at] == len(success)
        assert seen.successes_P[at] == pytest.approx(sum(success))
        assert seen.mean_P[at] == pytest.approx(np.mean(success) if success else 0)
        assert seen.variance_P[at] == pytest.approx(np.var(success) if success else 0, abs=1e-12)
        assert seen.graded_P[at] == pytest.approx(sum(u * (1 - u) for u in success))
        assert seen.mixed_P[at] == (len(set(rewards)) > 1)


def test_prompts_come_in_the_order_in_which_they_first_appear():
    seen = ByPrompt.of(["b", "a", "b"], np.array([1.0, 0.0, 1.0]), np.array([1.0, 0.0, 1.0]))
    assert (list(seen.ids_P), seen.prompt_R.tolist()) == (["b", "a"], [0, 1, 0])
    assert ByPrompt.none(["a", "b"]).n_P.tolist() == [0, 0]


def test_running_has_an_entry_for_each_prompt():
    seen = ByPrompt.of(["a", "b", "b"], np.zeros(3), np.zeros(3))
    assert seen.running_P.tolist() == [False, False]
    assert ByPrompt(["a", "b", "c"], *np.zeros((3, 2), dtype=int)).running_P.tolist() == [False] * 3
