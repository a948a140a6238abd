"""Stored responses: what the buffers keep and draw; and in TRL's real trainer their log-probabilities, the rows that
they replace, and resuming."""

import itertools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import SAVES, AroundSteps, attach, fresh_model, logged, low_digit, rows, same_weights, weights
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import budgetalloc as ba
from budgetalloc.contrib.stored_responses import BUFFER_FILE, CorrectResponseBuffer, SelectiveSampleBuffer, Stored
from budgetalloc.trl import AdaptiveGRPOCallback
from budgetalloc.trl.batch_merge import select_rows

BUFFERS = {"selective": SelectiveSampleBuffer, "correct": CorrectResponseBuffer}


def sample(name, reward=1.0, advantage=1.0, success=1.0, step=0, at=0):
    return Stored(name, {"at": torch.tensor([at])}, reward, advantage, success, step)


def filled(buffer, names, advantages=None):
    """The buffer with correct responses of step 0, which are numbered."""
    advantages = np.ones(len(names)) if advantages is None else advantages
    pairs = zip(names, advantages, strict=True)
    buffer.add(sample(name, advantage=each, at=at) for at, (name, each) in enumerate(pairs))
    return buffer


def number(stored):
    return int(stored.response["at"][0])


maybe = st.sampled_from([0.0, 0.3, 1.0, np.nan])
rollouts = st.lists(st.tuples(st.sampled_from(["a", "b", 1, 2]), maybe, maybe), max_size=12)


@given(st.lists(rollouts, max_size=6), st.integers(1, 8), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
@settings(deadline=None, max_examples=50)
def test_every_prompt_that_can_be_helped_is_helped_once(steps, capacity, per_prompt, max_age, gap):
    """By the newest correct responses of each prompt and of all; success says what is correct, not the reward."""
    buffer = CorrectResponseBuffer(capacity=capacity, per_prompt=per_prompt, max_age=max_age)
    stored = []
    for at, batch in enumerate(steps):
        step, ids = at * gap, [name for name, _, _ in batch]
        rewards, success = np.array([each[1:] for each in batch], dtype=float).reshape(-1, 2).T
        done = buffer.substitute(ids, rewards, success, step)
        expected = set()
        for name in set(ids) & {each.id for each in buffer.samples}:
            own = success[[i == name for i in ids] & ~np.isnan(rewards) & ~np.isnan(success)]
            if len(own) >= 2 and not (own > 0.5).any():
                expected.add(name)
        assert {ids[row] for row in done.rows} == expected
        assert len(done.rows) == len(done.stored) == len(expected)
        for row, each in zip(done.rows, done.stored, strict=True):
            assert each.id == ids[row]
            assert each.success > 0.5 >= success[row]
            assert done.rewards_R[row] == each.reward
        np.testing.assert_array_equal(np.delete(done.rewards_R, done.rows), np.delete(rewards, done.rows))
        new = [sample(*each[:2], 0.0, each[2], step) for each in batch]
        buffer.add(new)
        stored += [each for each in new if each.success > 0.5 and not np.isnan(each.reward)]
        kept = [
            each
            for k, each in enumerate(stored)
            if step - each.step <= max_age and sum(later.id == each.id for later in stored[k + 1 :]) < per_prompt
        ]
        assert list(map(id, buffer.samples)) == list(map(id, kept[-capacity:]))


def test_the_stored_response_and_the_wrong_one_are_drawn_evenly():
    buffer = filled(CorrectResponseBuffer(), "aaaa")
    zeros, nan = np.zeros(4), np.array([0, 0, np.nan, 0])
    drawn = [buffer.substitute(list("abaa"), zeros, nan, step=1) for _ in range(2000)]
    stored = np.bincount([number(done.stored[0]) for done in drawn], minlength=4)
    assert chisquare(stored).pvalue > 0.01
    wrong = np.bincount([int(done.rows[0]) for done in drawn], minlength=4)
    np.testing.assert_array_equal(wrong[[1, 2]], 0)  # another prompt's, and one without success
    assert chisquare(wrong[[0, 3]]).pvalue > 0.01


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_draws_are_proportional_to_the_advantage_to_the_power_and_without_replacement(power):
    size = np.array([0.5, 1.0, 2.0])
    buffer, weights = filled(SelectiveSampleBuffer(power=power), range(3), size * [1, -1, 1]), size**power
    pairs, total = list(itertools.permutations(range(3), 2)), weights.sum()
    exact = [weights[a] / total * weights[b] / (total - weights[a]) for a, b in pairs]
    drawn = [tuple(each.id for each in buffer.draw(2, step=1)) for _ in range(4000)]
    assert chisquare([drawn.count(pair) for pair in pairs], 4000 * np.array(exact)).pvalue > 0.01


def test_weights_too_small_or_large_for_a_float_are_still_compared():
    buffer = filled(SelectiveSampleBuffer(power=100.0), range(3), [1e-6, 2e-6, 1e300])
    assert [each.id for each in buffer.draw(3, step=1)] == [2, 1, 0]


batches = st.lists(st.lists(st.sampled_from([0.0, 1e-12, np.nan, 0.5, -2.0]), max_size=8), min_size=1, max_size=8)


@given(batches, st.integers(1, 10), st.integers(1, 3), st.integers(1, 3))
@settings(deadline=None, max_examples=50)
def test_a_batch_keeps_its_size_and_gets_no_stale_samples(steps, capacity, max_age, gap):
    buffer = SelectiveSampleBuffer(capacity=capacity, max_age=max_age)
    for at, advantages in enumerate(steps):
        step = at * gap
        fresh, stored = buffer.refill(np.array(advantages), step)
        assert len(fresh) + len(stored) == len(advantages)
        assert len(set(map(id, stored))) == len(stored)
        assert all(1 <= step - each.step <= max_age for each in stored)
        assert (np.diff(fresh) > 0).all()
        signal = {row for row, x in enumerate(advantages) if abs(x) > 1e-8}
        assert signal <= set(fresh.tolist())
        if set(fresh.tolist()) != signal:  # a row without signal stays only where the buffer ran out
            assert len(stored) == sum(each.step < step for each in buffer.samples)
        buffer.add(sample("a", advantage=x, step=step) for x in advantages)
        buffer.add([sample("a", reward=np.nan, step=step)])
        assert len(buffer) <= capacity
        assert all(abs(each.advantage) > 1e-8 and not np.isnan(each.reward) for each in buffer.samples)


@pytest.mark.parametrize("kind", BUFFERS)
def test_equal_seeds_and_histories_give_equal_draws_across_a_resume(kind):
    def draw(buffer, step):
        if kind == "selective":
            return [number(each) for each in buffer.draw(4, step)]
        done = buffer.substitute(list("aaaabbbb"), *np.zeros((2, 8)), step)
        return done.rows.tolist(), [number(each) for each in done.stored]

    kept, other, another = (filled(BUFFERS[kind](seed=seed), list("ab" * 4)) for seed in (5, 5, 6))
    draws = []
    for step in range(1, 8):
        state, other = other.state_dict(), BUFFERS[kind](seed=5)
        other.load_state_dict(state)
        draws.append(draw(kept, step))
        assert draw(other, step) == draws[-1]
    assert draws != [draw(another, step) for step in range(1, 8)]
    with pytest.raises(ba.StateError, match=r"with seed=5, and this is a .* with seed=6"):
        another.load_state_dict(kept.state_dict())
    (foreign,) = BUFFERS.keys() - {kind}
    with pytest.raises(ba.StateError, match=f"saved by a {type(kept).__name__}"):
        BUFFERS[foreign](seed=5).load_state_dict(kept.state_dict())


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: CorrectResponseBuffer(option="mask"), "option='mask'"),
        (lambda: CorrectResponseBuffer(per_prompt=0), "per_prompt=0"),
        (lambda: CorrectResponseBuffer(threshold=np.nan), "threshold=nan"),
        (lambda: SelectiveSampleBuffer(power=-1), "power=-1"),
        (lambda: SelectiveSampleBuffer(capacity=0), "capacity=0"),
        (lambda: SelectiveSampleBuffer(max_age=0), "max_age=0"),
        (lambda: SelectiveSampleBuffer(seed=-1), "seed=-1"),
    ],
)
def test_bad_arguments_are_named(call, name):
    with pytest.raises(ba.InputError, match=name):
        call()


# --- in TRL's trainer -------------------------------------------------------------------------------------------------


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
            yield from ((batch, at, old) for at, old in enumerate(stored, start=len(fresh)))


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
    for batch, at, stored in run.reused():
        assert_old(batch, at, "old_per_token_logps", run.weights[stored.step // steps_per_generation])
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


@pytest.mark.parametrize("policy", ["uniform", "thompson", "dapo"])
def test_stored_rows_replace_rows_without_signal_and_the_batch_keeps_its_size(build, ledger, policy):
    """Also after a policy's choice among more rollouts. Beliefs and ledger count each fresh rollout once."""
    options = {"ledger": ledger, "baseline": "group", "scale": "group", "weight": "rollout"}
    chosen = ba.methods.dapo(group=4, generate=2, seed=1) if policy == "dapo" else getattr(ba, policy)(seed=1)
    run = Run(build, SelectiveSampleBuffer(seed=1), chosen, options).train()
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
        for at, old in enumerate(stored, start=len(fresh)):
            assert old.step < step
            assert (trained[at], batch["advantages"][at].item()) in seen[old.step]
            assert batch["advantages"][at] != 0
        seen[step] = {(trained[at], batch["advantages"][at].item()) for at in range(len(fresh))}
    if policy == "uniform":
        again = ba.uniform(seed=1)
        for step in range(4):
            at = np.flatnonzero(log.frame.step.to_numpy() == step)
            again.observe([log.frame.prompt.tolist()[k] for k in at], log.frame.reward.to_numpy()[at])
        np.testing.assert_allclose(run.callback.policy.belief(range(24)).mean, again.belief(range(24)).mean)


def test_rows_that_trl_masks_as_truncated_are_not_stored(build):
    def reward(completions, **_):
        return [float(at % 2) for at in range(len(completions))]

    config = {"mask_truncated_completions": True, "max_completion_length": 8, "max_steps": 3}
    run = Run(build, SelectiveSampleBuffer(seed=1), reward=reward, **config).train()
    assert len(run.buffer) > 0
    assert all(stored.response["completion_ids"][-1] in (11, 12) for stored in run.buffer.samples)  # <pad>, <eos>
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

    trainer, rewards, steps = build(**SAME_PROMPTS), [], iter(range(2))
    generate, score = trainer._generate_and_score_completions, trainer._calculate_rewards
    trainer._calculate_rewards = lambda *args: rewards.append(score(*args)) or rewards[-1]

    def absent(inputs):
        """TRL's own batch, without these rows in the second step."""
        output, step, after_R = generate(inputs), next(steps), rewards[-1][:, 0].numpy().copy()
        after_R[swap.rows] = 1.0 if step else after_R[swap.rows]
        advantages_R = ba.group_advantages(after_R, [row["prompt_id"] for row in inputs])
        output["advantages"] = torch.as_tensor(advantages_R, dtype=torch.float32)
        return select_rows(output, np.setdiff1d(np.arange(16), swap.rows)) if step else output

    trainer._generate_and_score_completions = absent
    trainer.train()
    plain = list(trainer.model.parameters())
    mine = list(run.trainer.model.parameters())
    for one, other in zip(mine, plain, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


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


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUFFERS)
def test_a_resumed_run_equals_an_uninterrupted_run(build, name):
    def make():
        return CorrectResponseBuffer(option="recompute", seed=1) if name == "correct" else SelectiveSampleBuffer(seed=1)

    config = SAME_PROMPTS if name == "correct" else {}
    config = {**config, "max_steps": 5, "save_strategy": "steps", "save_steps": 3}
    whole = Run(build, make(), ba.thompson(seed=2), {"candidates": 1, "baseline": "group"}, **config).train()
    checkpoint = f"{whole.trainer.args.output_dir}/checkpoint-3"
    resumed = Run(build, make(), ba.thompson(seed=2), {"candidates": 1, "baseline": "group"}, **config)
    resumed.train(resume_from_checkpoint=checkpoint)
    assert len(whole.batches) == 5
    assert len(resumed.batches) == 2
    assert any(len(x.rows if name == "correct" else x[1]) for x in resumed.chosen)
    assert same_weights(weights(whole.trainer), weights(resumed.trainer))
    assert repr(whole.buffer.state_dict()) == repr(resumed.buffer.state_dict())


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
    foreign.add([sample("a")])
    run = Run(build, SelectiveSampleBuffer(seed=1), max_steps=2, **SAVES).train()
    folder = Path(run.trainer.args.output_dir) / "checkpoint-2"
    torch.save(foreign.state_dict(), folder / BUFFER_FILE)
    with pytest.raises(ba.StateError, match=r"without 'prompt_ids' \(it has \['at'\]\).*Pass a new buffer"):
        Run(build, SelectiveSampleBuffer(seed=1), max_steps=4).train(resume_from_checkpoint=str(folder))


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("tools", [print], "tools or environments"),
        ("environment_factories", {None: object}, "tools or environments"),
        ("train_dataset", rows().add_column("image", [None] * 24), "images"),
        ("multi_objective_aggregation", "normalize_then_sum", "normalize_then_sum"),
        ("use_vllm", True, "vllm_importance_sampling_correction=True"),
        ("accelerator", SimpleNamespace(num_processes=2, is_main_process=True), "2 processes"),
    ],
)
def test_trainers_that_a_buffer_does_not_support_are_refused(build, monkeypatch, name, value, match):
    """Sets the attributes that TRL sets for such a trainer, most of which cannot be built here."""
    monkeypatch.setattr(trainer := build(), name, value)
    with pytest.raises(ba.UnsupportedError, match=f"buffer= does not work with .*{match}|{match}, of which one has"):
        AdaptiveGRPOCallback(trainer, ba.uniform(), buffer=SelectiveSampleBuffer())


def test_a_synced_reference_model_is_refused(build):
    with pytest.raises(ba.UnsupportedError, match="sync_ref_model=True"):
        AdaptiveGRPOCallback(build(beta=0.1, sync_ref_model=True), ba.uniform(), buffer=SelectiveSampleBuffer())


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
