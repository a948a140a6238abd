"""Which of TRL's trainers are supported, and why the others are not."""

import inspect

import numpy as np
import pytest
import torch
import trl
from conftest import logged
from test_surface import assert_doubted, assert_in_place, even_sum, rebuilt, train
from trl import GRPOTrainer
from trl.experimental.a2po import A2POTrainer
from trl.experimental.async_grpo import AsyncGRPOTrainer
from trl.experimental.gmpo import GMPOConfig, GMPOTrainer
from trl.experimental.online_dpo import OnlineDPOTrainer
from trl.experimental.sdpo import SDPOTrainer

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback
from budgetalloc.trl.compatibility import SEAM


def test_gmpo_is_supported(build):
    """TRL's experimental GMPOTrainer has its own loss and GRPOTrainer's methods of the seam."""
    plain = build(reward=even_sum, max_steps=2)
    same = ("per_device_train_batch_size", "num_generations", "max_completion_length", "learning_rate", "max_steps")
    config = GMPOConfig(
        plain.args.output_dir,
        **{name: getattr(plain.args, name) for name in same},
        **{"num_iterations": 2, "logging_steps": 1, "report_to": "none", "use_cpu": True, "bf16": False, "seed": 7},
    )
    trainer = rebuilt(plain, GMPOTrainer, args=config)
    callback, made = train(trainer)
    assert_in_place(trainer, callback, made)
    assert np.isfinite(logged(trainer, "loss")).all()
    assert "_compute_loss" in vars(GMPOTrainer)
    assert not set(SEAM) & set(vars(GMPOTrainer))  # if a later TRL changes this, look again


def test_a_users_subclass_is_supported(build):
    """Its overridden methods are called, because the callback wraps those of the instance."""

    class Doubting(GRPOTrainer):
        def _calculate_rewards(self, *args):
            return 1 - super()._calculate_rewards(*args)

        def _generate_and_score_completions(self, inputs):
            return {**super()._generate_and_score_completions(inputs), "seen": torch.arange(len(inputs))}

    trainer = rebuilt(build(reward=even_sum, max_steps=2), Doubting)
    callback, made = train(trainer)
    assert_in_place(trainer, callback, made)
    assert_doubted(trainer, made)


@pytest.mark.parametrize(
    ("cls", "why"),
    [
        (trl.RLOOTrainer, r"KL.*Use GRPOTrainer with AdaptiveGRPOCallback\(trainer, baseline='loo', scale='none'\)"),
        (AsyncGRPOTrainer, "worker.*outside the trainer.*use GRPOTrainer"),
        (SDPOTrainer, "position.*Use GRPOTrainer"),
        (OnlineDPOTrainer, "pairs.*Use GRPOTrainer"),
        (A2POTrainer, "one completion per prompt.*Use GRPOTrainer"),
        (trl.SFTTrainer, "supports trl.GRPOTrainer and its subclasses"),
        (trl.DPOTrainer, "supports trl.GRPOTrainer and its subclasses"),
    ],
)
def test_other_trainers_are_refused_by_name(cls, why):
    """The class decides, so an object without `__init__` is enough."""
    for name in (cls, type("Mine", (cls,), {})):
        with pytest.raises(ba.UnsupportedError, match=f"trainer is a {name.__name__}.*{why}"):
            AdaptiveGRPOCallback(object.__new__(name))


@pytest.mark.parametrize("name", ["UNSLOTH_GRPO_ZERO_VARIANCE_EXCLUDE", "UNSLOTH_GRPO_LOSS_AGGREGATION"])
def test_options_of_unsloth_that_assume_equal_groups_are_refused(build, monkeypatch, name):
    """Unsloth itself needs a GPU; its class is known by its name, and its options are environment variables."""
    monkeypatch.setenv(name, "prompt" if name.endswith("AGGREGATION") else "1")
    cls = type("UnslothGRPOTrainer", (GRPOTrainer,), {})
    trainer = rebuilt(build(reward=even_sum, max_steps=1), cls)
    with pytest.raises(ba.UnsupportedError, match=f"{name}=.*Unset it"):
        AdaptiveGRPOCallback(trainer)
    AdaptiveGRPOCallback(trainer, ba.uniform())  # its groups are those that Unsloth assumes
    monkeypatch.delenv(name)
    AdaptiveGRPOCallback(trainer)


def test_unsloth_has_to_be_imported_first():
    with pytest.raises(ba.UnsupportedError, match="Import unsloth before budgetalloc"):
        AdaptiveGRPOCallback(type("UnslothGRPOTrainer", (), {})())


def test_the_reasons_for_refusing_still_hold():
    """If one of these fails, TRL has changed: check whether the trainer can be supported."""
    rloo = inspect.getsource(trl.RLOOTrainer._generate_and_score_completions)
    assert "rewards = rewards - self.beta * kl" in rloo
    assert '"ref_per_token_logps"' not in rloo  # the KL of a rollout leaves this method only in its advantage
    assert "_generate_and_score_completions" not in vars(AsyncGRPOTrainer)
    assert "group_start = (i // num_generations) * num_generations" in inspect.getsource(inspect.getmodule(SDPOTrainer))
    assert "self.num_generations = 2" in inspect.getsource(OnlineDPOTrainer.__init__)
    assert "num_return_sequences=1" in inspect.getsource(A2POTrainer.__init__)
