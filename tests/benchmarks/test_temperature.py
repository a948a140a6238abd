"""Rows sample and train at temperatures of their own, and at 1 the run is the plain one."""

import doctest
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")
import temperature  # of benchmarks/learning
import torch
from train import Run, train

import budgetalloc as ba
from budgetalloc.cli.testbed.skills import held_out, pool
from budgetalloc.trl import AdaptiveGRPOCallback

SMALL: dict[str, Any] = {"steps": 4, "prompts": 8, "generations": 4, "held_out_rows": held_out(2), "progress": False}
COLD, HOT = 0.5, 2.0


def tempered_run(add: Any = None, **more: Any) -> Run:
    def attach(trainer: Any) -> None:
        if add is not None:
            add(trainer)
        trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.adaptive(seed=1), fallback=False))

    return train(attach, seed=1, rows=pool(4), eval_every=2, **SMALL | more)


@pytest.fixture(scope="module")
def plain() -> Run:
    return tempered_run()


@pytest.fixture(scope="module")
def tempered() -> Run:
    return tempered_run(partial(temperature.add, seed=1))


def test_the_formula() -> None:
    assert doctest.testmod(temperature).failed == 0
    assert temperature.temperatures([0, 0.5, 1], 0.5, 1.5) == pytest.approx([1.5, 1, 1 / 1.5])


def test_at_tau_1_the_run_is_the_plain_one_to_the_bit_and_otherwise_not(plain: Run, tempered: Run) -> None:
    same = tempered_run(partial(temperature.add, seed=1, tau=1.0))
    assert same.losses == plain.losses != tempered.losses
    assert [point.expected for point in same.curve] == [point.expected for point in plain.curve]
    for a, b in zip(same.trainer.model.parameters(), plain.trainer.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_sampled_tokens_and_logps_follow_the_temperature_of_the_row(tempered: Run) -> None:
    trainer, rows = tempered.trainer, 8000
    text = next(row["prompt"] for row in pool(4) if row["skill"] == "m")
    ids = trainer.processing_class([text] * rows, return_tensors="pt")["input_ids"]
    at_R = torch.tensor([COLD, HOT]).repeat(rows // 2)
    trainer.model.eval()
    with torch.no_grad(), trainer.at(at_R):
        made = trainer.model.generate(input_ids=ids, generation_config=trainer.generation_config)
        width = made.size(1) - ids.size(1)
        logps_RT = trainer._get_per_token_logps_and_entropies(trainer.model, made, torch.ones_like(made), width)[0]
    with torch.no_grad():
        logits_RTV = trainer.model(input_ids=made).logits[:, -width - 1 : -1]
    expected_RTV = (logits_RTV / at_R[:, None, None]).log_softmax(-1)
    tokens_RT = made[:, -width:]
    torch.testing.assert_close(logps_RT, expected_RTV.gather(-1, tokens_RT[..., None])[..., 0], rtol=1e-4, atol=1e-4)
    spread = (expected_RTV[0, 0].exp() - expected_RTV[1, 0].exp()).abs().max()
    assert spread > 0.1  # or the next lines would say nothing
    for first in (0, 1):  # the cold rows, and the hot ones
        for place in (0, 2):  # the third token also depends on what was sampled before
            seen = torch.bincount(tokens_RT[first::2, place], minlength=logits_RTV.size(-1)) / (rows // 2)
            mean = expected_RTV[first::2, place].exp().mean(dim=0)
            assert (seen - mean).abs().max() < 0.03


def test_a_row_keeps_its_temperature_from_sampling_to_the_loss() -> None:
    seen: list[tuple[list[int], list[float]]] = []

    def add(trainer: Any) -> None:
        temperature.add(trainer, seed=1)
        trainer.temperatures_of = lambda ids_R: np.array([HOT if i % 2 else COLD for i in ids_R])
        loss = trainer._compute_loss

        def compute_loss(model: Any, inputs: Any) -> Any:
            texts = trainer.processing_class.batch_decode(inputs["prompt_ids"], skip_special_tokens=True)
            seen.append(([int(text[-2]) for text in texts], inputs["temperatures"].tolist()))
            return loss(model, inputs)

        trainer._compute_loss = compute_loss

    run = tempered_run(add, steps=2)
    assert len(seen) == 2
    for digits, values in seen:
        assert values == [HOT if digit % 2 else COLD for digit in digits]
        assert set(values) == {HOT, COLD}
    assert run.trainer.rows is None  # success is measured at temperature 1


def test_the_placebo_shuffles_the_same_temperatures(tempered: Run) -> None:
    trainer, ids = tempered.trainer, [row["prompt_id"] for row in pool(4)[:20] for _ in range(2)]
    true = trainer.temperatures_of(ids)
    assert np.array_equal(true[::2], true[1::2])  # one draw for each prompt
    trainer.shuffled = True
    shuffled = trainer.temperatures_of(ids)
    trainer.shuffled = False
    assert sorted(shuffled) == sorted(true)
    assert not np.array_equal(shuffled, true)
