"""The trainer class: GRPOTrainer with the callback, also for subclasses of it."""

import inspect

import pytest
import torch
from conftest import SAVES, logged, same_weights, trained, weights
from test_surface import assert_doubted, assert_in_place, even_sum, rebuilt, train, uneven
from trl import GRPOTrainer

import budgetalloc as ba
from budgetalloc.training.options import Options
from budgetalloc.trl import AdaptiveGRPOCallback, AdaptiveGRPOTrainer
from budgetalloc.trl.callback import OTHERS


def test_it_is_the_trainer_with_the_callback(build, ledger):
    attached = trained(build(**SAVES), ba.adaptive(), cap=3, metrics="main").trainer
    own = {"policy": "adaptive", "cap": 3, "ledger": ledger}
    trainer = rebuilt(build(**SAVES), AdaptiveGRPOTrainer, **own)
    trainer.train()
    assert same_weights(weights(attached), weights(trainer))
    assert logged(trainer, "budgetalloc/prompts") == logged(attached, "budgetalloc/prompts")
    assert len(ba.Ledger.read(ledger).frame) == 4 * 16
    whole = weights(trainer)
    again = rebuilt(build(**SAVES), AdaptiveGRPOTrainer, **own)
    again.train(resume_from_checkpoint=f"{again.args.output_dir}/checkpoint-2")
    assert same_weights(whole, weights(again))
    assert len(ba.Ledger.read(ledger).frame) == 4 * 16


class Doubting(AdaptiveGRPOTrainer):
    """Its overrides come before those of its base."""

    def _calculate_rewards(self, *given):
        return 1 - super()._calculate_rewards(*given)

    def _generate_and_score_completions(self, inputs):
        return {**super()._generate_and_score_completions(inputs), "seen": torch.arange(len(inputs))}


def test_a_subclass_is_seen_as_a_subclass_of_trls_trainer(build):
    """Its rewards are learned from, and it gets the rows of the policy."""
    trainer = rebuilt(build(reward=even_sum, max_steps=2), Doubting, policy="uniform")
    trainer.remove_callback(AdaptiveGRPOCallback)
    callback, made = train(trainer, uneven())
    assert_in_place(trainer, callback, made)
    assert_doubted(trainer, made)


def test_rewards_that_a_subclass_changes_are_learned_from(build, ledger):
    never = lambda completions, **_: [0.0] * len(completions)  # noqa: E731
    rebuilt(build(reward=never, max_steps=2), Doubting, ledger=ledger).train()
    assert set(ba.Ledger.read(ledger).frame.reward) == {1.0}


class Resampling(AdaptiveGRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        if output["advantages"].view(-1, self.num_generations).any():
            return output
        return super()._generate_and_score_completions(inputs)


def test_a_subclass_that_reads_equal_groups_is_refused(build):
    with pytest.raises(ba.UnsupportedError, match=r"Resampling\._generate.* reads advantages and num_generations"):
        rebuilt(build(), Resampling)
    rebuilt(build(max_steps=1), Resampling, policy="uniform").train()


def test_arguments(build):
    """They belong to one of both, and misspelt ones are answered with the nearest."""
    of_trl = inspect.signature(GRPOTrainer.__init__).parameters
    assert not of_trl.keys() & {*Options.names(), *OTHERS}
    for wrong, meant in (("flor", "floor"), ("polciy", "policy"), ("reward_func", "reward_funcs")):
        with pytest.raises(ba.InputError, match=f"{wrong}= is unknown, did you mean {meant}"):
            rebuilt(build(), AdaptiveGRPOTrainer, **{wrong: 2})
    with pytest.raises(ba.InputError, match="floor=-1"):
        rebuilt(build(), AdaptiveGRPOTrainer, floor=-1)
    with pytest.raises(ba.InputError, match="has an AdaptiveGRPOCallback already"):
        AdaptiveGRPOCallback(rebuilt(build(), AdaptiveGRPOTrainer))
