"""The callback on TRL's real trainer: what it changes, and what it leaves unchanged."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from conftest import SAVES, AroundSteps, Watched, attach, logged, rows, same_weights, trained, weights
from datasets import Dataset

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"scale_rewards": "batch", "loss_type": "grpo"},
        {"multi_objective_aggregation": "normalize_then_sum"},
        {"steps_per_generation": 4, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
        {"num_iterations": 2, "beta": 0.1},
        {
            "dataset": Dataset.from_list([{"prompt": f"{n % 5}="} for n in range(24)]),
            "eval_dataset": rows(4),
            "eval_strategy": "steps",
            "eval_steps": 2,
            "per_device_eval_batch_size": 4,
        },
    ],
)
def test_uniform_changes_nothing(build, config):
    """Compares weights too: at a ratio of 1 a loss is the mean advantage, whatever the prompts were."""
    alone = build(**config)
    alone.train()
    attached = trained(build(**config), ba.uniform()).trainer
    assert same_weights(weights(alone), weights(attached))
    for plain, ours in zip(alone.state.log_history, attached.state.log_history, strict=True):
        same = [key for key in plain if not key.endswith(("_time", "_runtime", "_per_second"))]
        assert {key: plain[key] for key in same} == {key: ours[key] for key in same}
    assert len(logged(attached, "eval_reward")) == (2 if "eval_dataset" in config else 0)


@pytest.mark.parametrize("scale", ["whiten", "whiten_tokens"])
@pytest.mark.parametrize("baseline", ["batch", "posterior"])
def test_whitened_advantages_count_the_tokens_of_each_rollout(build, baseline, scale):
    """The loss receives advantages centred over the rollouts, or over the tokens that TRL's loss averages."""

    def reward(completion_ids, **_):
        return [float(sum(x) % 2) for x in completion_ids]

    seen = Watched(trainer := build(reward=reward, max_steps=3, max_completion_length=16, temperature=2.0))
    trained(trainer, ba.thompson(), candidates="all", baseline=baseline, scale=scale, min_group=1)
    assert len(seen.batches) == 3
    uneven = 0
    for batch in seen.batches:
        tokens = batch["completion_mask"].sum(dim=1).double()
        counted = tokens if scale == "whiten_tokens" else tokens * 0 + 1
        advantages = batch["advantages"].double()
        uneven += len(set(tokens.tolist())) > 1
        mean = float(counted @ advantages / counted.sum())
        assert mean == pytest.approx(0, abs=1e-5)
        assert float(counted @ advantages**2 / (counted.sum() - 1)) == pytest.approx(1, abs=0.01)
    assert uneven


def test_defaults_are_what_the_policy_asks_for(build):
    options = AdaptiveGRPOCallback(build()).options
    assert (options.bounds.candidates, options.baseline) == ("all", "posterior")
    assert (options.scale, options.weight) == ("none", "rollout")
    options = AdaptiveGRPOCallback(build(scale_rewards="none"), ba.uniform()).options
    assert (options.bounds.candidates, options.baseline, options.scale, options.keep_batch) == (1, None, "none", True)
    for given in ({"scale": "none"}, {"weight": "rollout"}):  # the trainer's own: its advantages stay
        assert AdaptiveGRPOCallback(build(scale_rewards="none"), ba.uniform(), **given).options.baseline is None
    for given in ({"scale": "group"}, {"weight": "prompt"}):
        assert AdaptiveGRPOCallback(build(scale_rewards="none"), ba.uniform(), **given).options.baseline == "group"
    options = AdaptiveGRPOCallback(build(scale_rewards="none"), ba.uniform(), candidates=2).options
    assert (options.baseline, options.scale, options.keep_batch) == ("group", "none", False)
    options = AdaptiveGRPOCallback(build(), baseline="loo", scale="none", weight="prompt", candidates=3).options
    assert (options.bounds.candidates, options.baseline, options.scale, options.weight) == (3, "loo", "none", "prompt")


def test_candidates(build, monkeypatch):
    """1 keeps to the batch's prompts, k offers k times as many, "all" offers the whole dataset."""
    offered, begin = [], ba.Policy.begin
    monkeypatch.setattr(
        ba.Policy, "begin", lambda policy, ids, *a, **k: offered.append(ids) or begin(policy, ids, *a, **k)
    )
    for candidates in (1, 3, "all"):
        trained(build(rows(40), max_steps=1), ba.thompson(), candidates=candidates)
    of_batch, three_times, every = map(list, offered)
    assert len(of_batch) == 4
    assert len(three_times) == len(set(three_times)) == 12
    assert three_times[:4] == of_batch
    assert sorted(every) == list(range(40))


def test_metrics_and_completions_table(build, ledger):
    trainer = build(max_steps=3, per_device_train_batch_size=32, log_completions=True, scale_rewards="none")
    trained(trainer, ba.thompson(), scale="none", ledger=ledger)
    entries = [entry for entry in trainer.state.log_history if "loss" in entry]
    for (step, taken), entry in zip(ba.Ledger.read(ledger).frame.groupby("step"), entries, strict=True):
        groups = taken.groupby("prompt").reward
        equal = (groups.transform("nunique") == 1) & (groups.transform("size") > 1)
        assert "frac_reward_zero_std" not in entry  # TRL treated each row as a group
        assert entry["budgetalloc/frac_reward_zero_std"] == pytest.approx(equal.mean())
        assert entry["budgetalloc/prompts"] == groups.ngroups
        assert entry["budgetalloc/count/max"] == groups.size().max()
        assert entry["budgetalloc/brier"] == pytest.approx(np.mean((taken.predicted - taken.reward) ** 2), abs=1e-5)
        assert 0 < entry["budgetalloc/seconds"] < 1
        table = pd.read_parquet(f"{trainer.args.output_dir}/completions/completions_{step + 1:05d}.parquet")
        expected = ba.group_advantages(table["low_digit"].to_numpy(), table["prompt"].tolist(), "group", "none")
        assert table["advantage"].to_numpy() == pytest.approx(expected, abs=1e-6)


WRAPPED = ("_generate_and_score_completions", "_calculate_rewards", "_generate", "_save_checkpoint", "train")


@pytest.mark.parametrize("when", ["before", "after"])
def test_wrappers_of_others_are_called_and_stay(build, when):
    """Whether other code wraps TRL's methods before the callback is made or after it."""
    trainer = build(max_steps=2, **SAVES)
    calls, wrappers = Counter(), {}

    def wrap(name):
        own = getattr(trainer, name)

        def wrapper(*args, **named):
            calls[name] += 1
            return own(*args, **named)

        wrappers[name] = wrapper
        setattr(trainer, name, wrapper)

    if when == "after":
        attach(trainer)
    for name in WRAPPED:
        wrap(name)
    if when == "before":
        attach(trainer)
    trainer.train()
    assert calls == dict.fromkeys(WRAPPED, 2) | {"train": 1}
    for name in WRAPPED:  # either they stay on the trainer, or what took their place calls them
        found = vars(trainer)[name]
        assert getattr(found, "keywords", {}).get("own", found) is wrappers[name]


def test_a_second_training_decides_once_a_step_under_a_wrapper_of_the_first(build):
    trainer, policy = build(max_steps=2), ba.thompson()
    attach(trainer, policy)
    seen = []

    def whole(inputs, generate):
        seen.append(len(inputs))
        return generate(inputs)

    trainer.add_callback(AroundSteps(trainer, whole))
    trainer.train()
    assert seen == [16, 16]
    assert policy.estimator.step == 2
    trainer.train()
    assert seen == [16] * (2 + 2 * 2)  # now there are two wrappers
    assert policy.estimator.step == 4


def test_server_mode_gets_one_generation_a_row(build):
    """TRL's vLLM client takes each num_generations-th row as a prompt, so in training it must receive 1."""
    sizes = []
    config = {"eval_strategy": "steps", "eval_steps": 1, "eval_dataset": rows(4), "per_device_eval_batch_size": 4}
    trainer = build(max_steps=1, **config)
    single = trainer._generate_single_turn
    trainer._generate_single_turn = lambda ids, images, fields, n, **kw: (
        sizes.append(n) or single(ids, images, fields, n, **kw)
    )
    trained(trainer)
    assert sizes[0] == 1
    assert set(sizes[1:]) == {4}


def test_the_ledger_replays_to_the_same_decisions(build, ledger):
    """A fresh policy that observes the logged rewards predicts the logged rates and decides the logged counts."""
    seen = Watched(trainer := build(rows(40), max_steps=6, per_device_train_batch_size=32))
    trained(trainer, ba.adaptive(seed=5), ledger=ledger)
    log, policy = ba.Ledger.read(ledger), ba.adaptive(seed=5)
    for step in range(6):
        here = np.flatnonzero(log.frame.step.to_numpy() == step)
        ids = [log.frame.prompt.tolist()[at] for at in here]
        assert seen.prompts[step] == [f"{name:03d}=" for name in ids]
        assert policy.belief(ids).mean == pytest.approx(log.frame.predicted.to_numpy()[here], abs=1e-6)
        counts = policy.allocate(range(40), ba.Budget(32, floor=0, cap=32, min_group=1))
        assert Counter(ids) == {name: n for name, n in enumerate(counts.tolist()) if n}
        policy.observe(ids, log.frame.reward.to_numpy()[here])
