"""The learned reward model: its size, what it prefers, and that it is the same each time."""

import numpy as np
import operations  # of benchmarks/learning
import pytest
import reward_model

pytestmark = pytest.mark.slow
RUNS = list(operations.OPERATIONS.values())


@pytest.fixture(scope="module")
def scores_PK():
    """Of what each operation makes of the held-out prompts."""
    pytest.importorskip("torch")
    rows = operations.held_out(10)
    return np.array([reward_model.scored([row["prompt"]] * 12, [r(row["prompt"][1:-1]) for r in RUNS]) for row in rows])


@pytest.fixture(scope="module")
def right_P():
    rows = operations.held_out(10)
    return [[r(row["prompt"][1:-1]) for r in RUNS].index(operations.answer(row["prompt"])) for row in rows]


def test_it_has_the_parameters_that_are_said(scores_PK):
    assert sum(part.numel() for part in reward_model.trained().parameters()) == 2_369


def test_it_mostly_prefers_the_right_answer_but_not_always(scores_PK, right_P):
    first = (scores_PK.argmax(axis=1) == right_P).mean()
    assert 0.6 < first < 0.95  # one of twelve without any training
    assert scores_PK.min() < 0 < scores_PK.max()


def test_its_size_differs_from_prompt_to_prompt(scores_PK):
    spread_P = scores_PK.std(axis=1)
    assert spread_P.max() > 2 * spread_P.min()


def test_it_is_trained_the_same_each_time_and_leaves_the_generator_alone(scores_PK):
    import torch

    before = torch.random.get_rng_state()
    again = reward_model.trained.__wrapped__(pairs=500, passes=2)
    assert torch.equal(before, torch.random.get_rng_state())
    for one, two in zip(again.parameters(), reward_model.trained.__wrapped__(500, 2).parameters(), strict=True):
        assert torch.equal(one, two)


def test_any_text_has_a_score():
    scores = reward_model.scored(["a1234="] * 3, ["", "12345678", "x="])
    assert np.isfinite(scores).all()
    assert reward_model.grading().functions(0)[0](completions=["1"], prompts=["a1234="]) == pytest.approx(
        reward_model.scored(["a1234="], ["1"])
    )
