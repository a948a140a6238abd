"""Every loss of TRL, and the settings that mask or weight its rows, with uneven counts."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import logged, same_weights, trained, weights
from test_surface import assert_in_place, even_sum, log_probabilities, train, uneven
from trl import GRPOConfig

import budgetalloc as ba
from budgetalloc import policies
from budgetalloc.trl import AdaptiveGRPOCallback

LOSSES = ["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"]
SCALES = ["group", "batch", "none"]


def test_these_are_the_losses_of_this_trl():
    told = GRPOConfig.__dataclass_fields__["loss_type"].metadata["help"]
    assert set(re.findall(r"'(\w+)'", told.split(". ")[1])) == set(LOSSES)


@pytest.mark.parametrize("at", range(len(LOSSES)), ids=LOSSES)
def test_a_loss_trains_on_rows_in_their_places(build, at):
    """Each loss with one of the scales. The loss is TRL's own; its rows and its divisor come from the callback."""
    scale = SCALES[at % len(SCALES)]
    trainer = build(reward=even_sum, loss_type=LOSSES[at], scale_rewards=scale, num_iterations=2, max_steps=4)
    before = weights(trainer)
    callback, made = train(trainer)
    assert callback.options.scale == scale
    assert_in_place(trainer, callback, made)
    for each in made:
        assert {int(x["num_items_in_batch"]) for x in each.learned} == {sum(map(len, each.completion_ids))}
    assert not same_weights(before, weights(trainer))
    assert all(torch.isfinite(weight).all() for weight in trainer.model.parameters())


@pytest.mark.parametrize("scale", SCALES)
def test_equal_groups_get_the_numbers_of_trl(build, scale):
    """With equal counts the callback's advantages lead to the same weights as TRL's."""
    alone = build(reward=even_sum, scale_rewards=scale, max_steps=2)
    alone.train()
    attached = build(reward=even_sum, scale_rewards=scale, max_steps=2)
    trained(attached, ba.uniform(), baseline="group")
    for ours, own in zip(attached.model.parameters(), alone.model.parameters(), strict=True):
        torch.testing.assert_close(ours, own, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("scale", SCALES)
def test_the_scale_of_the_trainer_holds(build, caplog, scale):
    """With "none", as in Dr. GRPO, advantages are rewards minus baselines, but for a factor that keeps GRPO's size."""
    trainer = build(reward=even_sum, scale_rewards=scale, max_steps=1)
    callback, made = train(trainer, policies.sampled(groups=2))
    assert callback.options.scale == scale
    assert ("was measured with 'group'" in caplog.text) == (scale != "group")
    batch, advantages = callback.batch, callback.options.advantages(callback.batch)
    away_R = batch.rewards_R - advantages.baseline_R
    np.testing.assert_array_equal(np.sign(advantages.values_R), np.sign(away_R))
    factor_R = advantages.values_R / away_R
    if scale == "group":  # divided by the deviation expected of each prompt
        assert len(np.unique(np.round(factor_R, 6))) > 1
    else:
        factor_R *= 1.0 if scale == "none" else np.std(batch.rewards_R, ddof=1) + 1e-4
        assert ((factor_R > 0.3) & (factor_R < 1.01)).all()
    learned = np.concatenate([x["advantages"].numpy() for x in made[0].learned])
    np.testing.assert_allclose(np.sort(learned), np.sort(advantages.values_R), rtol=1e-4, atol=1e-6)
    given = AdaptiveGRPOCallback(build(scale_rewards=scale), scale="rms")
    assert given.options.scale == "rms"


def test_advantages_of_the_default_have_the_size_of_the_trainers(build, caplog):
    callback, _ = train(build(reward=even_sum, max_steps=1), ba.adaptive())
    assert callback.options.scale == "none"
    assert "was measured with" not in caplog.text
    undivided, divided = callback.options, replace(callback.options, scale="group")
    squares = [np.mean(options.advantages(callback.batch).values_R ** 2) for options in (undivided, divided)]
    assert squares[0] == pytest.approx(squares[1])


def test_a_trainer_that_does_not_divide_keeps_the_size_of_differences(build):
    callback, _ = train(build(reward=even_sum, scale_rewards="none", max_steps=1), ba.adaptive())
    batch, own = callback.batch, callback.options.advantages(callback.batch)
    factor_R = own.values_R / (batch.rewards_R - own.baseline_R)
    assert ((factor_R > 0.3) & (factor_R < 1.01)).all()  # times 2 or more for the size of "group"
    sized = replace(callback.options, trainer_scale="group").advantages(batch)
    assert np.mean(sized.values_R**2) > 2 * np.mean(own.values_R**2)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_importance_sampling_is_of_the_row_it_weighs(build, level):
    """The old probabilities are those that the model gave the row before the first of the two iterations."""
    trainer = build(reward=even_sum, importance_sampling_level=level, num_iterations=2, max_steps=4)
    own, checked = trainer._compute_loss, []

    def compute_loss(model, batch):
        if trainer.state.global_step % 2 == 0:  # the first iteration: the model is the one that generated
            now = log_probabilities(model, batch)
            torch.testing.assert_close(batch["old_per_token_logps"] * batch["completion_mask"], now, atol=1e-4, rtol=0)
            checked.append(len(now))
        return own(model, batch)

    trainer._compute_loss = compute_loss
    callback, made = train(trainer)
    assert_in_place(trainer, callback, made)
    assert checked == [16, 16]


@pytest.mark.parametrize("policy", [uneven, ba.methods.dapo])
def test_truncated_completions_are_masked_and_still_count_in_their_group(build, policy):
    """TRL masks the tokens of a completion without an end; its reward stays in the statistics of its prompt."""
    trainer = build(reward=even_sum, mask_truncated_completions=True, max_completion_length=8, max_steps=3)
    callback, made = train(trainer, policy(seed=1))
    if policy is uneven:
        assert_in_place(trainer, callback, made)
    masked = 0
    for batch in (batch for each in made for batch in each.learned):
        for ids, mask in zip(batch["completion_ids"].tolist(), batch["completion_mask"], strict=True):
            ended = trainer.eos_token_ids[0] in ids or ids[-1] == trainer._tokenizer.pad_token_id
            assert bool(mask.any()) == ended
            masked += not ended
        assert int(batch["num_items_in_batch"]) == int(batch["completion_mask"].sum())
    assert 0 < masked < 48


@pytest.mark.parametrize(
    "config",
    [
        {"top_entropy_quantile": 0.5},
        {"entropy_coef": 0.01},
        {"delta": 1.5, "epsilon_high": 0.28, "loss_type": "grpo"},
        {"off_policy_mask_threshold": 0.1, "num_iterations": 2},
        {"beta": 0.1, "use_bias_correction_kl": True},
    ],
    ids=lambda config: next(iter(config)),
)
def test_other_settings_that_weight_a_loss(build, config):
    trainer = build(reward=even_sum, max_steps=2, **config)
    callback, made = train(trainer)
    assert_in_place(trainer, callback, made)
    assert np.isfinite(logged(trainer, "loss")).all()
