"""TRL's real AsyncGRPOTrainer with budgetalloc's rollout worker, against a server that really generates.

Two things of that trainer want a GPU, and only those are replaced (`on_cpu`): its attention kernel, and a look-up of
the device's name for a metric.
"""

import asyncio
import copy
import queue
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
import trl
from completions_server import AttentionOnCpu, serving
from conftest import low_digit, make_tokenizer, rows
from datasets import Dataset
from one_step import rollouts_of
from packaging.version import Version
from trl import GRPOTrainer

import budgetalloc as ba
from budgetalloc import policies
from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.beliefs.state import load_state
from budgetalloc.policies.batch_advantages import batch_advantages
from budgetalloc.policies.costs.pacing import Horizon, phases
from budgetalloc.policies.pacing_policy import Paced
from budgetalloc.training.belief_checkpoint import STATE_FILE
from budgetalloc.trl import AdaptiveGRPOCallback, AdaptiveRolloutWorker
from budgetalloc.trl.experimental import completions

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
    """`build(worker, dataset=..., **AsyncGRPOConfig)` makes a trainer that the worker serves."""

    def make(worker, dataset=None, tokenizer=None, attach=True, **config):
        settings = {
            "output_dir": str(tmp_path / "run"),
            "per_device_train_batch_size": 16,
            "num_generations": 4,
            "max_completion_length": 4,
            "learning_rate": 1e-2,
            "max_steps": 3,
            "save_strategy": "no",
            "report_to": "none",
            "use_cpu": True,
            "bf16": False,
            "disable_tqdm": True,
            "token_budget": 0,
            "seed": 7,
            "vllm_server_base_url": server.url,
        }
        trainer = AsyncGRPOTrainer(
            str(model_folder),
            args=AsyncGRPOConfig(**{**settings, **config}),
            train_dataset=rows() if dataset is None else dataset,
            processing_class=make_tokenizer() if tokenizer is None else tokenizer,
            rollout_worker=worker,
            weight_transfer=server,
        )
        if attach:
            worker.attach(trainer)
        worker.samples = []  # all that the trainer was given
        worker.rollout_buffer = trainer.rollout_queue = Recording(worker.samples)
        return trainer

    return make


class Recording(queue.Queue):
    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def put(self, sample, *args, **kw):
        self.seen.append(sample)
        super().put(sample, *args, **kw)


def steps_of(path):
    """Step by step: the prompts and rewards of all its rollouts."""
    log = ba.Ledger.read(path)
    ids_R = np.array(log.ids_R)
    return [(ids_R[log.step_R == at].tolist(), log.rewards_R[log.step_R == at]) for at in np.unique(log.step_R)]


def assert_right(worker, server, ledger, shadow, baseline, scale, total=16):
    """Each step spends its budget as a policy of our own would that saw the same rewards; and each sample has its
    prompt's tokens, the server's log-probabilities, its reward and its advantage."""
    tokenizer = make_tokenizer()
    worker._thread.join()
    sent = {(*x["prompt"], *x["ids"], *np.float32(x["log_probs"])): x["weights"] for x in server.served}
    samples, groups, earlier = iter(worker.samples), {}, Sums()
    for step, (ids_R, rewards_R) in enumerate(steps_of(ledger)):
        assert len(ids_R) == total
        budget = ba.Budget(total, floor=0, cap=32, min_group=shadow.needs.min_group)
        opened = shadow.begin(range(24), budget)
        wanted = dict(zip(range(24), opened.request().tolist(), strict=True))
        assert Counter(ids_R) == {name: n for name, n in wanted.items() if n}
        rollouts = replace(
            rollouts_of(rewards_R, ids_R, belief_R=opened.belief_of(ids_R), earlier=earlier),
            baseline_R=opened.baseline_belief(ids_R, rewards_R, earlier),
            prior=shadow.estimator.prior_now,
        )
        expected = batch_advantages(rollouts, baseline, scale).values_R
        earlier = earlier.faded().with_sums(rollouts.sums())
        shadow.observe(ids_R, rewards_R)
        for name, reward, advantage in zip(ids_R, rewards_R, expected, strict=True):
            sample = next(samples)
            new = sample.completion_mask.astype(bool)
            prompt_ids, ids = sample.input_ids[~new].tolist(), sample.input_ids[new].tolist()
            assert prompt_ids == tokenizer(f"{name:03d}=")["input_ids"]
            wrote = sent[(*prompt_ids, *ids, *sample.old_log_probs[new])]  # how often weights had come by then
            assert 1 <= sample.model_version <= wrote
            assert low_digit([tokenizer.decode(ids, skip_special_tokens=True)]) == [reward]
            assert (sample.metrics["reward"], sample.metrics["rewards/low_digit"]) == (reward, reward)
            assert sample.advantage == pytest.approx(advantage, abs=1e-9)
            assert groups.setdefault(sample.group_id, (step, name)) == (step, name)
    assert next(samples, None) is None
    assert worker._version == server.weights


@pytest.mark.parametrize("success", ["low_digit", 3.0, lambda rewards: rewards["low_digit"]])
def test_success_is_what_beliefs_learn_and_the_range_is_learned(build, server, tmp_path, success):
    def form(completions, **_):
        return [2.5] * len(completions)

    worker = AdaptiveRolloutWorker(reward_funcs=[low_digit, form], success=success, ledger=tmp_path / "ledger.jsonl")
    trainer = build(worker, max_steps=2, save_strategy="steps", save_steps=1)
    trainer.train()
    worker._thread.join()
    log = ba.Ledger.read(tmp_path / "ledger.jsonl")
    np.testing.assert_allclose(log.rewards_R, 2.5 + log.success_R)
    assert set(log.success_R.tolist()) == {0.0, 1.0}
    advantages_R = np.array([sample.advantage for sample in worker.samples])
    assert 0.2 < np.mean(advantages_R < 0) < 0.8
    again = AdaptiveRolloutWorker(reward_funcs=[low_digit, form], success="form")
    with pytest.raises(ba.StateError, match=r"this trainer's about form=1. Pass success="):
        build(again, max_steps=3).train(resume_from_checkpoint=f"{trainer.args.output_dir}/checkpoint-1")


@pytest.mark.parametrize("make", [ba.thompson, ba.adaptive])
def test_counts_follow_all_rewards_and_samples_are_right(build, server, tmp_path, make):
    ledger = tmp_path / "ledger.jsonl"
    worker = AdaptiveRolloutWorker(make(), reward_funcs=low_digit, ledger=ledger)
    trainer = build(worker)
    before = copy.deepcopy(trainer.model.state_dict())
    trainer.train()
    assert trainer.state.global_step == 3
    needs = worker.policy.needs
    shadow = make()
    assert_right(worker, server, ledger, shadow, needs.baseline or "group", needs.scale or "group")
    steps = [Counter(ids) for ids, _ in steps_of(ledger)]
    assert any(len(set(counts.values())) > 1 for counts in steps)
    if make is ba.adaptive:
        assert needs.min_group == 1
        assert any(1 in counts.values() for counts in steps)
    after = trainer.model.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert all(torch.equal(value, after[name]) for name, value in server.model.state_dict().items())
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert all(entry["batch/samples_per_step"] == 16 for entry in logs)
    assert all("sample/dropped_stale_total" not in entry for entry in logs)
    told = set().union(*logs)  # a step of the worker's ends before one of the trainer's, or after
    assert {"budgetalloc/frac_mixed", "budgetalloc/count/max", "reward", "rewards/low_digit"} <= told
    assert not worker._thread.is_alive()


def test_trl_finds_the_ratio_of_one_on_conversations(build, server):
    """Without a learning rate the trainer's log-probabilities of every token are those that the server sent."""
    tokenizer = make_tokenizer()
    said = "{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer.chat_template = said + "{% if add_generation_prompt %}={% endif %}"
    numbers = [f"{n:03d}" for n in range(9)]
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": x}], "answer": x} for x in numbers])
    seen = []

    def reward(prompts, completions, answer, completion_ids, **_):
        assert all(prompt[0]["content"] == x for prompt, x in zip(prompts, answer, strict=True))
        assert all(message["role"] == "assistant" for (message,) in completions)
        assert [tokenizer.decode(ids, skip_special_tokens=True) for ids in completion_ids] == [
            message["content"] for (message,) in completions
        ]
        seen.extend(answer)
        return low_digit([message["content"] for (message,) in completions])

    worker = AdaptiveRolloutWorker(ba.thompson(), reward_funcs=reward)
    trainer = build(worker, data, tokenizer, learning_rate=0.0, max_steps=2, temperature=0.7)
    trainer.train()
    assert len(seen) >= 32
    for entry in trainer.state.log_history:
        if "loss" in entry:
            assert entry["ratio"] == pytest.approx(1, abs=1e-4)
            assert entry["kl"] == pytest.approx(0, abs=1e-6)
    assert {len(sample.input_ids) - sample.completion_mask.sum() for sample in worker.samples} == {4}


def in_rounds(view):
    """A pilot of two for the first four prompts, then all the rest for the one that passed most."""
    tally = yield np.array([2, 2, 2, 2] + [0] * (len(view.ids_P) - 4))
    rest = np.zeros(len(view.ids_P), dtype=np.int64)
    rest[np.argmax(tally.successes_P)] = 8
    yield rest


@pytest.mark.parametrize("name", ["rounds", "reinforce_ada", "uniform", "pods"])
def test_any_policy_in_micro_batches_of_any_size(build, server, tmp_path, name):
    """In rounds, with the batch's candidates alone, and generating more than is trained on."""
    makes = {
        "rounds": lambda: ba.Policy("rounds", in_rounds, ba.BetaEstimator()),
        "reinforce_ada": lambda: policies.reinforce_ada(group=4, stages=2),
        "uniform": ba.uniform,
        "pods": lambda: policies.pods(generate=2),
    }
    ledger = tmp_path / "ledger.jsonl"
    worker = AdaptiveRolloutWorker(makes[name](), reward_funcs=low_digit, ledger=ledger)
    trainer = build(worker, max_steps=2, per_device_train_batch_size=8, gradient_accumulation_steps=2, token_budget=64)
    trainer.train()
    steps = steps_of(ledger)
    worker._thread.join()
    assert len(steps) >= 2
    assert len(worker.samples) == 16 * len(steps)
    spent = [len(ids) for ids, _ in steps]
    if name == "reinforce_ada":  # stops where it has enough of a prompt
        assert all(16 <= n <= 16 * worker.policy.needs.generate for n in spent)
    else:
        assert set(spent) == {16 * worker.policy.needs.generate}
    if name == "uniform":
        assert all(set(Counter(ids).values()) == {4} for ids, _ in steps)
        shown = [set(ids) for ids, _ in steps[:6]]  # six steps of four prompts are a lap of the dataset
        assert len(set().union(*shown)) == 4 * len(shown)
    if name == "rounds":
        best = [max(Counter(ids).values()) for ids, _ in steps]
        assert set(best) == {10}
    assert all(sample.model_version >= 1 for sample in worker.samples)


def test_several_reward_functions_some_asynchronous_some_silent(build, server, tmp_path):
    ledger = tmp_path / "ledger.jsonl"

    async def half(completions, **_):
        await asyncio.sleep(0)
        return [x / 2 for x in low_digit(completions)]

    def odd_prompts(prompt_id, **_):
        return [0.5 if n % 2 else None for n in prompt_id]

    def nothing(completions, prompt_id, **_):
        return [None] * len(completions)

    worker = AdaptiveRolloutWorker(ba.thompson(), reward_funcs=[half, odd_prompts, nothing], ledger=ledger)
    build(worker, max_steps=1).train()
    for ids_R, rewards_R in steps_of(ledger):
        assert all(reward in ((0.5, 1.0) if n % 2 else (0.0, 0.5)) for n, reward in zip(ids_R, rewards_R, strict=True))
    assert all(np.isnan(sample.metrics["rewards/nothing"]) for sample in worker.samples)
    unscored = AdaptiveRolloutWorker(ba.thompson(), reward_funcs=nothing)
    build(unscored, max_steps=1).train()
    assert all(sample.advantage == 0 and np.isnan(sample.metrics["reward"]) for sample in unscored.samples)


def test_an_exception_in_a_reward_function_stops_training_with_its_cause(build):
    def broken(completions, **_):
        raise ZeroDivisionError("no answer to divide by")

    worker = AdaptiveRolloutWorker(reward_funcs=broken)
    with pytest.raises(RuntimeError, match="scoring 16 rollouts with broken") as raised:
        build(worker).train()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert not worker._thread.is_alive()


def test_a_success_that_is_none_stops_training(build):
    with pytest.raises(RuntimeError) as raised:
        build(AdaptiveRolloutWorker(reward_funcs=low_digit, success=lambda rewards: 2 + rewards["low_digit"])).train()
    assert isinstance(raised.value.__cause__, ba.InputError)


def test_a_request_that_the_server_refuses_stops_training(build, server):
    server.refuse = (404, "The model `mine` does not exist.")
    with pytest.raises(RuntimeError, match="generating 16 rollouts") as raised:
        build(AdaptiveRolloutWorker(reward_funcs=low_digit)).train()
    assert "does not exist" in str(raised.value.__cause__)
    assert server.url in str(raised.value.__cause__)


def test_a_server_in_trouble_is_asked_again(build, server, monkeypatch):
    """Once; then it stays in trouble."""
    monkeypatch.setattr(completions, "ATTEMPTS", 2)
    server.refuse = (503, "loading")
    with pytest.raises(RuntimeError) as raised:
        build(AdaptiveRolloutWorker(reward_funcs=low_digit)).train()
    assert "503" in str(raised.value.__cause__)


def test_training_ends_while_the_server_is_silent(build, server):
    """`stop` does not wait for answers."""
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


def test_beliefs_go_into_checkpoints_and_come_back(build, server, tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    worker = AdaptiveRolloutWorker(ba.thompson(), reward_funcs=low_digit, ledger=ledger)
    build(worker, max_steps=2, save_strategy="steps", save_steps=2).train()
    checkpoint = tmp_path / "run" / "checkpoint-2"
    saved, _ = load_state(checkpoint / STATE_FILE)
    # Whole steps, of which the trainer has had at least two.
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

    for allow in (False, True):
        other = AdaptiveRolloutWorker(ba.thompson(), reward_funcs=low_digit, allow_dataset_change=allow)
        trainer = build(other, rows(30), max_steps=3)
        if allow:
            trainer.train(resume_from_checkpoint=str(checkpoint))
            assert other.policy.estimator.step > saved["step"]
        else:
            with pytest.raises(ba.StateError, match="same dataset"):
                trainer.train(resume_from_checkpoint=str(checkpoint))


@pytest.mark.parametrize("candidates", ["all", 2])
def test_a_budget_that_moves_over_the_run_and_goes_on_after_a_resume(build, tmp_path, candidates):
    horizon, ledger, asked = Horizon(rollouts=400, steps=10, low=8, quantum=4), tmp_path / "ledger.jsonl", []

    def paced(step, spent):
        asked.append((step, spent))
        return horizon.fit(phases(horizon, [(2, 1), (8, 4)], step, spent), step, spent)

    plan = [horizon.fit(phases(horizon, [(2, 1), (8, 4)], 0, 0), 0, 0)]
    while len(plan) < 10:
        plan.append(paced(len(plan), sum(plan)))
    assert plan[2] > 2 * plan[1]
    asked.clear()
    settings = {"reward_funcs": low_digit, "rollouts_per_step": paced, "candidates": candidates, "ledger": ledger}
    build(AdaptiveRolloutWorker(ba.thompson(), **settings), max_steps=2, save_strategy="steps", save_steps=2).train()
    build(again := AdaptiveRolloutWorker(ba.thompson(), **settings), max_steps=3)
    again.trainer.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    sizes = [len(ids) for ids, _ in steps_of(ledger)]
    assert len(sizes) >= 3
    assert sizes == plan[: len(sizes)]
    assert set(asked) <= {(step, sum(plan[:step])) for step in range(10)}

    with pytest.raises(ba.InputError, match=r"rollouts_per_step\(step, spent\)=0: use an integer of at least 1"):
        build(AdaptiveRolloutWorker(reward_funcs=low_digit, rollouts_per_step=lambda step, spent: 0))


def test_shares_by_domain_are_kept_at_every_step(build, tmp_path):
    dataset = rows().add_column("subject", ["math"] * 4 + ["code"] * 12 + ["chat"] * 8)
    ledger = tmp_path / "ledger.jsonl"
    worker = AdaptiveRolloutWorker(
        reward_funcs=low_digit, domain="subject", quotas={"math": (0.5, 0.625), "code": (0.125, 0.25)}, ledger=ledger
    )
    trainer = build(worker, dataset)
    trainer.train()
    worker._thread.join()
    for ids_R, _ in steps_of(ledger):
        shares = Counter("math" if name < 4 else "code" if name < 16 else "chat" for name in ids_R)
        assert len(ids_R) == 16
        assert 8 <= shares["math"] <= 10
        assert 2 <= shares["code"] <= 4
    with pytest.raises(ba.InputError, match="no prompt has this domain, did you mean math"):
        build(AdaptiveRolloutWorker(reward_funcs=low_digit, domain="subject", quotas={"mats": (0, 1)}), dataset)


@pytest.mark.parametrize("cost", ["tokens", "seconds"])
def test_costs_are_learned_and_saved(build, cost):
    worker = AdaptiveRolloutWorker(reward_funcs=low_digit, cost=cost)
    trainer = build(worker, save_strategy="steps", save_steps=2)
    trainer.train()
    worker._thread.join()
    prompt_P, answer_P = worker.costs.lengths.expected(range(24), np.full(24, 0.5))
    assert (prompt_P == 4).all()
    assert (answer_P >= 1).all()
    state, _ = load_state(f"{trainer.args.output_dir}/checkpoint-2/{STATE_FILE}")
    assert set(state["lengths"]["ids"]) <= set(state["ids"])
    assert ("seconds" in state) == (cost == "seconds")
    other = AdaptiveRolloutWorker(reward_funcs=low_digit, cost=cost)
    build(other).train(resume_from_checkpoint=f"{trainer.args.output_dir}/checkpoint-2")
    assert len(other.costs.lengths) >= len(state["lengths"]["ids"])


def test_what_is_refused_before_anything_is_spent(build, server):
    with pytest.raises(ba.UnsupportedError, match="several turns"):
        AdaptiveRolloutWorker(reward_funcs=low_digit, tools=[print])
    with pytest.raises(ba.UnsupportedError, match="several turns"):
        AdaptiveRolloutWorker(reward_funcs=low_digit, environment_factory=object)
    with pytest.raises(ba.InputError, match="reward_funcs is empty"):
        AdaptiveRolloutWorker(reward_funcs=[])
    with pytest.raises(ba.UnsupportedError, match=r"is Paced: give the worker .* rollouts_per_step="):
        AdaptiveRolloutWorker(Paced(**vars(ba.adaptive()), plan=(8,)), reward_funcs=low_digit)
    with pytest.raises(ba.UnsupportedError, match="quotas with candidates=2: the worker's candidates go round"):
        AdaptiveRolloutWorker(reward_funcs=low_digit, candidates=2, domain="subject", quotas={"math": (0, 1)})
    refused = [
        ({"max_steps": -1}, rows(), ba.InputError, "max_steps"),
        ({}, rows().to_iterable_dataset(), ba.UnsupportedError, "IterableDataset"),
        ({}, rows().add_column("image", [0] * 24), ba.UnsupportedError, "images"),
    ]
    for config, dataset, error, why in refused:
        with pytest.raises(error, match=why):
            build(AdaptiveRolloutWorker(reward_funcs=low_digit), dataset, **config)
    with pytest.raises(ba.BudgetError):
        build(AdaptiveRolloutWorker(reward_funcs=low_digit, floor=2))
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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policy": "adaptve"}, r"policy 'adaptve' is unknown, did you mean adaptive\?"),
        ({"policy": 5}, "policy=5 is of type int"),
        ({"ledger": "/dev/null/ledger"}, "ledger='/dev/null/ledger' cannot be written"),
        ({"success": "right"}, "success='right': the trainer has no reward function of this name"),
    ],
)
def test_what_cannot_be_is_refused_when_the_worker_is_made(given, message):
    with pytest.raises(ba.InputError, match=message):
        AdaptiveRolloutWorker(reward_funcs=low_digit, **given)
    assert AdaptiveRolloutWorker("thompson", reward_funcs=low_digit).policy.name == ba.thompson().name
