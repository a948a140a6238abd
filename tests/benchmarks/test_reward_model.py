"""The learned reward model: its size, what it prefers, and that it is the same each time."""

import numpy as np
import operations  # of benchmarks/learning
import pytest
import reward_model


def test_it_mostly_prefers_the_right_answer_but_not_always() -> None:
    every = [f"{n:04d}" for n in range(10_000)]
    first = []
    for row in operations.held_out(1):
        scores_K = np.array(reward_model.scored([row["prompt"]] * len(every), every))
        first.append(scores_K.argmax() == int(operations.answer(row["prompt"])))
    assert 0.4 < np.mean(first) < 0.95


def test_training_again_gives_a_model_that_prefers_right_answers() -> None:
    torch = pytest.importorskip("torch")
    before = torch.random.get_rng_state()
    again, twice = (reward_model.trained(count=2_000, passes=4) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    for name, part in reward_model._weights().items():
        assert again[name].shape == part.shape
        assert (again[name] == twice[name]).all()
