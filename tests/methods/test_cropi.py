"""CROPI: prompts of the highest scores, from one column or merged from several as the released code does."""

import numpy as np
import pytest
from policy_steps import chosen

from budgetalloc import Budget, InputError
from budgetalloc.methods import cropi
from budgetalloc.methods.cropi import merged


def test_several_validation_sets_are_merged_as_in_the_released_code():
    """thu-coai/CROPI@35d54d8, select_prompts_valid_uniform, on these scores of 20 prompts, of which 4 are selected."""
    score_PV = np.random.default_rng(7).standard_normal((20, 3))
    found = merged(score_PV, int(0.22 * 20))
    given = {2: 1 / 3, 3: 0.25, 4: 0.25, 5: 1.0, 8: 1 / 3, 11: 0.25, 14: 1.0, 16: 1.5, 17: 1 / 3, 19: 1.0}
    assert {at: x for at, x in enumerate(found) if x} == pytest.approx(given)
    ids = list(range(20))
    build = lambda seed: cropi(score=lambda view: score_PV[np.array(view.ids_P)], seed=seed)  # noqa: E731
    assert chosen(build, [], ids, Budget(32, floor=0)) == {5, 14, 16, 19}


def test_only_the_share_of_the_highest_scores_is_drawn_from_and_nan_comes_last():
    scores = dict(zip("abcdef", [0.3, np.nan, -1.0, 2.0, 0.1, np.inf], strict=True))
    build = lambda seed: cropi(score=lambda view: [scores[x] for x in view.ids_P], ratio=0.5, seed=seed)  # noqa: E731
    assert chosen(build, [], list(scores), Budget(8, floor=0)) == {"a", "d", "f"}  # one of them in a step
    assert chosen(build, [], list(scores), Budget(24, floor=0)) == {"a", "d", "f"}
    last = lambda seed: cropi(score=lambda view: [scores[x] for x in view.ids_P], ratio=1.0, seed=seed)  # noqa: E731
    assert chosen(last, [], list(scores), Budget(48, floor=0)) == set(scores)  # the budget is spent


def test_without_scores_it_is_p_times_1_minus_p():
    seen = [(["solved"] * 8 + ["half"] * 8 + ["third"] * 6, [1.0] * 8 + [0.0, 1.0] * 4 + [0, 0, 1] * 2)]
    build = lambda seed: cropi(ratio=0.34, seed=seed)  # noqa: E731
    assert chosen(build, seen, ["solved", "half", "third"], Budget(8, floor=0)) == {"half"}


@pytest.mark.parametrize("given", [[0.5], 1.0, np.zeros((2, 0)), np.zeros((2, 1, 1)), ["a", "b"]])
def test_what_is_no_score_for_each_prompt_is_refused(given):
    with pytest.raises(InputError, match="score"):
        cropi(score=lambda view: given).allocate(["a", "b"], Budget(8, floor=0))
