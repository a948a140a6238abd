"""The bank holds distinct verified answers, the added loss is as said, and with alpha 0 the run is the plain one."""

from functools import partial
from math import log
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl")
import rehearsal  # of benchmarks/learning
import torch
from train import Run, train

import budgetalloc as ba
from budgetalloc.cli.testbed.heldout import probability
from budgetalloc.cli.testbed.skills import answer, held_out, is_trap, pool
from budgetalloc.trl import AdaptiveGRPOCallback

SMALL: dict[str, Any] = {"steps": 4, "prompts": 8, "generations": 4, "held_out_rows": held_out(2), "progress": False}


def rehearsing_run(add: Any = None) -> Run:
    def attach(trainer: Any) -> None:
        if add is not None:
            add(trainer)
        trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.adaptive(seed=1), fallback=False))

    return train(attach, seed=1, rows=pool(2), eval_every=2, **SMALL)


@pytest.fixture(scope="module")
def plain() -> Run:
    return rehearsing_run()


@pytest.fixture(scope="module")
def rehearsing() -> tuple[Run, list[float]]:
    """A run, and the value of what is added to the loss in each step."""
    values: list[float] = []

    def add(trainer: Any) -> None:
        rehearsal.add(trainer, seed=1)

        def noted(model: Any, answers: Any, own: Any = trainer.rehearsal_loss) -> Any:
            value = own(model, answers)
            values.append(float(value.detach()))
            return value

        trainer.rehearsal_loss = noted

    return rehearsing_run(add), values


class Scored:
    """In place of TRL's trainer: it returns the rewards that it was given."""

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids: Any) -> Any:
        return torch.tensor([[row["reward"]] for row in inputs])


class Bank(rehearsal.Rehearsing, Scored):
    def __init__(self, placebo: bool = False) -> None:
        self.model, self.state = SimpleNamespace(training=True), SimpleNamespace(global_step=0)
        self.alpha, self.placebo, self.rehearsal_seed = 0.1, placebo, 0
        self.bank, self.prompts, self.successes = {}, {}, []

    def step(self, *rows: tuple[int, list[int], float]) -> None:
        inputs = [{"prompt_id": i, "prompt": f"p{i}", "reward": reward} for i, _, reward in rows]
        self._calculate_rewards(inputs, None, None, [tokens for _, tokens, _ in rows])


def test_the_bank_holds_distinct_answers_with_reward_1() -> None:
    bank = Bank()
    bank.step((7, [1, 2], 1.0), (7, [1, 2], 1.0), (7, [3], 0.9), (8, [4], 0.0), (9, [5], 1.0))
    assert {i: list(answers) for i, answers in bank.bank.items()} == {7: [(1, 2)], 9: [(5,)]}
    bank.step(*((7, [10 + k], 1.0) for k in range(20)), (8, [6], 0.0))
    assert list(bank.bank[7]) == [(1, 2), *((10 + k,) for k in range(15))]
    assert {each.prompt for each in bank.rehearsed()} == {"p7"}  # neither 8 without answers, nor 9 of another step
    bank.step((9, [5], 0.0), (7, [1], 0.0), (8, [1], 0.0))
    assert {each.prompt for each in bank.rehearsed()} == {"p7", "p9"}  # also without a success in this step
    assert sum(each.weight for each in bank.rehearsed() if each.prompt == "p9") == pytest.approx(1 / 2)
    assert sum(each.weight for each in bank.rehearsed()) == pytest.approx(1)


def test_the_placebo_has_the_same_weights_on_successes_of_the_step() -> None:
    rows = [(7, [1], 1.0), (7, [2], 1.0), (8, [3], 0.0), (9, [4], 1.0)]
    bank, placebo = Bank(), Bank(placebo=True)
    for each in (bank, placebo):
        each.step((8, [30], 1.0))
        each.step(*rows)
    assert [each.weight for each in placebo.rehearsed()] == [each.weight for each in bank.rehearsed()]
    assert ("p8", (30,)) in {each[:2] for each in bank.rehearsed()}
    drawn = set()
    for step in range(20):
        placebo.state.global_step = step
        drawn |= {each[:2] for each in placebo.rehearsed()}
    assert drawn == {("p7", (1,)), ("p7", (2,)), ("p9", (4,))}
    placebo.step((8, [3], 0.0))
    assert placebo.rehearsed() == []


def test_a_run_banks_right_answers_only(rehearsing: tuple[Run, list[float]]) -> None:
    trainer = rehearsing[0].trainer
    taught = {i: answers for i, answers in trainer.bank.items() if not is_trap(i)}
    texts = {row["prompt_id"]: row["prompt"] for row in pool(2, seed=0)}
    assert len(taught) > 5
    for i, answers in taught.items():
        (only,) = answers  # the test-bed's prompts have one right answer
        assert trainer.processing_class.decode(list(only), skip_special_tokens=True) == answer(texts[i])


def test_the_value_added_to_the_loss(rehearsing: tuple[Run, list[float]], plain: Run) -> None:
    run, values = rehearsing
    trainer, tokenizer = run.trainer, run.trainer.processing_class
    texts, said = ["a1234=", "b4071="], ["1234", "71"]
    tokens = [(*tokenizer(text)["input_ids"], tokenizer.eos_token_id) for text in said]
    answers = [rehearsal.Answer(texts[k], tokens[k], (0.75, 0.25)[k]) for k in (0, 1)]
    right_P = probability(trainer.model, tokenizer, texts, said)
    by_hand = -0.75 * log(right_P[0]) / 5 - 0.25 * log(right_P[1]) / 3
    assert float(trainer.rehearsal_loss(trainer.model, answers).detach()) == pytest.approx(by_hand, rel=1e-4)
    # the first steps of both runs generate the same
    assert run.losses[0] - plain.losses[0] == pytest.approx(0.1 * values[0], abs=2e-4)
    assert values[0] > 0


def test_at_alpha_0_the_run_is_the_plain_one_to_the_bit(rehearsing: tuple[Run, list[float]], plain: Run) -> None:
    for placebo in (False, True):
        same = rehearsing_run(partial(rehearsal.add, seed=1, alpha=0.0, placebo=placebo))
        assert same.losses == plain.losses != rehearsing[0].losses
        assert same.trainer.bank
        for a, b in zip(same.trainer.model.parameters(), plain.trainer.model.parameters(), strict=True):
            assert torch.equal(a, b)
