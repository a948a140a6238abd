"""The noise scale, in TRL's real trainer."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from conftest import attach, logged
from transformers import TrainerCallback

import budgetalloc as ba
from budgetalloc.contrib.noise_scale import NoiseScale


class Gradients(TrainerCallback):
    """A copy of the whole gradient of every optimizer step."""

    def __init__(self):
        self.seen = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.seen.append(torch.cat([each.grad.flatten().clone() for each in model.parameters()]).double())


@pytest.mark.parametrize("clip", [0.0, 1e-3])  # 0: not clipped
@pytest.mark.parametrize("policy", [ba.uniform(), ba.adaptive()], ids=str)
@pytest.mark.parametrize("passes", [1, 2])
def test_agreement_is_the_mean_cosine_of_steps_with_rollouts_of_their_own(build, policy, passes, clip):
    trainer = build(max_steps=8, num_iterations=passes, max_grad_norm=clip, logging_steps=1)
    attach(trainer, policy)
    gradients = Gradients()
    trainer.add_callback(gradients)
    trainer.add_callback(NoiseScale(trainer, steps=4))
    trainer.train()
    apart = gradients.seen[::passes]
    cosines = [float(torch.cosine_similarity(*pair, dim=0)) for pair in pairwise(apart)]
    weights = 0.75 ** np.arange(len(cosines))[::-1]
    last = logged(trainer, "budgetalloc/gradient_agreement")[-1]
    assert last == pytest.approx(np.average(cosines, weights=weights), abs=1e-5)
    assert len(logged(trainer, "budgetalloc/gradient_agreement")) == len(cosines)


@pytest.mark.parametrize("ratio", [0.25, 4.0])
def test_the_noise_scale_of_gradients_that_are_signal_and_noise_of_known_size(build, ratio):
    """32 rollouts a step, and `ratio` times as much noise as signal in the squared norm."""
    trainer = build()
    callback, rng = NoiseScale(trainer, steps=300), torch.Generator().manual_seed(0)
    signal = [torch.randn(each.shape, generator=rng) for each in trainer.model.parameters()]
    for step in range(300):
        trainer.state.global_step = step
        for each, mean in zip(trainer.model.parameters(), signal, strict=True):
            each.grad = mean + ratio**0.5 * torch.randn(each.shape, generator=rng)
        callback.on_pre_optimizer_step(trainer.args, trainer.state, trainer.control, model=trainer.model)
    rows = trainer.args.per_device_train_batch_size * trainer.args.gradient_accumulation_steps
    found = trainer._metrics["train"]["budgetalloc/noise_scale"][-1]
    assert found == pytest.approx(ratio * rows, rel=0.05)


def test_no_noise_scale_without_signal(build):
    trainer = build()
    callback, rng = NoiseScale(trainer), torch.Generator().manual_seed(1)
    for step in range(60):
        trainer.state.global_step = step
        for each in trainer.model.parameters():
            each.grad = torch.randn(each.shape, generator=rng)
        callback.on_pre_optimizer_step(trainer.args, trainer.state, trainer.control, model=trainer.model)
    assert abs(trainer._metrics["train"]["budgetalloc/gradient_agreement"][-1]) < 0.01
    assert len(trainer._metrics["train"]["budgetalloc/noise_scale"]) <= 6  # one step in forty looks surely above 0
