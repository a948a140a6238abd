"""The learned reward model: its size, what it prefers, and that it is the same each time."""

import numpy as np
import operations  # of benchmarks/learning
import pytest
import reward_model


def test_it_has_the_parameters_that_are_said() -> None:
    assert sum(part.size for part in reward_model._weights().values()) == 2_369


def test_it_mostly_prefers_the_right_answer_but_not_always() -> None:
    every = [f"{n:04d}" for n in range(10_000)]
    first = []
    for row in operations.held_out(1):
        scores_K = np.array(reward_model.scored([row["prompt"]] * len(every), every))
        first.append(scores_K.argmax() == int(operations.answer(row["prompt"])))
    assert 0.4 < np.mean(first) < 0.95


def test_its_size_differs_from_prompt_to_prompt() -> None:
    texts = ["0000", "4711", "9876", "1234"]
    spread = [np.std(reward_model.scored([row["prompt"]] * 4, texts)) for row in operations.held_out(2)]
    assert max(spread) > 2 * min(spread)


def test_training_again_gives_a_model_that_prefers_right_answers() -> None:
    torch = pytest.importorskip("torch")
    before = torch.random.get_rng_state()
    again, twice = (reward_model.trained(count=2_000, passes=4) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    for name, part in reward_model._weights().items():
        assert again[name].shape == part.shape
        assert (again[name] == twice[name]).all()


def test_one_label_of_ten_is_wrong() -> None:
    better, worse = reward_model.pairs(500, np.random.default_rng(1))
    model = reward_model._weights()
    score = [np.tanh(x @ model["first"].T + model["first_bias"]) @ model["second"] for x in (better, worse)]
    assert np.mean(score[0] > score[1]) == pytest.approx(1 - reward_model.WRONG_LABELS, abs=0.05)


def test_any_text_has_a_score() -> None:
    scores = reward_model.scored(["a1234="] * 3, ["", "12345678", "x="])
    assert np.isfinite(scores).all()
    assert reward_model.grading().functions(0)[0](completions=["1"], prompts=["a1234="]) == pytest.approx(
        reward_model.scored(["a1234="], ["1"])
    )
