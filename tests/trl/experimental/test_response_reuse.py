"""Stored responses in TRL's real trainer: their log-probabilities, the rows that they replace, and resuming."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SAVES, AroundSteps, attach, fresh_model, logged, low_digit, rows, same_weights, weights

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback
from budgetalloc.trl.batch_merge import select_rows
from budgetalloc.trl.experimental.buffers import CorrectResponseBuffer, SelectiveSampleBuffer
from budgetalloc.trl.experimental.response_reuse import BUFFER_FILE


def half_without_signal(completions, prompt_id, **_):
    """Even prompts always pass, so their rows have no signal."""
    return [1.0 if name % 2 == 0 else low for name, low in zip(prompt_id, low_digit(completions), strict=True)]


def fails_later(completions, prompt_id, trainer_state, **_):
    """From the second step on, even prompts always fail."""
    lows = low_digit(completions)
    if trainer_state.global_step == 0:
        return lows
    return [0.0 if name % 2 == 0 else low for name, low in zip(prompt_id, lows, strict=True)]


class Run:
    """A training with a buffer. For each generation it keeps the model's weights, TRL's own batches, what was chosen
    from the buffer, and the batch that TRL trains on, before TRL shuffles it."""

    def __init__(self, build, buffer, policy=None, options=None, **config):
        self.trainer, self.buffer = build(**{"reward": half_without_signal, **config}), buffer
        self.weights, self.fresh, self.chosen, self.batches = [], [], [], []
        own = self.trainer._generate_and_score_completions

        def generate(inputs):
            output = own(inputs)
            self.fresh[-1].append(dict(output))
            return output

        self.trainer._generate_and_score_completions = generate
        self.callback = attach(self.trainer, policy or ba.uniform(), buffer=buffer, **(options or {}))
        name = "refill" if hasattr(buffer, "refill") else "substitute"
        choose = getattr(buffer, name)

        def recorded(*args):
            self.chosen.append(choose(*args))
            return self.chosen[-1]

        setattr(buffer, name, recorded)

        def whole(inputs, generate):
            self.weights.append(weights(self.trainer))
            self.fresh.append([])
            self.batches.append(generate(inputs))
            return self.batches[-1]

        self.trainer.add_callback(AroundSteps(self.trainer, whole))

    def train(self, **how):
        self.trainer.train(**how)
        return self

    def reused(self):
        """For each stored row of a batch: the batch, the index of the row, and the stored sample."""
        for batch, (fresh, stored) in zip(self.batches, self.chosen, strict=True):
            yield from ((batch, at, sample) for at, sample in enumerate(stored, start=len(fresh)))


def tokens(batch, row):
    """A row's prompt and completion without padding."""
    return tuple(tuple(batch[f"{part}_ids"][row][batch[f"{part}_mask"][row].bool()].tolist()) for part in PARTS)


PARTS = ("prompt", "completion")


def log_probabilities(state, prompt, completion):
    """Of the completion's tokens under these weights, without TRL and without padding."""
    model = fresh_model().eval()
    model.load_state_dict(state)
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]


IN_MICRO_BATCHES = {"steps_per_generation": 2, "per_device_train_batch_size": 8}


def assert_old(batch, at, name, state):
    """Checks the log-probabilities of a row against those under these weights."""
    row = tokens(batch, at)
    old = batch[name][at][: len(row[1])]
    torch.testing.assert_close(old, log_probabilities(state, *row), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "config",
    [
        {},
        # TRL computes old and reference log-probabilities itself
        {**IN_MICRO_BATCHES, "num_iterations": 2, "max_steps": 12, "beta": 0.1},
        {**IN_MICRO_BATCHES, "pad_to_multiple_of": 8, "max_steps": 8},
    ],
)
def test_old_log_probabilities_are_those_of_the_model_that_wrote_the_row(build, config):
    run = Run(build, SelectiveSampleBuffer(seed=1, max_age=20), **config).train()
    steps_per_generation = config.get("steps_per_generation", 1) * config.get("num_iterations", 1)
    now = {id(batch): state for batch, state in zip(run.batches, run.weights, strict=True)}
    drift = []
    for batch, at, sample in run.reused():
        assert_old(batch, at, "old_per_token_logps", run.weights[sample.step // steps_per_generation])
        row = tokens(batch, at)
        old = batch["old_per_token_logps"][at][: len(row[1])]
        drift.append((old - log_probabilities(now[id(batch)], *row)).abs().max().item())
        if "ref_per_token_logps" in batch:
            assert_old(batch, at, "ref_per_token_logps", run.weights[0])
    assert len(drift) > 8
    assert min(drift) > 1e-4  # the model has changed since
    for batch, (fresh, _), state in zip(run.batches, run.chosen, run.weights, strict=True):
        for at in range(len(fresh)):
            assert_old(batch, at, "old_per_token_logps", state)


def test_fresh_rows_have_a_ratio_of_1_in_the_loss_and_stored_ones_their_own(build):
    run = Run(build, SelectiveSampleBuffer(seed=1))
    trainer, apart = run.trainer, []
    loss = trainer._compute_loss

    def watched(model, inputs):
        ids, mask = (torch.cat([inputs[f"{part}_{x}"] for part in PARTS], dim=1) for x in ("ids", "mask"))
        with torch.no_grad():
            now = trainer._get_per_token_logps_and_entropies(model, ids, mask, inputs["completion_ids"].size(1))[0]
        off = (now - inputs["old_per_token_logps"]).exp() - 1
        apart.append((off * inputs["completion_mask"]).abs().max(dim=1).values)
        return loss(model, inputs)

    trainer._compute_loss = watched
    run.train()
    assert len(run.chosen[0][1]) == 0
    assert sum(len(stored) for _, stored in run.chosen) > 8
    for off, (fresh, stored) in zip(apart, run.chosen, strict=True):
        assert (off < 1e-6).sum() == len(fresh)
        assert (off > 1e-4).sum() == len(stored)


@pytest.mark.parametrize("policy", ["uniform", "thompson", "adaptive", "pods", "dapo"])
def test_stored_rows_replace_rows_without_signal_and_the_batch_keeps_its_size(build, ledger, policy):
    """Also after a policy's choice among more rollouts. Beliefs and ledger count each fresh rollout once."""
    chosen = {"pods": ba.methods.pods, "dapo": lambda seed: ba.methods.dapo(group=4, generate=2, seed=seed)}
    made = chosen.get(policy) or getattr(ba, policy)
    options = {"ledger": ledger, "baseline": "group", "scale": "group", "weight": "rollout"}
    run = Run(build, SelectiveSampleBuffer(seed=1), made(seed=1), options).train()
    log = ba.Ledger.read(ledger)
    metrics = logged(run.trainer, "budgetalloc/reused")
    assert metrics == [len(stored) for _, stored in run.chosen]
    assert sum(metrics) > 1
    seen = {}  # for each step, the fresh rows that were trained on, with their advantages
    for step, (batch, each, (fresh, stored)) in enumerate(zip(run.batches, run.fresh, run.chosen, strict=True)):
        assert {len(value) for name, value in batch.items() if name != "num_items_in_batch"} == {16}
        assert batch["num_items_in_batch"] == batch["completion_mask"].sum()
        generated = Counter(tokens(output, at) for output in each for at in range(len(output["advantages"])))
        assert (log.frame.step.to_numpy() == step).sum() == generated.total()
        trained = [tokens(batch, at) for at in range(16)]
        assert Counter(trained[: len(fresh)]) <= generated
        if run.callback.policy.keep is None:  # no row with signal was dropped
            here = log.frame.step.to_numpy() == step
            ids = [name for name, at in zip(log.frame.prompt.tolist(), here, strict=True) if at]
            every_R = ba.group_advantages(log.frame.reward.to_numpy()[here], ids)
            assert (batch["advantages"][: len(fresh)].abs() > 1e-6).sum() == (np.abs(every_R) > 1e-6).sum()
        for at, sample in enumerate(stored, start=len(fresh)):
            assert sample.step < step
            assert (trained[at], batch["advantages"][at].item()) in seen[sample.step]
            assert batch["advantages"][at] != 0
        seen[step] = {(trained[at], batch["advantages"][at].item()) for at in range(len(fresh))}
    if policy == "uniform":
        again = ba.uniform(seed=1)
        for step in range(4):
            at = np.flatnonzero(log.frame.step.to_numpy() == step)
            again.observe([log.frame.prompt.tolist()[k] for k in at], log.frame.reward.to_numpy()[at])
        np.testing.assert_allclose(run.callback.policy.belief(range(24)).mean, again.belief(range(24)).mean)


@pytest.mark.parametrize(("settings", "steps"), [({"max_age": 1}, [0, 0, 8, 0]), ({"capacity": 3}, [0, 0, 3, 3])])
def test_age_and_number_are_bounded(build, settings, steps):
    """Only 8 rows of step 1 have signal. They are drawn at age 1, and at age 2 only if the buffer allows it."""

    def reward(completions, trainer_state, **_):
        if trainer_state.global_step != 1:
            return [1.0] * len(completions)
        return [float(at % 2) if at < 8 else 1.0 for at in range(len(completions))]

    run = Run(build, SelectiveSampleBuffer(seed=1, **settings), reward=reward).train()
    assert [len(stored) for _, stored in run.chosen] == steps
    assert {sample.step for _, stored in run.chosen for sample in stored} == {1}


def test_rows_that_trl_masks_as_truncated_are_not_stored(build):
    def reward(completions, **_):
        return [float(at % 2) for at in range(len(completions))]

    config = {"mask_truncated_completions": True, "max_completion_length": 8, "max_steps": 3}
    run = Run(build, SelectiveSampleBuffer(seed=1), reward=reward, **config).train()
    assert len(run.buffer) > 0
    assert all(sample.response["completion_ids"][-1] in (11, 12) for sample in run.buffer.samples)  # <pad>, <eos>
    masked = [int((~output["completion_mask"].any(dim=1)).sum()) for [output] in run.fresh]
    assert min(masked[1:]) > 0
    for batch, (fresh, stored), rows_masked in zip(run.batches, run.chosen, masked, strict=True):
        assert (~batch["completion_mask"].any(dim=1)).sum() == rows_masked - len(stored)
        assert len(fresh) + len(stored) == 16


# --- AR3PO ------------------------------------------------------------------------------------------------------------

SAME_PROMPTS = {"dataset": rows(4), "shuffle_dataset": False, "reward": fails_later, "max_steps": 2}


def test_stop_gradient_trains_as_if_the_row_were_absent_except_in_the_baseline(build):
    run = Run(build, CorrectResponseBuffer(seed=1), **SAME_PROMPTS).train()
    swap = run.chosen[1]
    assert len(run.chosen[0].rows) == 0
    assert len(swap.rows) > 0
    [fresh], batch = run.fresh[1], run.batches[1]
    assert (batch["completion_mask"][swap.rows] == 0).all()
    assert (batch["advantages"][swap.rows] == 0).all()
    assert batch["num_items_in_batch"] == batch["completion_mask"].sum() < fresh["completion_mask"].sum()

    def by_hand(change):
        """Plain TRL with other batches: `change(step, output, rewards, prompts)` returns the batch of a step."""
        trainer, rewards, steps = build(**SAME_PROMPTS), [], iter(range(2))
        generate, score = trainer._generate_and_score_completions, trainer._calculate_rewards
        trainer._calculate_rewards = lambda *args: rewards.append(score(*args)) or rewards[-1]

        def edited(inputs):
            output = generate(inputs)
            return change(next(steps), output, rewards[-1][:, 0].numpy(), [row["prompt_id"] for row in inputs])

        trainer._generate_and_score_completions = edited
        trainer.train()
        return list(trainer.model.parameters())

    def absent(step, output, rewards_R, ids_R):
        after_R = rewards_R.copy()
        after_R[swap.rows] = 1.0 if step else rewards_R[swap.rows]
        advantages_R = ba.group_advantages(after_R, ids_R)
        output["advantages"] = torch.as_tensor(advantages_R, dtype=torch.float32)
        return select_rows(output, np.setdiff1d(np.arange(16), swap.rows)) if step else output

    def present(step, output, rewards_R, ids_R):
        output["advantages"] = torch.as_tensor(ba.group_advantages(rewards_R, ids_R), dtype=torch.float32)
        return output

    mine = list(run.trainer.model.parameters())
    for one, other in zip(mine, by_hand(absent), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    off = [(one - other).abs().max().item() for one, other in zip(mine, by_hand(present), strict=True)]
    assert max(off) > 1e-3  # the substitution did change what was learned


@pytest.mark.parametrize("iterations", [1, 2])
def test_recompute_trains_on_the_stored_response_as_if_it_were_on_policy(build, ledger, iterations):
    config = {**SAME_PROMPTS, "num_iterations": iterations, "max_steps": 3 * iterations, "log_completions": True}
    buffer = CorrectResponseBuffer(option="recompute", seed=1)
    run = Run(build, buffer, options={"ledger": ledger}, **config).train()
    log = ba.Ledger.read(ledger)
    replaced = 0
    for swap, batch, [fresh], state, step in zip(
        run.chosen, run.batches, run.fresh, run.weights, sorted(set(log.frame.step.to_numpy())), strict=True
    ):
        here = log.frame.step.to_numpy() == step
        ids = [name for name, at in zip(log.frame.prompt.tolist(), here, strict=True) if at]
        assert len(ids) == 16
        after_R = log.frame.reward.to_numpy()[here].copy()
        assert (after_R[swap.rows] == 0).all()  # the ledger has what was generated
        after_R[swap.rows] = 1.0
        expected = ba.group_advantages(after_R, ids)
        np.testing.assert_allclose(batch["advantages"].numpy(), expected, atol=1e-6)
        assert batch["num_items_in_batch"] == batch["completion_mask"].sum()
        stored = dict(zip(swap.rows.tolist(), swap.stored, strict=True))
        for at in range(16):
            row = tokens(batch, at)
            if at in stored:
                replaced += 1
                assert stored[at].step < step
                assert row == tuple(tuple(stored[at].response[f"{part}_ids"].tolist()) for part in PARTS)
            assert row[0] == tokens(fresh, at)[0]
            assert at in stored or row == tokens(fresh, at)
            if iterations == 2:  # otherwise TRL itself takes a ratio of 1
                assert_old(batch, at, "old_per_token_logps", state)
        assert ("old_per_token_logps" in batch) == (iterations == 2)
    assert replaced > 1
    assert sum(logged(run.trainer, "budgetalloc/reused")) == replaced


def test_a_stored_correct_response_has_a_positive_advantage_under_the_posterior_baseline(build):
    buffer = CorrectResponseBuffer(option="recompute", seed=1)
    options = {"candidates": 1, "baseline": "posterior"}
    run = Run(build, buffer, ba.adaptive(seed=1), options, **{**SAME_PROMPTS, "max_steps": 3}).train()
    back = [(batch, row) for batch, swap in zip(run.batches, run.chosen, strict=True) for row in swap.rows.tolist()]
    assert len(back) > 0
    assert all(batch["advantages"][row] > 0 for batch, row in back)


@pytest.mark.parametrize("success", [None, "fails_later", 2.0], ids=["chosen", "by name", "threshold"])
def test_correct_responses_are_those_with_success(build, success):
    """With a point for the format every total is above 1/2, so the total cannot say what is correct."""

    def well_formed(completions, **_):
        return [1.0] * len(completions)

    buffer = CorrectResponseBuffer(seed=1)
    config = {**SAME_PROMPTS, "max_steps": 3, "reward": [fails_later, well_formed]}
    run = Run(build, buffer, options={"success": success}, **config).train()
    assert sum(len(swap.rows) for swap in run.chosen) > 0
    assert {(row.reward, row.success) for row in buffer.samples} == {(2.0, 1.0)}


@pytest.mark.parametrize("option", ["stop_gradient", "recompute"])
def test_correct_responses_replace_wrong_ones_of_all_rounds_of_a_step(build, option):
    policy = ba.methods.ar3po(group=4, seed=1)
    run = Run(build, CorrectResponseBuffer(option=option, seed=1), policy, **{**SAME_PROMPTS, "max_steps": 3}).train()
    assert max(len(each) for each in run.fresh) > 1
    assert sum(len(swap.rows) for swap in run.chosen) > 0
    assert all(len(batch["advantages"]) == 16 for batch in run.batches)
    assert all(torch.isfinite(p).all() for p in run.trainer.model.parameters())


# --- checkpoints ------------------------------------------------------------------------------------------------------

BUFFERS = {
    "selective": (lambda: SelectiveSampleBuffer(seed=1), {}),
    "correct": (lambda: CorrectResponseBuffer(option="recompute", seed=1), {**SAME_PROMPTS}),
}


@pytest.mark.parametrize("name", BUFFERS)
def test_a_resumed_run_equals_an_uninterrupted_run(build, name):
    make, config = BUFFERS[name]
    config = {**config, "max_steps": 5, "save_strategy": "steps", "save_steps": 3}
    whole = Run(build, make(), ba.thompson(seed=2), {"candidates": 1, "baseline": "group"}, **config).train()
    checkpoint = f"{whole.trainer.args.output_dir}/checkpoint-3"
    resumed = Run(build, make(), ba.thompson(seed=2), {"candidates": 1, "baseline": "group"}, **config)
    resumed.train(resume_from_checkpoint=checkpoint)
    assert len(whole.batches) == 5
    assert len(resumed.batches) == 2
    assert any(len(x.rows if name == "correct" else x[1]) for x in resumed.chosen)
    assert same_weights(weights(whole.trainer), weights(resumed.trainer))
    state, state2 = whole.buffer.state_dict(), resumed.buffer.state_dict()
    assert state.keys() == state2.keys()
    for key, value in state.items():
        np.testing.assert_array_equal(value, state2[key])


def test_a_checkpoint_without_a_buffer_warns_and_a_damaged_one_is_refused(build, caplog):
    config = {"max_steps": 2, "save_strategy": "steps", "save_steps": 2}
    run = Run(build, SelectiveSampleBuffer(seed=1), **config).train()
    path = Path(run.trainer.args.output_dir) / "checkpoint-2" / BUFFER_FILE
    path.write_bytes(path.read_bytes()[:100])
    refused = Run(build, SelectiveSampleBuffer(seed=1), max_steps=3)
    with pytest.raises(ba.StateError, match="is damaged"):
        refused.train(resume_from_checkpoint=str(path.parent))
    assert refused.callback.policy.estimator.step == 0  # the beliefs of the checkpoint are not loaded either
    path.unlink()
    later = Run(build, SelectiveSampleBuffer(seed=1), max_steps=3).train(resume_from_checkpoint=str(path.parent))
    assert "no state of a buffer: the buffer starts empty" in caplog.text
    assert len(later.chosen[0][1]) == 0


def test_a_buffer_of_another_training_or_of_other_settings_is_refused(build):
    buffer = SelectiveSampleBuffer(seed=1)
    Run(build, buffer, max_steps=2).train()
    with pytest.raises(ba.StateError, match=r"was used until step 1, and training begins at step 0.*Pass a new buffer"):
        Run(build, buffer, max_steps=2).train()
    foreign = SelectiveSampleBuffer(seed=1)
    foreign.add(["a"], [{"tokens": [1]}], [1.0], [0.5], step=0)
    run = Run(build, SelectiveSampleBuffer(seed=1), max_steps=2, **SAVES).train()
    folder = Path(run.trainer.args.output_dir) / "checkpoint-2"
    ba.save_state(folder / BUFFER_FILE, foreign.state_dict())
    with pytest.raises(ba.StateError, match=r"without 'prompt_ids' \(it has \['tokens'\]\).*Pass a new buffer"):
        Run(build, SelectiveSampleBuffer(seed=1), max_steps=4).train(resume_from_checkpoint=str(folder))


# --- what is refused --------------------------------------------------------------------------------------------------


def refused(trainer, match, buffer=None, error=ba.UnsupportedError):
    with pytest.raises(error, match=match):
        AdaptiveGRPOCallback(trainer, ba.uniform(), buffer=buffer or SelectiveSampleBuffer())


def test_other_objects_are_refused(build):
    refused(build(), "buffer='selective': pass a SelectiveSampleBuffer", "selective", ba.InputError)


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("tools", [print], "tools or environments"),
        ("environment_factories", {None: object}, "tools or environments"),
        ("train_dataset", rows().add_column("image", [None] * 24), "images"),
        ("multi_objective_aggregation", "normalize_then_sum", "normalize_then_sum"),
        ("use_vllm", True, "vllm_importance_sampling_correction=True"),
    ],
)
def test_trainers_that_a_buffer_does_not_support_are_refused(build, monkeypatch, name, value, match):
    """Sets the attributes that TRL sets for such a trainer, most of which cannot be built here."""
    monkeypatch.setattr(trainer := build(), name, value)
    refused(trainer, f"buffer= does not work with .*{match}.*without a buffer")


def test_vllm_without_a_correction_is_supported(build, monkeypatch):
    monkeypatch.setattr(trainer := build(), "use_vllm", True)
    monkeypatch.setattr(trainer, "vllm_importance_sampling_correction", False)
    AdaptiveGRPOCallback(trainer, ba.uniform(), buffer=SelectiveSampleBuffer())


def test_several_processes_and_a_synced_reference_model_are_refused(build, monkeypatch):
    refused(build(beta=0.1, sync_ref_model=True), "sync_ref_model=True")
    monkeypatch.setattr(type((trainer := build()).accelerator), "num_processes", 2)
    refused(trainer, "2 processes, of which one has the buffer")


def test_tokens_that_the_model_did_not_write_are_refused(build, tokenizer):
    def rollout(prompts, trainer):
        return {
            "prompt_ids": [tokenizer(text)["input_ids"] for text in prompts],
            "completion_ids": [[at % 10, 12] for at in range(len(prompts))],
            "logprobs": [[0.0, 0.0] for _ in prompts],
            "env_mask": [[1, 0] for _ in prompts],
        }

    run = Run(build, SelectiveSampleBuffer(), max_steps=1)
    run.trainer.rollout_func = rollout
    with pytest.raises(ba.UnsupportedError, match="buffer= cannot keep 'tool_mask'"):
        run.train()
