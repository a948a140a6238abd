"""Policies that decide in rounds. TRL's real trainer generates and scores every round."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import AroundSteps, attach, logged

import budgetalloc as ba
from budgetalloc.trl.processes import merge_rounds, select_rows

STAGED = {
    "ar3po": lambda: ba.methods.ar3po(group=4, seed=1),
    "reinforce_ada": lambda: ba.methods.reinforce_ada(group=4, more=4, stages=3, seed=1),
    "dapo": lambda: ba.methods.dapo(group=4, generate=3, seed=1),
    "sequential": lambda: ba.policies.sequential(ba.adaptive(seed=1)),
    "adaptive": lambda: ba.adaptive(rounds=3, seed=1),
}


def rows_of(batch):
    """Each row of a batch: its prompt and its completion without padding."""
    columns = (batch[f"{part}_{x}"] for part in ("prompt", "completion") for x in ("ids", "mask"))
    return [(*p[m.bool()].tolist(), *c[n.bool()].tolist()) for p, m, c, n in zip(*columns, strict=True)]


def run(build, policy, ledger=None, **config):
    """Trains and returns the trainer, the batches it trained on, and what each call of TRL's generation returned."""
    trainer = build(**config)
    rounds, batches = [[]], []
    own = trainer._generate_and_score_completions

    def one_round(inputs):
        output = own(inputs)
        rounds[-1].append(([row["prompt"] for row in inputs], dict(output)))
        return output

    def whole(inputs, generate):
        batches.append(generate(inputs))
        rounds.append([])
        return batches[-1]

    trainer._generate_and_score_completions = one_round
    attach(trainer, policy, ledger=ledger)
    trainer.add_callback(AroundSteps(trainer, whole))
    trainer.train()
    return trainer, batches, rounds[:-1]


@pytest.mark.parametrize("name", STAGED)
def test_rounds_become_one_batch(build, ledger, name):
    trainer, batches, rounds = run(build, STAGED[name](), ledger, max_steps=3)
    log = ba.Ledger.read(ledger)
    assert np.isfinite(logged(trainer, "loss")).all()
    assert max(len(each) for each in rounds) > 1
    assert trainer.num_generations == 4  # restored after each round
    for step, (batch, each) in enumerate(zip(batches, rounds, strict=True)):
        assert (log.frame.step.to_numpy() == step).sum() == sum(
            len(prompts) for prompts, _ in each
        )  # everything is logged
        assert len(batch["advantages"]) == 16  # TRL trains on as many rows as GRPOConfig says
        assert batch["num_items_in_batch"] == batch["completion_mask"].sum()
        assert set(rows_of(batch)) <= {row for _, output in each for row in rows_of(output)}  # none is cut or mixed up


@pytest.mark.parametrize("name", ["reinforce_ada", "dapo"])
def test_advantages_are_those_of_all_that_was_generated(build, ledger, name):
    _, batches, rounds = run(build, STAGED[name](), ledger, max_steps=2)
    log = ba.Ledger.read(ledger)
    for step, (batch, each) in enumerate(zip(batches, rounds, strict=True)):
        prompts = [prompt for own, _ in each for prompt in own]
        every = ba.group_advantages(
            log.frame.reward.to_numpy()[log.frame.step.to_numpy() == step], prompts, "group", "group"
        )
        kept = Counter(round(float(x), 3) for x in batch["advantages"])
        assert kept <= Counter(round(float(x), 3) for x in every)


@pytest.mark.parametrize("name", ["pods", "shuffle_r1", "roc"])
def test_generating_more_trains_on_what_the_rule_keeps(build, ledger, name):
    """The rule receives the rewards of each reward function for all rollouts, in the ledger's order."""

    def length(completions, **_):
        return [len(text) / 100 for text in completions]

    def reward(completions, **_):
        return [float(len(text) % 2) for text in completions]

    seen = []
    policy = ba.methods.roc(penalty=1, seed=1) if name == "roc" else getattr(ba.methods, name)(seed=1)

    def keep(ids_R, rewards_R, rows, scores_RF, success_R):
        kept_R = policy.keep(ids_R, rewards_R, rows, scores_RF, success_R)
        seen.append((np.array(rewards_R), np.array(scores_RF), np.array(kept_R)))
        return kept_R

    config = {"max_steps": 2, "reward": [reward, length], "reward_weights": [1.0, 0.0]}
    _, batches, _ = run(build, replace(policy, keep=keep), ledger, **config)
    log = ba.Ledger.read(ledger)
    assert len(seen) == 2
    for step, (batch, (rewards_R, scores_RF, kept_R)) in enumerate(zip(batches, seen, strict=True)):
        np.testing.assert_allclose(rewards_R, log.frame.reward.to_numpy()[log.frame.step.to_numpy() == step])
        np.testing.assert_allclose(rewards_R, scores_RF[:, 0])
        assert scores_RF.shape == (16 * policy.needs.generate, 2)
        assert len(np.unique(scores_RF[:, 1])) > 1
        assert len(kept_R) == len(batch["advantages"]) == 16
        ids_R = [x for x, at in zip(log.frame.prompt.tolist(), log.frame.step.to_numpy(), strict=True) if at == step]
        every_R = ba.group_advantages(rewards_R, ids_R, "group", "group")
        np.testing.assert_allclose(batch["advantages"].numpy(), every_R[kept_R], atol=1e-5)


def test_old_and_reference_log_probabilities_are_merged_with_their_rows(build):
    config = {"beta": 0.1, "steps_per_generation": 2, "per_device_train_batch_size": 8, "max_steps": 4}
    _, batches, rounds = run(build, STAGED["reinforce_ada"](), **config)
    for batch, each in zip(batches, rounds, strict=True):
        for key in ("old_per_token_logps", "ref_per_token_logps"):
            assert batch[key].shape == batch["completion_ids"].shape
            known = {tuple(row.tolist()) for _, output in each for row in output[key]}
            width = max(len(row) for row in known)
            known = {row + (0.0,) * (width - len(row)) for row in known}
            assert {tuple(row.tolist()) + (0.0,) * (width - len(row)) for row in batch[key]} <= known


def test_a_policy_that_generates_less_than_a_batch_is_named(build):
    def half(view):
        yield np.array([4, 4] + [0] * (len(view.belief_P) - 2))

    with pytest.raises(ba.InputError, match="half requested 8 rollouts in one step, and the trainer trains on 16"):
        run(build, ba.Policy("half", half, ba.BetaEstimator()))


def test_merging_pads_and_selecting_counts_tokens_again():
    def output(rows, prompt, completion, value):
        return {
            "prompt_ids": torch.full((rows, prompt), value),
            "prompt_mask": torch.ones(rows, prompt, dtype=torch.long),
            "completion_ids": torch.full((rows, completion), value),
            "completion_mask": torch.ones(rows, completion, dtype=torch.long),
            "tool_mask": torch.ones(rows, completion, dtype=torch.long),
            "advantages": torch.arange(rows, dtype=torch.float32) + value,
            "num_items_in_batch": torch.tensor(rows * completion),
        }

    merged = merge_rounds([output(2, 3, 1, 5), output(1, 1, 4, 8)], pad_token_id=11)
    assert merged["prompt_ids"].tolist() == [[5, 5, 5], [5, 5, 5], [11, 11, 8]]
    assert merged["prompt_mask"].tolist() == [[1, 1, 1], [1, 1, 1], [0, 0, 1]]
    assert merged["completion_ids"].tolist() == [[5, 11, 11, 11], [5, 11, 11, 11], [8, 8, 8, 8]]
    assert merged["completion_mask"].tolist() == [[1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]
    assert merged["advantages"].tolist() == [5, 6, 8]
    assert merged["num_items_in_batch"] == 6
    kept = select_rows(merged, np.array([0, 2]))
    assert kept["advantages"].tolist() == [5, 8]
    assert kept["num_items_in_batch"] == 5


def test_entries_that_are_not_known_to_have_a_row_a_rollout_are_neither_merged_nor_selected():
    """A row of pixel values is a patch of an image. What a subclass of the trainer adds may be anything."""
    outputs = [{"completion_mask": torch.ones(1, 2), "pixel_values": torch.ones(1, 3)}] * 2
    for merge in (lambda: merge_rounds(outputs, 0), lambda: select_rows(outputs[0], np.array([0]))):
        with pytest.raises(ba.UnsupportedError, match="cannot merge 'pixel_values'"):
            merge()
