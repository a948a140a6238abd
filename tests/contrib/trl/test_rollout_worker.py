"""TRL's real AsyncGRPOTrainer with budgetalloc's rollout worker, and a server that generates with a small model.

Two parts of that trainer need a GPU and are replaced (`on_cpu`): its attention kernel, and a look-up of the device's
name for a metric.
"""

import asyncio
import threading
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import trl
from completions_server import AttentionOnCpu, serving
from conftest import SAVES, SETTINGS, logged, low_digit, make_tokenizer, rows, same_weights, weights
from datasets import Dataset
from one_step import rollouts_of
from packaging.version import Version
from trl import GRPOTrainer

import budgetalloc as ba
from budgetalloc.beliefs.expected_reward import KEPT, Sums
from budgetalloc.beliefs.state import load_state
from budgetalloc.contrib import completions
from budgetalloc.contrib.costs import Costs
from budgetalloc.contrib.pacing import Horizon
from budgetalloc.policies.advantages import batch_advantages
from budgetalloc.policies.rollouts import sums_of
from budgetalloc.training.belief_checkpoint import STATE_FILE
from budgetalloc.trl import AdaptiveGRPOCallback, AdaptiveRolloutWorker

if Version(trl.__version__).release < (1, 16):
    pytest.skip("AdaptiveRolloutWorker is for TRL 1.16", allow_module_level=True)
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer, packing


@pytest.fixture
def on_cpu(monkeypatch):
    monkeypatch.setattr(packing, "_flash_attn", lambda: AttentionOnCpu)
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)


@pytest.fixture
def server(model_folder):
    with serving(model_folder) as (server, url):
        server.url = url
        yield server


@pytest.fixture
def build(on_cpu, server, model_folder, tmp_path):
    """`build(worker, dataset=..., **AsyncGRPOConfig)` makes a trainer with this worker."""

    def make(worker, dataset=None, tokenizer=None, attach=True, **config):
        settings = SETTINGS | {"max_steps": 3, "token_budget": 0, "vllm_server_base_url": server.url}
        trainer = AsyncGRPOTrainer(
            str(model_folder),
            args=AsyncGRPOConfig(**{"output_dir": str(tmp_path / "run"), **settings, **config}),
            train_dataset=rows() if dataset is None else dataset,
            processing_class=make_tokenizer() if tokenizer is None else tokenizer,
            rollout_worker=worker,
            weight_transfer=server,
        )
        if attach:
            worker.attach(trainer)
        worker.samples = []  # everything that the trainer receives
        put = worker.rollout_buffer.put

        def record(queued):
            worker.samples.append(queued[0])
            put(queued)

        worker.rollout_buffer.put = record
        return trainer

    return make


def finish(worker, trainer, **how):
    """Trains, and waits for the worker's thread."""
    trainer.train(**how)
    worker._thread.join()


def steps_of(path):
    """For each step, the prompts and the rewards of its rollouts."""
    steps = ba.Ledger.read(path).frame.groupby("step")
    return [(rows.prompt.tolist(), rows.reward.to_numpy()) for _, rows in steps]


def assert_right(worker, server, ledger, shadow, baseline, scale):
    """Checks that each step decides as the policy `shadow` would after the same rewards, and that each sample has its
    prompt's tokens, the server's log-probabilities, its reward and its advantage; returns the rollouts that are missing
    from the steps."""
    tokenizer = make_tokenizer()
    sent = {(*x["prompt"], *x["ids"], *np.float32(x["log_probs"])): x["weights"] for x in server.served}
    samples, groups, earlier, missing = iter(worker.samples), {}, Sums(), 0
    for step, (ids_R, rewards_R) in enumerate(steps_of(ledger)):
        budget = ba.Budget(16, floor=0, cap=32, min_group=shadow.needs.min_group)
        opened = shadow.begin(range(24), budget)
        wanted = dict(zip(range(24), opened.request().tolist(), strict=True))
        assert Counter(ids_R) <= Counter(wanted)
        missing += 16 - len(ids_R)
        rollouts = replace(
            rollouts_of(rewards_R, ids_R, belief_R=opened.belief_of(ids_R), earlier=earlier),
            baseline_R=opened.baseline_belief(ids_R, rewards_R, earlier),
            prior=ba.Beta(*shadow.estimator.prior_of(ids_R)),
            group=worker.trainer.args.num_generations,
        )
        expected = batch_advantages(rollouts, baseline, scale, sized_as="group").values_R
        earlier = earlier.plus(sums_of(rollouts), kept=KEPT)
        shadow.observe(ids_R, rewards_R)
        for name, reward, advantage in zip(ids_R, rewards_R, expected, strict=True):
            sample = next(samples)
            new = sample.completion_mask.astype(bool)
            prompt_ids, ids = sample.input_ids[~new].tolist(), sample.input_ids[new].tolist()
            assert prompt_ids == tokenizer(f"{name:03d}=")["input_ids"]
            wrote = sent[(*prompt_ids, *ids, *sample.old_log_probs[new])]  # the number of weight updates by then
            assert 1 <= sample.model_version <= wrote
            assert low_digit([tokenizer.decode(ids, skip_special_tokens=True)]) == [reward]
            assert (sample.metrics["reward"], sample.metrics["rewards/low_digit"]) == (reward, reward)
            assert sample.advantage == pytest.approx(advantage, abs=1e-9)
            assert groups.setdefault(sample.group_id, (step, name)) == (step, name)
    assert next(samples, None) is None
    assert worker._version == server.weights
    return missing


def test_beliefs_learn_success_and_the_range_is_learned(build, ledger):
    def form(completions, **_):
        return [2.5] * len(completions)

    worker = AdaptiveRolloutWorker(reward_funcs=[low_digit, form], success="low_digit", ledger=ledger)
    trainer = build(worker, max_steps=2, **SAVES)
    finish(worker, trainer)
    log = ba.Ledger.read(ledger)
    np.testing.assert_allclose(log.frame.reward.to_numpy(), 2.5 + log.frame.success.to_numpy())
    assert set(log.frame.success.tolist()) == {0.0, 1.0}
    advantages_R = np.array([sample.advantage for sample in worker.samples])
    assert 0.2 < np.mean(advantages_R < 0) < 0.8
    again = AdaptiveRolloutWorker(reward_funcs=[low_digit, form], success="form")
    with pytest.raises(ba.StateError, match=r"this trainer's about form. Pass success="):
        build(again, max_steps=3).train(resume_from_checkpoint=f"{trainer.args.output_dir}/checkpoint-1")


def test_counts_follow_all_rewards_and_samples_are_right(build, server, ledger):
    worker = AdaptiveRolloutWorker(reward_funcs=low_digit, ledger=ledger, ahead=0, metrics="all")
    trainer = build(worker)
    before = weights(trainer)
    finish(worker, trainer)
    assert trainer.state.global_step == 3
    needs = worker.policy.needs
    assert assert_right(worker, server, ledger, ba.adaptive(), needs.baseline, needs.scale) == 0
    steps = [Counter(ids) for ids, _ in steps_of(ledger)]
    assert any(len(set(counts.values())) > 1 for counts in steps)
    assert needs.min_group == 1
    assert any(1 in counts.values() for counts in steps)
    after = weights(trainer)
    assert not same_weights(before, after)
    assert same_weights(server.model.state_dict(), after)
    assert logged(trainer, "batch/samples_per_step") == [16] * 3
    assert not logged(trainer, "sample/dropped_stale_total")
    for metric in ("budgetalloc/frac_mixed", "budgetalloc/count/max", "reward", "rewards/low_digit"):
        assert logged(trainer, metric)  # in some steps: those of the worker and of the trainer do not coincide
    assert not worker._thread.is_alive()


def test_trl_finds_a_ratio_of_one_on_conversations(build):
    """With a learning rate of 0 the trainer's log-probabilities are those of the server."""
    tokenizer = make_tokenizer()
    said = "{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer.chat_template = said + "{% if add_generation_prompt %}={% endif %}"
    numbers = [f"{n:03d}" for n in range(9)]
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": x}], "answer": x} for x in numbers])
    seen = []

    def reward(prompts, completions, answer, completion_ids, **_):
        assert all(prompt[0]["content"] == x for prompt, x in zip(prompts, answer, strict=True))
        assert all(message["role"] == "assistant" for (message,) in completions)
        texts = [message["content"] for (message,) in completions]
        assert [tokenizer.decode(ids, skip_special_tokens=True) for ids in completion_ids] == texts
        seen.extend(answer)
        return low_digit(texts)

    worker = AdaptiveRolloutWorker(ba.thompson(), reward_funcs=reward)
    trainer = build(worker, data, tokenizer, learning_rate=0.0, max_steps=2, temperature=0.7)
    trainer.train()
    assert len(seen) >= 32
    assert logged(trainer, "ratio") == pytest.approx([1, 1], abs=1e-4)
    assert logged(trainer, "kl") == pytest.approx([0, 0], abs=1e-6)
    assert {len(sample.input_ids) - sample.completion_mask.sum() for sample in worker.samples} == {4}


def in_rounds(view):
    """Two rollouts for each of the first four prompts, then all others for the prompt that passed most."""
    seen = yield np.array([2, 2, 2, 2] + [0] * (len(view.ids_P) - 4))
    rest = np.zeros(len(view.ids_P), dtype=np.int64)
    rest[np.argmax(seen.successes_P)] = 8
    yield rest


POLICIES = {
    "rounds": lambda: ba.Policy("rounds", in_rounds, ba.BetaEstimator()),
    "uniform": ba.uniform,
    "pods": lambda: ba.methods.pods(generate=2),
}


@pytest.mark.parametrize("name", POLICIES)
def test_any_policy_in_micro_batches_of_any_size(build, ledger, name):
    """In rounds, with the batch's candidates alone, and with more rollouts than are trained on."""
    worker = AdaptiveRolloutWorker(POLICIES[name](), reward_funcs=low_digit, ledger=ledger)
    config = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "token_budget": 64}
    trainer, ended = build(worker, max_steps=2, **config), []
    end = worker.session.end

    def recording(*given):
        made = end(*given)
        ended.append(made.metrics["advantage/rms"])
        return made

    worker.session.end = recording
    finish(worker, trainer)
    steps = steps_of(ledger)
    assert len(steps) >= 2
    assert len(worker.samples) == 16 * len(steps)
    taken = np.array([each.advantage for each in worker.samples]).reshape(len(steps), 16)
    assert np.sqrt((taken**2).mean(axis=1)) == pytest.approx(ended, abs=1e-6)
    spent = [len(ids) for ids, _ in steps]
    assert set(spent) == {16 * worker.policy.needs.generate}
    if name == "uniform":
        assert all(set(Counter(ids).values()) == {4} for ids, _ in steps)
        shown = [set(ids) for ids, _ in steps[:6]]  # six steps of four prompts visit the whole dataset
        assert len(set().union(*shown)) == 4 * len(shown)
    if name == "rounds":
        assert {max(Counter(ids).values()) for ids, _ in steps} == {10}
    assert all(sample.model_version >= 1 for sample in worker.samples)


def test_several_reward_functions_some_asynchronous_some_none(build, ledger):
    async def half(completions, **_):
        await asyncio.sleep(0)
        return [x / 2 for x in low_digit(completions)]

    def odd_prompts(prompt_id, **_):
        return [0.5 if n % 2 else None for n in prompt_id]

    def nothing(completions, prompt_id, **_):
        return [None] * len(completions)

    def strict(prompts, completions, completion_ids, prompt_id):
        return [0.0] * len(completions)

    functions = [half, odd_prompts, nothing, strict]
    worker = AdaptiveRolloutWorker(ba.thompson(), reward_funcs=functions, ledger=ledger)
    build(worker, max_steps=1).train()
    for ids_R, rewards_R in steps_of(ledger):
        assert all(reward in ((0.5, 1.0) if n % 2 else (0.0, 0.5)) for n, reward in zip(ids_R, rewards_R, strict=True))
    assert all(np.isnan(sample.metrics["rewards/nothing"]) for sample in worker.samples)


def divides_by_zero(completions, **_):
    raise ZeroDivisionError("no answer to divide by")


@pytest.mark.parametrize(
    ("options", "refuse", "message", "cause"),
    [
        ({"reward_funcs": divides_by_zero}, None, "scoring 16 rollouts with divides_by_zero", ZeroDivisionError),
        ({}, (404, "The model `mine` does not exist."), "generating 16 rollouts", ConnectionError),
    ],
    ids=["reward", "404"],
)
def test_an_error_in_the_worker_stops_training_with_its_cause(
    build, server, monkeypatch, options, refuse, message, cause
):
    monkeypatch.setattr(completions, "ATTEMPTS", 2)
    server.refuse = refuse
    worker = AdaptiveRolloutWorker(**{"reward_funcs": low_digit, **options})
    with pytest.raises(RuntimeError, match=message) as raised:
        build(worker).train()
    assert isinstance(raised.value.__cause__, cause)
    if refuse is not None:
        assert server.url in str(raised.value.__cause__)
        assert "does not exist" in str(raised.value.__cause__)
    assert not worker._thread.is_alive()


def test_training_ends_while_the_server_is_silent(build, server):
    """`stop` does not wait for requests."""
    worker = AdaptiveRolloutWorker(reward_funcs=low_digit)
    build(worker)
    server.silent.set()
    worker.start()
    assert server.asked.wait(timeout=300)
    worker.check_health(0)
    worker._last_progress -= 10_000
    with pytest.raises(RuntimeError, match=r"generating 16 rollouts for 1.* s without a result"):
        worker.check_health(300)
    worker.stop()
    assert not worker._thread.is_alive()
    assert worker._error is None


def test_beliefs_are_saved_in_checkpoints_and_restored(build, tmp_path, ledger):
    worker = AdaptiveRolloutWorker(ba.thompson(), reward_funcs=low_digit, ledger=ledger)
    build(worker, max_steps=2, save_strategy="steps", save_steps=2).train()
    checkpoint = tmp_path / "run" / "checkpoint-2"
    saved, _ = load_state(checkpoint / STATE_FILE)
    # Complete steps, of which the trainer has had at least two.
    steps = steps_of(ledger)
    assert 2 <= saved["step"] <= len(steps)
    expected = ba.thompson()
    for ids_R, rewards_R in steps[: saved["step"]]:
        expected.observe(ids_R, rewards_R)
    assert saved["ids"] == expected.state_dict()["ids"]
    assert np.array_equal(saved["evidence"], expected.state_dict()["evidence"])

    again = AdaptiveRolloutWorker(ba.thompson(), reward_funcs=low_digit, ledger=ledger)
    trainer = build(again, max_steps=3)
    begun = []
    start = again.start
    again.start = lambda: begun.append(again.policy.state_dict()) or start()
    trainer.train(resume_from_checkpoint=str(checkpoint))
    assert trainer.state.global_step == 3
    assert begun[0]["step"] == saved["step"]
    assert np.array_equal(begun[0]["evidence"], saved["evidence"])
    assert {len(ids) for ids, _ in steps_of(ledger)} == {16}
    assert len(steps_of(ledger)) == again.policy.estimator.step > saved["step"]


def test_a_budget_that_varies_over_the_run_continues_after_a_resume(build, tmp_path, ledger):
    horizon, asked = Horizon(rollouts=400, steps=10, low=8, quantum=4, parts=[(2, 1), (8, 4)]), []

    def paced(step, spent):
        asked.append((step, spent))
        return horizon(step, spent)

    plan = list(horizon.plan())
    assert plan[2] > 2 * plan[1]
    settings = {"reward_funcs": low_digit, "rollouts_per_step": paced, "candidates": 2, "ledger": ledger}
    build(AdaptiveRolloutWorker(ba.thompson(), **settings), max_steps=2, save_strategy="steps", save_steps=2).train()
    build(again := AdaptiveRolloutWorker(ba.thompson(), **settings), max_steps=3)
    again.trainer.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    sizes = [len(ids) for ids, _ in steps_of(ledger)]
    assert len(sizes) >= 3
    assert sizes == plan[: len(sizes)]
    assert set(asked) <= {(step, sum(plan[:step])) for step in range(10)}

    with pytest.raises(ba.InputError, match=r"rollouts_per_step\(step, spent\)=0: use an integer of at least 1"):
        build(AdaptiveRolloutWorker(reward_funcs=low_digit, rollouts_per_step=lambda step, spent: 0))


def test_costs_in_seconds_of_the_server_are_learned(build):
    worker = AdaptiveRolloutWorker(reward_funcs=low_digit, cost="seconds")
    finish(worker, build(worker))
    costs = worker.session.part(Costs)
    prompt_P, answer_P = costs.lengths.expected(range(24), np.full(24, 0.5))
    assert (prompt_P == 4).all()
    assert (answer_P >= 1).all()
    assert len(costs.price.steps) > 0


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"tools": [print]}, ba.UnsupportedError, "several turns"),
        ({"cost": {"tokens": 1.0, "turns": 50.0}}, ba.UnsupportedError, "the worker's rollouts report no costs"),
        ({"caps": 4}, ba.InputError, "caps= is unknown, did you mean cap"),
        ({"reward_funcs": []}, ba.InputError, "reward_funcs is empty"),
        ({"policy": replace(ba.adaptive(), plan=(8,))}, ba.UnsupportedError, "rollouts_per_step="),
    ],
)
def test_bad_arguments_are_refused_when_the_worker_is_made(given, error, message):
    with pytest.raises(error, match=message):
        AdaptiveRolloutWorker(**{"reward_funcs": low_digit, **given})


@pytest.mark.parametrize(
    ("options", "config", "error", "message"),
    [
        ({}, {"max_steps": -1}, ba.InputError, "max_steps"),
        ({}, {"dataset": rows().to_iterable_dataset()}, ba.UnsupportedError, "IterableDataset"),
        ({}, {"dataset": rows().add_column("image", [0] * 24)}, ba.UnsupportedError, "images"),
        ({"floor": 2}, {}, ba.BudgetError, ""),
        ({"features": "level"}, {}, ba.InputError, "features='level': the train dataset has no column 'level'"),
    ],
)
def test_bad_trainers_are_refused_when_the_worker_is_attached(build, server, options, config, error, message):
    with pytest.raises(error, match=message):
        build(AdaptiveRolloutWorker(reward_funcs=low_digit, **options), **config)
    assert not server.served


def test_a_worker_must_be_attached_to_its_trainer(build, server):
    worker = AdaptiveRolloutWorker(reward_funcs=low_digit)
    trainer = build(worker, attach=False)
    with pytest.raises(ba.InputError, match=r"call worker.attach\(trainer\)"):
        trainer.train()
    with pytest.raises(ba.InputError, match="another worker"):
        AdaptiveRolloutWorker(reward_funcs=low_digit).attach(trainer)
    trainer._lora_sync = True
    with pytest.raises(ba.UnsupportedError, match="--enable-lora"):
        worker.attach(trainer)
    with pytest.raises(ba.UnsupportedError, match=r"AdaptiveRolloutWorker.*attach"):
        AdaptiveGRPOCallback(trainer)
    assert not server.served
    assert not issubclass(AsyncGRPOTrainer, GRPOTrainer)


def test_an_older_trl_is_refused(monkeypatch):
    monkeypatch.setattr(trl, "__version__", "1.15.0")
    with pytest.raises(ba.UnsupportedError, match=r"TRL 1\.15\.0.*Install trl 1\.16"):
        AdaptiveRolloutWorker(reward_funcs=low_digit)


def number_of(tokens):
    """The prompt of these tokens."""
    return int(make_tokenizer().decode(tokens).split("=")[0].replace(" ", ""))


def seeds_of(worker, step):
    """The seeds of a step's requests."""
    return np.random.default_rng([worker.trainer.args.seed, step, 0]).integers(2**63, size=16).tolist()


def assert_learned(worker, ledger):
    """The worker's beliefs are those of the whole steps in the ledger, each once."""
    expected = ba.thompson()
    for ids_R, rewards_R in steps_of(ledger):
        expected.observe(ids_R, rewards_R)
    assert worker.policy.estimator.step == expected.estimator.step
    assert np.array_equal(worker.policy.state_dict()["evidence"], expected.state_dict()["evidence"])


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


FEW = {"request_timeout": 4, "max_inflight_tasks": 8}  # only what hangs takes so long, on a busy machine too


def test_a_rollout_that_hangs_costs_its_row_alone(build, server, ledger, caplog):
    """Its group is shorter and has the advantages of what came, beliefs learn nothing of it, and a metric counts it."""
    server.hangs = lambda asked: asked["seed"] % 8 == 0
    worker = AdaptiveRolloutWorker(ba.thompson(), reward_funcs=low_digit, ledger=ledger, ahead=0)
    trainer = build(worker, max_steps=1, **FEW)
    finish(worker, trainer)
    worker.check_health(300)
    steps, needs = steps_of(ledger), worker.policy.needs
    hung = sum(seed % 8 == 0 for step in range(len(steps)) for seed in seeds_of(worker, step))
    missing = assert_right(worker, server, ledger, ba.thompson(), needs.baseline or "group", needs.scale or "group")
    assert missing >= hung > 1
    assert 0 < sum(logged(trainer, "budgetalloc/lost")) <= missing
    assert caplog.text.count("is lost") == 1
    assert "no answer in request_timeout=4 s" in caplog.text


def test_slow_prompts_and_late_weights_change_nothing_of_the_order(build, server, ledger):
    """While the slow prompts of a step are generated, the next steps are, too; the trainer gets them in order."""
    slow = set()

    def wait(asked):
        while asked["seed"] in slow and len(server.served) < 20:
            server.released.wait(0.02)
        return 0.0

    server.latency, send = wait, server.send_weights

    def late(iterator):
        send(iterator)
        server.released.wait(0.5)  # the trainer says only then that they are there

    server.send_weights = late
    worker = AdaptiveRolloutWorker(ba.thompson(), reward_funcs=low_digit, ledger=ledger)
    trainer = build(worker, max_staleness=3)
    first, second = (seeds_of(worker, step) for step in (0, 1))
    slow.update(first[::4])
    finish(worker, trainer)
    steps, policy = steps_of(ledger), ba.thompson()
    for ahead, (ids_R, _) in enumerate(steps[:3]):  # they were planned before anything was learned
        counts = policy.begin(range(24), ba.Budget(16, floor=0, cap=32, min_group=2), ahead=ahead).request()
        assert Counter(ids_R) == +Counter(dict(enumerate(counts.tolist())))
    trained = [number_of(each.input_ids[~each.completion_mask.astype(bool)]) for each in worker.samples]
    assert trained == [name for ids_R, _ in steps for name in ids_R]
    served = [asked["seed"] for asked in server.served]
    assert max(map(served.index, first)) > min(map(served.index, second))  # both at once
    ends_of_steps = np.cumsum([len(ids_R) for ids_R, _ in steps])
    for start, end in zip([0, *ends_of_steps], ends_of_steps, strict=False):
        assert len({each.model_version for each in worker.samples[start:end]}) == 1
    assert max(logged(trainer, "sample/staleness_max")) <= 3
    assert not logged(trainer, "sample/dropped_stale_total")
    sent = {(*x["prompt"], *x["ids"], *np.float32(x["log_probs"])): x["weights"] for x in server.served}
    for each in worker.samples:
        written = each.completion_mask.astype(bool)
        assert each.model_version <= sent[(*each.input_ids.tolist(), *each.old_log_probs[written])]


def test_a_server_that_is_away_for_a_while_loses_nothing(build, server, ledger):
    """Each rollout is asked for until it is there, and counted once."""
    away = []

    def leave(asked):
        if len(server.served) >= 24 and not away:  # a step and a half
            away.append(asked)
            server.refuse = (503, "restarting")
            threading.Timer(1.5, lambda: setattr(server, "refuse", None)).start()
        return 0.0

    server.latency = leave
    worker = AdaptiveRolloutWorker(ba.thompson(), reward_funcs=low_digit, ledger=ledger)
    finish(worker, build(worker, max_inflight_tasks=8))
    assert away
    assert all(len(ids) == 16 for ids, _ in steps_of(ledger))
    assert max(Counter(x["seed"] for x in server.served).values()) == 1
    assert len(worker.samples) == sum(len(ids) for ids, _ in steps_of(ledger))
    assert_learned(worker, ledger)


def test_a_worker_that_is_stopped_with_half_a_step_learns_whole_steps_only(build, server, ledger):
    worker = AdaptiveRolloutWorker(ba.thompson(), reward_funcs=low_digit, ledger=ledger)
    build(worker)
    half = set(seeds_of(worker, 1)[8:])
    server.hangs = lambda asked: asked["seed"] in half
    worker.start()
    wait_for(lambda: half <= {asked["seed"] for asked in server.asked_for} and worker.policy.estimator.step)
    worker.stop()
    assert len(steps_of(ledger)) == 1
    assert_learned(worker, ledger)
    server.hangs = lambda asked: False
    worker.start()  # the unfinished steps are forgotten, and their numbers used again
    wait_for(lambda: worker.policy.estimator.step > 2)
    worker.stop()
    assert worker._error is None
    assert_learned(worker, ledger)


def test_a_server_that_dies_costs_the_rows_that_had_not_come_and_then_ends_the_run(build, server, ledger, monkeypatch):
    """The half step is trained on with short groups; the run ends with the first step of which nothing came."""
    monkeypatch.setattr(completions, "ATTEMPTS", 2)

    def die(asked):
        if len(server.served) >= 24:
            server.refuse = (503, "gone")
        return 0.0

    server.latency = die
    worker = AdaptiveRolloutWorker(ba.thompson(), reward_funcs=low_digit, ledger=ledger)
    with pytest.raises(RuntimeError) as raised:
        finish(worker, build(worker, max_inflight_tasks=4, max_steps=50))
    assert isinstance(raised.value.__cause__, ConnectionError)
    steps = steps_of(ledger)
    assert len(steps) == 2
    assert len(steps[1][0]) < 16
    assert sum(len(ids) for ids, _ in steps) == len(worker.samples) == len(server.served)
    assert_learned(worker, ledger)


def with_subjects():
    """The usual prompts, of which every third is code and the others are math."""
    return rows().add_column("subject", ["code" if n % 3 == 0 else "math" for n in range(24)])


def subject_of(sample):
    return "code" if number_of(sample.input_ids[~sample.completion_mask.astype(bool)]) % 3 == 0 else "math"


def test_age_and_lag_are_those_of_the_moment_when_the_trainer_takes_a_rollout(build, ledger):
    """All 16 rollouts are requested at the trainer's step 0 from version 1 of the model, and wait in the queue. It
    takes 5 at once and 6 at step 2 with version 4, drops 4 at step 3, which are too old then, and leaves one."""
    worker = AdaptiveRolloutWorker(ba.uniform(), reward_funcs=low_digit, ledger=ledger, ahead=0, domain="subject")
    trainer = build(worker, with_subjects(), max_staleness=3)
    worker.update_model_version(1)
    worker.start()
    wait_for(lambda: worker.rollout_buffer.qsize() == 16)
    worker.stop()
    for step, version, count in ((0, 1, 5), (2, 4, 6), (3, 5, 4)):
        trainer.state.global_step = step
        worker.update_model_version(version)
        for _ in range(count):
            worker.rollout_buffer.get()
    worker.stop()
    subjects, domains = list(map(subject_of, worker.samples)), ba.Ledger.read(ledger).domains
    assert {name: each["trained"] for name, each in domains.items()} == Counter(subjects[:11])
    taken = np.array([(0, 0)] * 5 + [(2, 3)] * 6)  # age and lag
    for name, found in domains.items():
        assert found["requested"] == found["came"] == subjects.count(name) > 0
        expected = taken[[subject == name for subject in subjects[:11]]].mean(axis=0)
        np.testing.assert_allclose([found["age"], found["lag"]], expected)


def test_what_the_trainer_takes_is_counted_by_domain(build, ledger):
    """With a queue that is longer than the trainer's `max_staleness` allows, so that some are dropped."""
    worker = AdaptiveRolloutWorker(
        ba.thompson(), reward_funcs=low_digit, ledger=ledger, ahead=64, domain="subject", metrics="all"
    )
    trainer = build(worker, with_subjects(), max_staleness=1, max_steps=4)
    seen, take = [], worker.rollout_buffer.taken

    def watch(sample, prompt, step):
        seen.append((subject_of(sample), trainer.state.global_step, trainer.model_version - sample.model_version))
        take(sample, prompt, step)

    worker.rollout_buffer.taken = watch
    finish(worker, trainer)
    domains = ba.Ledger.read(ledger).domains
    kept = [(subject, lag) for subject, _, lag in seen if lag <= 1]
    dropped = len(seen) - len(kept)
    assert dropped == sum(logged(trainer, "sample/dropped_stale_total"))
    assert sum(each["trained"] for each in domains.values()) == len(kept) >= 4 * 16
    for name, found in domains.items():
        lags = [lag for subject, lag in kept if subject == name]
        assert found["trained"] == len(lags)
        assert found["lag"] == pytest.approx(np.mean(lags))
        assert found["lag"] <= found["age"] + 1  # the model has its first version before the first step
        assert found["came"] == sum(subject_of(sample) == name for sample in worker.samples)
        assert logged(trainer, f"budgetalloc/domain/age/{name}")
