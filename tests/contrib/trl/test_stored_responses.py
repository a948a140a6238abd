"""Stored correct responses: what the buffer keeps and draws; and in TRL's real trainer the rows that they replace, and
resuming."""

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SAVES, AroundSteps, attach, logged, low_digit, rows, same_weights, weights
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import budgetalloc as ba
from budgetalloc.contrib.stored_responses import CorrectResponseBuffer, Stored
from budgetalloc.contrib.thought_and_answer import ThoughtAndAnswer
from budgetalloc.trl import AdaptiveGRPOCallback
from budgetalloc.trl.processes import select_rows


def filled(names, **given):
    """A buffer with correct responses of step 0, whose rewards number them."""
    buffer = CorrectResponseBuffer(**given)
    buffer.add(Stored(name, float(at), 0) for at, name in enumerate(names))
    return buffer


maybe = st.sampled_from([0.0, 0.3, 1.0, np.nan])
rollouts = st.lists(st.tuples(st.sampled_from(["a", "b", 1, 2]), maybe, maybe), max_size=12)


@given(st.lists(rollouts, max_size=6), st.integers(1, 8), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
@settings(deadline=None, max_examples=50)
def test_every_prompt_that_can_be_helped_is_helped_once(steps, capacity, per_prompt, max_age, gap):
    """By the newest correct responses of each prompt and of all."""
    buffer = CorrectResponseBuffer(capacity=capacity, per_prompt=per_prompt, max_age=max_age)
    stored = []
    for at, batch in enumerate(steps):
        step, ids = at * gap, [name for name, _, _ in batch]
        rewards, success = np.array([each[1:] for each in batch], dtype=float).reshape(-1, 2).T
        replaced, after = buffer.substitute(ids, rewards, success, step)
        fresh = [each for each in buffer.stored if step - each.step <= max_age]
        expected = set()
        for name in set(ids) & {each.id for each in fresh}:
            own = success[[i == name for i in ids] & ~np.isnan(rewards) & ~np.isnan(success)]
            if len(own) >= 2 and not (own > 0.5).any():
                expected.add(name)
        assert sorted(map(str, expected)) == sorted(str(ids[row]) for row in replaced)
        assert (np.diff(replaced) > 0).all()
        for row in replaced:
            assert success[row] <= 0.5
            assert after[row] in {each.reward for each in fresh if each.id == ids[row]}
        np.testing.assert_array_equal(np.delete(after, replaced), np.delete(rewards, replaced))
        new = [Stored(name, r, step) for name, r, s in batch if s > 0.5 and not np.isnan(r)]
        buffer.add(new)
        stored += new
        kept = [
            each
            for k, each in enumerate(stored)
            if stored[-1].step - each.step <= max_age
            and sum(later.id == each.id for later in stored[k + 1 :]) < per_prompt
        ]
        assert list(map(id, buffer.stored)) == list(map(id, kept[-capacity:]))


def test_the_stored_response_and_the_wrong_one_are_drawn_evenly():
    zeros, nan = np.zeros(4) - 1, np.array([0, 0, np.nan, 0])
    drawn = [filled("aaaa", seed=seed).substitute(list("abaa"), zeros, nan, step=1) for seed in range(2000)]
    stored = np.bincount([int(after[rows[0]]) for rows, after in drawn], minlength=4)
    assert chisquare(stored).pvalue > 0.01
    wrong = np.bincount([int(rows[0]) for rows, _ in drawn], minlength=4)
    np.testing.assert_array_equal(wrong[[1, 2]], 0)  # another prompt's, and one without success
    assert chisquare(wrong[[0, 3]]).pvalue > 0.01


def test_the_order_of_prompts_in_a_batch_changes_no_draw():
    runs = []
    for names in ("abcdefgh", "hgfedcba"):
        ids = [name for name in names for _ in range(4)]
        replaced, after = filled("abcdefgh" * 4).substitute(ids, *np.zeros((2, 32)), step=1)
        runs.append({ids[row]: (row % 4, after[row]) for row in replaced})
    assert runs[0] == runs[1]
    assert len(runs[0]) == 8


def test_equal_seeds_and_histories_give_equal_draws_across_a_resume():
    def draw(buffer, step):
        return [x.tolist() for x in buffer.substitute(list("aaaabbbb"), *np.zeros((2, 8)), step)]

    kept, another, draws = filled("ab" * 4, seed=5), filled("ab" * 4, seed=6), []
    for step in range(1, 8):
        other = CorrectResponseBuffer(seed=5)
        other.load_state_dict(kept.state_dict())
        draws.append(draw(kept, step))
        assert draw(other, step) == draws[-1]
    assert draws != [draw(another, step) for step in range(1, 8)]
    before = repr(another.state_dict())
    for wrong in (kept.state_dict(), {"buffer": 5}, {"buffer": another.state_dict()["buffer"] | {"steps": [0]}}):
        with pytest.raises(ba.StateError, match=r"with seed=5, and this one has seed=6|buffer is damaged"):
            another.load_state_dict(wrong)
    assert repr(another.state_dict()) == before


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"per_prompt": 0}, "per_prompt=0"),
        ({"threshold": np.nan}, "threshold=nan"),
        ({"capacity": 0}, "capacity=0"),
        ({"max_age": 0}, "max_age=0"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_bad_arguments_are_named(given, name):
    with pytest.raises(ba.InputError, match=name):
        CorrectResponseBuffer(**given)


# --- in TRL's trainer -------------------------------------------------------------------------------------------------


def fails_later(completions, prompt_id, trainer_state, **_):
    """From the second step on, even prompts always fail."""
    lows = low_digit(completions)
    if trainer_state.global_step == 0:
        return lows
    return [0.0 if name % 2 == 0 else low for name, low in zip(prompt_id, lows, strict=True)]


SAME_PROMPTS = {"dataset": rows(4), "shuffle_dataset": False, "reward": fails_later, "max_steps": 2}


class Run:
    """A training with a buffer. For each step it keeps TRL's own batches, the rows that were replaced, and the batch
    that TRL trains on, before TRL shuffles it."""

    def __init__(self, build, policy=None, success=None, **config):
        self.trainer, self.buffer = build(**{**SAME_PROMPTS, **config}), CorrectResponseBuffer(seed=1)
        self.fresh, self.replaced, self.batches = [], [], []
        own = self.trainer._generate_and_score_completions

        def generate(inputs):
            output = own(inputs)
            self.fresh[-1].append(dict(output))
            return output

        self.trainer._generate_and_score_completions = generate
        given = {"domain": "prompt_id"} | ({"baseline": "group"} if policy is not None else {})
        self.callback = attach(self.trainer, policy or ba.uniform(), buffer=self.buffer, success=success, **given)
        substitute = self.buffer.substitute

        def recorded(*args):
            replaced, after = substitute(*args)
            self.replaced.append(replaced)
            return replaced, after

        self.buffer.substitute = recorded

        def whole(inputs, generate):
            self.fresh.append([])
            self.batches.append(generate(inputs))
            return self.batches[-1]

        self.trainer.add_callback(AroundSteps(self.trainer, whole))

    def train(self, **how):
        self.trainer.train(**how)
        return self


@pytest.mark.parametrize("rollout_func", [None, ThoughtAndAnswer(1, 2, end="=")], ids=["plain", "forced"])
def test_a_replaced_row_trains_as_if_it_were_absent_except_in_the_baseline(build, rollout_func):
    """Tokens that the model did not write count in neither."""
    run = Run(build)
    run.trainer.rollout_func = rollout_func
    run.train()
    first, replaced = run.replaced
    assert len(first) == 0
    assert len(replaced) > 0
    assert logged(run.trainer, "budgetalloc/reused") == [0, len(replaced)]
    trained_P = [logged(run.trainer, f"budgetalloc/domain/trained/{n}") for n in range(4)]
    assert np.sum(trained_P, axis=0).tolist() == [16, 16 - len(replaced)]
    [fresh], batch = run.fresh[1], run.batches[1]
    assert (batch["completion_mask"][replaced] == 0).all()
    assert (batch["advantages"][replaced] == 0).all()
    own = batch.get("tool_mask", torch.ones_like(batch["completion_mask"]))
    assert own.all() == (rollout_func is None)
    assert batch["num_items_in_batch"] == (batch["completion_mask"] * own).sum() < fresh["num_items_in_batch"]

    trainer, rewards, steps = build(**SAME_PROMPTS), [], iter(range(2))
    trainer.rollout_func = rollout_func
    generate, score = trainer._generate_and_score_completions, trainer._calculate_rewards
    trainer._calculate_rewards = lambda *args: rewards.append(score(*args)) or rewards[-1]

    def absent(inputs):
        """TRL's own batch, without these rows in the second step."""
        output, step, after_R = generate(inputs), next(steps), rewards[-1][:, 0].numpy().copy()
        after_R[replaced] = 1.0 if step else after_R[replaced]
        advantages_R = ba.group_advantages(after_R, [row["prompt_id"] for row in inputs])
        output["advantages"] = torch.as_tensor(advantages_R, dtype=torch.float32)
        return select_rows(output, np.setdiff1d(np.arange(16), replaced)) if step else output

    trainer._generate_and_score_completions = absent
    trainer.train()
    plain = list(trainer.model.parameters())
    mine = list(run.trainer.model.parameters())
    for one, other in zip(mine, plain, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("success", [None, 2.0], ids=["chosen", "threshold"])
def test_correct_responses_are_those_with_success(build, success):
    """With a point for the format every total is above 1/2, so the total cannot say what is correct."""

    def well_formed(completions, **_):
        return [1.0] * len(completions)

    run = Run(build, success=success, max_steps=3, reward=[fails_later, well_formed]).train()
    assert sum(map(len, run.replaced)) > 0
    assert {each.reward for each in run.buffer.stored} == {2.0}


def test_correct_responses_replace_wrong_ones_of_all_rounds_of_a_step(build):
    run = Run(build, ba.methods.ar3po(group=4, seed=1), max_steps=3).train()
    assert max(len(each) for each in run.fresh) > 1
    assert sum(map(len, run.replaced)) > 0
    assert all(len(batch["advantages"]) == 16 for batch in run.batches)
    assert all(torch.isfinite(p).all() for p in run.trainer.model.parameters())


def test_a_resumed_run_equals_an_uninterrupted_run_and_one_without_a_buffer_is_said(build, caplog):
    config = {"max_steps": 5, "save_strategy": "steps", "save_steps": 3}
    whole = Run(build, ba.thompson(seed=2), **config).train()
    checkpoint = f"{whole.trainer.args.output_dir}/checkpoint-3"
    resumed = Run(build, ba.thompson(seed=2), **config).train(resume_from_checkpoint=checkpoint)
    assert len(whole.batches) == 5
    assert len(resumed.batches) == 2
    assert any(map(len, resumed.replaced))
    assert same_weights(weights(whole.trainer), weights(resumed.trainer))
    assert repr(whole.buffer.state_dict()) == repr(resumed.buffer.state_dict())
    plain = build(**SAME_PROMPTS, **SAVES)
    attach(plain, ba.uniform())
    plain.train()
    Run(build, max_steps=3).train(resume_from_checkpoint=str(Path(plain.args.output_dir) / "checkpoint-2"))
    assert "no state of a buffer: the buffer starts empty" in caplog.text


def test_several_processes_are_refused(build, monkeypatch):
    monkeypatch.setattr(type((trainer := build()).accelerator), "num_processes", 2)
    with pytest.raises(ba.UnsupportedError, match=r"buffer= does not work with 2 processes"):
        AdaptiveGRPOCallback(trainer, ba.uniform(), buffer=CorrectResponseBuffer())


def test_a_step_that_is_begun_again_draws_the_same():
    buffer = filled("ab" * 4, seed=5)
    first, again, later = (buffer.substitute(list("aaaabbbb"), *np.zeros((2, 8)), step) for step in (3, 3, 4))
    assert first[0].tolist() == again[0].tolist()
    assert first[1].tolist() == again[1].tolist()
    assert (first[0].tolist(), first[1].tolist()) != (later[0].tolist(), later[1].tolist())
