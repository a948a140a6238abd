"""The class that the callback gives to a trainer: what stays as it was, and what of other code it sees."""

import copy
import inspect
from pathlib import Path

import numpy as np
import pytest
from conftest import attach, rows, same_weights, trained, weights
from test_surface import rebuilt
from transformers import TrainerCallback
from trl import GRPOTrainer

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback


class Mine(GRPOTrainer):
    """A trainer of a user."""

    _score = "mine"  # a name that TRL does not have

    def train(self, *given, **named):
        self.trained = [*getattr(self, "trained", []), self.num_generations]
        return super().train(*given, **named)


@pytest.mark.parametrize("cls", [GRPOTrainer, Mine])
def test_a_trainer_stays_what_it_was_for_all_who_ask(build, cls):
    trainer = rebuilt(build(max_steps=1), cls)
    had = set(vars(trainer))
    callback = AdaptiveGRPOCallback(trainer)
    assert type(trainer) is not cls
    assert isinstance(trainer, cls)
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        assert getattr(type(trainer), name) == getattr(cls, name)
    assert inspect.signature(type(trainer)) == inspect.signature(cls)
    assert set(vars(trainer)) == had  # nothing is set on it
    assert getattr(trainer, "_score", "mine") == "mine"
    mixed = type(trainer)
    AdaptiveGRPOCallback(trainer)
    assert type(trainer) is mixed
    trainer.add_callback(callback)
    trainer.train()
    assert callback.policy.estimator.step == 1
    assert getattr(trainer, "trained", [4]) == [4]
    assert set(vars(copy.copy(trainer))) == set(vars(trainer))
    card = Path(trainer.args.output_dir) / "README.md"
    cards = []
    for each in (trainer, rebuilt(build(max_steps=1), cls)):
        each.create_model_card()
        cards.append(card.read_text())
    assert cards[0] == cards[1]


def test_a_trainer_whose_callback_was_removed_trains_as_trl(build):
    plain = build(max_steps=2)
    plain.train()
    trainer = build(max_steps=2)
    callback = attach(trainer)
    trainer.remove_callback(callback)
    trainer.train()
    assert same_weights(weights(plain), weights(trainer))
    assert callback.policy.estimator.step == 0
    trainer.add_callback(callback)
    trainer.train()
    assert callback.policy.estimator.step == 2


def halved(trainer):
    """Other code that changes the rewards."""
    own = trainer._calculate_rewards
    trainer._calculate_rewards = lambda *given: own(*given) / 2


class Halved(TrainerCallback):
    def __init__(self, trainer):
        self.trainer = trainer

    def on_train_begin(self, *_, **__):
        halved(self.trainer)


@pytest.mark.parametrize("policy", [ba.uniform, ba.adaptive, lambda: ba.adaptive(rounds=3)])
@pytest.mark.parametrize("when", ["before", "after", "during"])
def test_rewards_that_other_code_changes_are_seen_whenever_it_was_set(build, ledger, policy, when):
    trainer = build(max_steps=2)
    if when == "before":
        halved(trainer)
    if when == "during":
        trainer.add_callback(Halved(trainer))
    attach(trainer, policy(), ledger=ledger)
    if when == "after":
        halved(trainer)
    trainer.train()
    assert set(ba.Ledger.read(ledger).frame.reward) == {0.0, 0.5}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_function_around_a_step_gets_the_rows_of_the_policy_whenever_it_was_set(build, ledger, when):
    trainer, seen = build(rows(40), max_steps=3), []

    def around(trainer):
        own = trainer._generate_and_score_completions

        def generate(inputs):
            if trainer.model.training:
                seen.append([row["prompt_id"] for row in inputs])
            return own(inputs)

        trainer._generate_and_score_completions = generate

    if when == "before":
        around(trainer)
    attach(trainer, ba.thompson(), ledger=ledger)
    if when == "after":
        around(trainer)
    trainer.train()
    trainer.evaluate(rows(4))  # passes through both once
    assert seen == [rows.tolist() for _, rows in ba.Ledger.read(ledger).frame.groupby("step").prompt]
    assert len(seen) == 3


def test_a_policy_that_was_attached_anew_decides_once_a_step(build):
    """Functions that wrapped the methods of the first are below the second."""
    trainer = build(max_steps=1)
    first = attach(trainer)
    own = trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda inputs: own(inputs)
    trainer.train()
    trainer.remove_callback(first)
    second = trained(trainer, ba.thompson())
    assert (first.policy.estimator.step, second.policy.estimator.step) == (1, 1)
    assert np.isfinite(trainer.state.log_history[-1]["train_loss"])
