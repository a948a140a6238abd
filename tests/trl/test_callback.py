"""The callback on TRL's real trainer: what changes, and what must not."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import AroundSteps, low_digit, rows
from datasets import Dataset
from trl import GRPOTrainer

import budgetalloc as ba
from budgetalloc import policies
from budgetalloc.trl import AdaptiveGRPOCallback
from budgetalloc.trl.experimental.buffers import CorrectResponseBuffer


def watch(trainer):
    """Records what really reaches the model: the prompts of every generation, and the advantages of every loss."""
    seen = {"prompts": [], "batches": []}
    generate, loss = trainer._generate, trainer._compute_loss

    def recording_generate(prompts):
        if trainer.model.training:
            seen["prompts"].append(list(prompts))
        return generate(prompts)

    def recording_loss(model, inputs):
        seen["batches"].append(inputs)
        return loss(model, inputs)

    trainer._generate = recording_generate
    trainer._compute_loss = recording_loss
    return seen


def attach(trainer, *args, **options):
    callback = AdaptiveGRPOCallback(trainer, *args, **options)
    trainer.add_callback(callback)
    return callback


def assert_same_run(alone, attached):
    """Losses alone would not tell: at a ratio of 1 they are the mean advantage, whatever the prompts were."""
    assert all(torch.equal(a, b) for a, b in zip(alone.model.parameters(), attached.model.parameters(), strict=True))
    for plain, ours in zip(alone.state.log_history, attached.state.log_history, strict=True):
        same = [key for key in plain if not key.endswith(("_time", "_runtime", "_per_second"))]
        assert {key: plain[key] for key in same} == {key: ours[key] for key in same}


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"scale_rewards": "batch", "loss_type": "grpo"},
        {"multi_objective_aggregation": "normalize_then_sum"},
        {"steps_per_generation": 4, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
        {"num_iterations": 2, "beta": 0.1},
    ],
)
def test_uniform_changes_nothing(build, config):
    alone = build(**config)
    alone.train()
    attached = build(**config)
    attach(attached, ba.uniform())
    attached.train()
    assert_same_run(alone, attached)


def test_uniform_changes_nothing_with_duplicate_prompts_and_evaluation(build):
    data = Dataset.from_list([{"prompt": f"{n % 5}="} for n in range(24)])
    config = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 4}
    alone = build(data, eval_dataset=rows(4), **config)
    alone.train()
    attached = build(data, eval_dataset=rows(4), **config)
    attach(attached, ba.uniform())
    attached.train()
    assert_same_run(alone, attached)
    rewards = [[e["eval_reward"] for e in t.state.log_history if "eval_reward" in e] for t in (alone, attached)]
    assert rewards[0] == rewards[1]
    assert len(rewards[0]) == 2


def test_uniform_with_a_scale_of_its_own_is_a_trainer_with_that_scale(build):
    """A setting that is given is used, though uniform leaves the trainer's batch as it is."""
    alone = build(scale_rewards="none")
    alone.train()
    attached = build()
    assert attached.scale_rewards == "group"
    attach(attached, ba.uniform(), scale="none")
    attached.train()
    for a, b in zip(alone.model.parameters(), attached.model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_counts_follow_the_newest_posterior(build):
    """Prompt 0 always passes, prompt 1 always fails, the others are coins and must get more from the second visit."""

    def reward(completions, prompt_id, **_):
        coins = low_digit(completions)
        return [{0: 1.0, 1: 0.0}.get(name, coin) for name, coin in zip(prompt_id, coins, strict=True)]

    trainer = build(
        rows(4), reward, max_steps=6, per_device_train_batch_size=32, num_generations=8, shuffle_dataset=False
    )
    seen = watch(trainer)
    callback = attach(trainer, ba.knapsack(value=ba.success_gain, discount=1.0))
    beliefs = []
    begin = ba.Policy.begin

    def recording_begin(self, ids, budget, costs=None, **options):
        beliefs.append(self.belief([0]).alpha_P[0] - 0.5)
        return begin(self, ids, budget, costs, **options)

    ba.Policy.begin = recording_begin
    try:
        trainer.train()
    finally:
        ba.Policy.begin = begin
    counts = [Counter(prompts) for prompts in seen["prompts"]]
    assert [sum(c.values()) for c in counts] == [32] * 6
    assert counts[0] == {"000=": 8, "001=": 8, "002=": 8, "003=": 8}  # nothing known: as uniform
    assert counts[-1]["000="] < 8 < counts[-1]["002="]
    # At each decision the belief holds all successes so far: prompt 0 passed as often as it was generated.
    assert beliefs == list(np.cumsum([0] + [c["000="] for c in counts[:-1]]))
    assert callback.policy.estimator.step == 6


LOSSES = ["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"]


@pytest.mark.parametrize("loss_type", LOSSES)
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_every_loss_and_scale(build, losses, loss_type, scale):
    trainer = build(loss_type=loss_type, scale_rewards=scale, max_steps=2)
    seen = watch(trainer)
    attach(trainer, ba.thompson(), candidates=2)
    trainer.train()
    assert np.isfinite(losses(trainer)).all()
    assert all(torch.isfinite(p).all() for p in trainer.model.parameters())
    assert [len(p) for p in seen["prompts"]] == [16, 16]


@pytest.mark.parametrize("batch", [4, 8])
@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("per_generation", [1, 2, 4])
@pytest.mark.parametrize("iterations", [1, 2])
def test_any_accumulation_and_reuse(build, batch, accumulation, per_generation, iterations):
    trainer = build(
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        steps_per_generation=per_generation,
        num_iterations=iterations,
        max_steps=4,
    )
    seen = watch(trainer)
    attach(trainer)
    trainer.train()
    generations = -(-4 * accumulation // (per_generation * iterations))
    assert [len(p) for p in seen["prompts"]] == [batch * per_generation] * generations
    assert trainer.state.global_step == 4


def test_advantages_are_those_of_the_true_groups(build):
    """What the loss receives, put back in order, equals group_advantages on the rewards of the true prompts."""
    trainer = build(max_steps=3, per_device_train_batch_size=32)
    seen = watch(trainer)
    rewards = []
    score = trainer._calculate_rewards
    trainer._calculate_rewards = lambda *a: rewards.append(score(*a)) or rewards[-1]
    callback = attach(trainer, ba.knapsack(), candidates="all", baseline="group", weight="prompt")
    trainer.train()
    uneven = 0
    for prompts, per_func, batch in zip(seen["prompts"], rewards, seen["batches"], strict=True):
        expected = ba.group_advantages(per_func[:, 0].numpy(), prompts, "group", "group", "prompt")
        assert sorted(batch["advantages"].tolist()) == pytest.approx(sorted(expected.tolist()), abs=1e-6)
        uneven += len(set(Counter(prompts).values())) > 1
    assert uneven
    assert callback.options.baseline == "group"


@pytest.mark.parametrize("scale", ["whiten", "whiten_tokens"])
@pytest.mark.parametrize("baseline", ["batch", "posterior"])
def test_whitened_advantages_count_the_tokens_of_each_rollout(build, baseline, scale):
    """What the loss receives is centred over the batch: over rollouts, or over the tokens that TRL's loss averages."""
    trainer = build(
        reward=lambda completion_ids, **_: [float(sum(x) % 2) for x in completion_ids],
        max_steps=3,
        max_completion_length=16,
        temperature=2.0,
    )
    seen = watch(trainer)
    attach(trainer, ba.thompson(), candidates="all", baseline=baseline, scale=scale, min_group=1)
    trainer.train()
    assert len(seen["batches"]) == 3
    uneven = 0
    for batch in seen["batches"]:
        tokens = batch["completion_mask"].sum(dim=1).double()
        counted = tokens if scale == "whiten_tokens" else tokens * 0 + 1
        advantages = batch["advantages"].double()
        uneven += len(set(tokens.tolist())) > 1
        mean = float(counted @ advantages / counted.sum())
        assert mean == pytest.approx(0, abs=1e-5)
        assert float(counted @ advantages**2 / (counted.sum() - 1)) == pytest.approx(1, abs=0.01)
    assert uneven


def test_rollouts_that_only_measure_train_nothing(build):
    """12 prompts of 8 rollouts: three steps of 32 leave the weights as they were, the fourth does not."""
    trainer = build(rows(12), max_steps=4, per_device_train_batch_size=32)
    seen = watch(trainer)
    weights = []
    step = trainer._compute_loss
    trainer._compute_loss = lambda *a: weights.append(trainer.model.lm_head.weight.detach().clone()) or step(*a)
    attach(trainer, policies.spo(offline=8))
    trainer.train()
    assert all(set(Counter(prompts).values()) == {8} for prompts in seen["prompts"][:3])
    assert len({x for prompts in seen["prompts"][:3] for x in prompts}) == 12
    assert all(not batch["advantages"].any() for batch in seen["batches"][:3])
    assert seen["batches"][3]["advantages"].any()
    assert all(torch.equal(weights[0], each) for each in weights[1:4])
    assert not torch.equal(weights[0], trainer.model.lm_head.weight)


def test_a_policy_without_a_baseline_of_its_own_is_refused(build):
    with pytest.raises(ba.InputError, match="has no rule of its own"):
        AdaptiveGRPOCallback(build(), ba.thompson(), baseline="policy")


def test_tokens_of_stored_responses_are_not_counted(build):
    trainer = build(num_iterations=1)
    with pytest.raises(ba.InputError, match="whiten_tokens"):
        AdaptiveGRPOCallback(trainer, ba.thompson(), scale="whiten_tokens", buffer=CorrectResponseBuffer())


def test_defaults_are_what_the_policy_asks_for(build):
    options = AdaptiveGRPOCallback(build()).options
    assert (options.bounds.candidates, options.baseline) == ("all", "posterior")
    assert (options.scale, options.weight) == ("group", "rollout")
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


def test_candidates(build):
    """1 keeps to the batch's prompts, k offers k times as many, all offers the dataset."""
    offers = {}
    for candidates in (1, 3, "all"):
        trainer = build(rows(40), max_steps=1)
        offered = []
        begin = ba.Policy.begin

        def recording(self, ids, budget, costs=None, offered=offered, begin=begin, **options):
            offered.append(list(ids))
            return begin(self, ids, budget, costs, **options)

        ba.Policy.begin = recording
        try:
            attach(trainer, ba.thompson(), candidates=candidates)
            trainer.train()
        finally:
            ba.Policy.begin = begin
        offers[candidates] = offered[0]
    assert len(offers[1]) == 4
    assert len(offers[3]) == len(set(offers[3])) == 12
    assert offers[3][:4] == offers[1]
    assert sorted(offers["all"]) == list(range(40))


def test_rows_bring_their_own_columns(build):
    """Each rollout is scored with its own prompt's columns, wherever its row came from."""
    data = Dataset.from_list([{"prompt": f"{n:03d}=", "answer": f"{n:03d}"} for n in range(40)])
    pairs = []

    def reward(prompts, completions, answer, **_):
        pairs.extend(zip(prompts, answer, strict=True))
        return low_digit(completions)

    for candidates in (1, 2, "all"):
        trainer = build(data, reward, max_steps=2)
        attach(trainer, ba.thompson(), candidates=candidates)
        trainer.train()
    assert len(pairs) == 3 * 2 * 16
    assert all(prompt == f"{answer}=" for prompt, answer in pairs)


def test_same_prompt_is_one_prompt(build):
    data = Dataset.from_list([{"prompt": f"{n % 3}="} for n in range(24)])
    trainer = build(data, max_steps=3)
    callback = attach(trainer)
    trainer.train()
    assert len(callback.policy.estimator) <= 3
    assert all(entry["budgetalloc/prompts"] <= 3 for entry in trainer.state.log_history if "loss" in entry)


def test_metrics_and_completions_table(build, tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    trainer = build(max_steps=3, per_device_train_batch_size=32, log_completions=True, scale_rewards="none")
    attach(trainer, ba.thompson(), scale="none", ledger=ledger)
    trainer.train()
    log = ba.Ledger.read(ledger)
    for step, entry in enumerate(e for e in trainer.state.log_history if "loss" in e):
        here = log.step_R == step
        groups = {}
        for name, reward in zip(np.array(log.ids_R)[here], log.rewards_R[here], strict=True):
            groups.setdefault(name, []).append(reward)
        shares = {"mixed": 0, "all_pass": 0, "all_fail": 0, "single": 0, "tied": 0}
        for g in groups.values():
            kind = "mixed" if len(set(g)) > 1 else "single" if len(g) == 1 else "all_pass" if g[0] == 1 else "all_fail"
            shares[kind] += len(g) / here.sum()
        assert {k: entry[f"budgetalloc/frac_{k}"] for k in shares} == pytest.approx(shares)
        assert entry["budgetalloc/prompts"] == len(groups)
        sizes = [len(g) for g in groups.values()]
        assert [entry[f"budgetalloc/count/{k}"] for k in ("min", "mean", "max")] == [
            min(sizes),
            np.mean(sizes),
            max(sizes),
        ]
        assert entry["budgetalloc/brier"] == pytest.approx(
            np.mean((log.predicted_R - log.rewards_R)[here] ** 2), abs=1e-5
        )
        assert "frac_reward_zero_std" not in entry  # TRL took each row for a group
        assert entry["budgetalloc/frac_reward_zero_std"] == pytest.approx(
            sum(len(g) for g in groups.values() if len(set(g)) == 1 < len(g)) / here.sum()
        )
        assert 0 < entry["budgetalloc/seconds"] < 1
        assert 0 <= entry["budgetalloc/frac_mixed_predicted"] <= 1
        table = pd.read_parquet(f"{trainer.args.output_dir}/completions/completions_{step + 1:05d}.parquet")
        expected = ba.group_advantages(table["low_digit"].to_numpy(), table["prompt"].tolist(), "group", "none")
        assert table["advantage"].to_numpy() == pytest.approx(expected, abs=1e-6)
        assert log.lengths_R[here].min() >= 1
        assert (log.counts_R[here] == [len(groups[name]) for name in np.array(log.ids_R)[here]]).all()


def test_graded_weighted_and_missing_rewards(build):
    """Two reward functions with weights, graded values, rows that one or both leave unscored."""

    def graded(completions, **_):
        return [0.5 * low for low in low_digit(completions)]

    def sometimes(completions, prompt_id, **_):
        return [None if name % 3 == 0 else low for name, low in zip(prompt_id, low_digit(completions), strict=True)]

    trainer = build(reward=[graded, sometimes], reward_weights=[1.0, 2.0], max_steps=3)
    callback = attach(trainer, reward_range=(0.0, 2.5))
    trainer.train()
    names = [n for n in range(24) if not callback.policy.cold([n])[0]]
    assert names
    evidence = callback.policy.estimator.state_dict()["evidence"]
    assert (evidence.sum(axis=1) > 0).any()

    def never(completions, **_):
        return [None] * len(completions)

    trainer = build(reward=never, max_steps=2)
    callback = attach(trainer)
    trainer.train()
    assert len(callback.policy.estimator) == 0  # nothing was scored: nothing was learned, and nothing broke
    assert all(entry["loss"] == 0 for entry in trainer.state.log_history if "loss" in entry)


def test_posterior_baseline_without_scale_is_in_units_of_the_reward(build):
    trainer = build(reward=lambda completions, **_: [10.0 * x for x in low_digit(completions)], max_steps=1)
    seen = watch(trainer)
    attach(trainer, scale="none", reward_range=(0.0, 10.0))
    trainer.train()
    assert seen["batches"][0]["advantages"].abs().max() > 1


@pytest.mark.parametrize("baseline", ["group", "loo", "posterior"])
@pytest.mark.parametrize("scale", ["group", "batch"])
def test_baselines_are_what_rewards_are_compared_with_whatever_the_scale(build, baseline, scale):
    trainer = build()
    callback = attach(trainer, ba.knapsack(), baseline=baseline, scale=scale, weight="prompt")
    assert callback.batch is None
    trainer.train()
    batch = callback.batch
    baseline_R = callback.options.advantages(batch).baseline_R
    advantages_R = ba.group_advantages(batch.rewards_R, batch.ids_R, baseline_R, "none")
    plain_R = ba.group_advantages(batch.rewards_R, batch.ids_R, baseline, "none", belief_R=batch.baseline_R)
    np.testing.assert_allclose(advantages_R, plain_R, atol=1e-9)


def test_rollouts_that_only_measure_have_no_baseline(build):
    trainer = build(max_steps=1)
    callback = attach(trainer, policies.spo(offline=4))
    trainer.train()
    assert np.isnan(callback.options.advantages(callback.batch).baseline_R).all()


def test_trainer_gets_its_methods_back(build):
    trainer = build(max_steps=1)
    attach(trainer)
    trainer.train()
    assert trainer._generate_and_score_completions.__func__ is GRPOTrainer._generate_and_score_completions
    assert trainer._calculate_rewards.__func__ is GRPOTrainer._calculate_rewards
    assert trainer._generate_single_turn.__func__ is GRPOTrainer._generate_single_turn


WRAPPED = ("_generate_and_score_completions", "_calculate_rewards", "_save_checkpoint", "train")


@pytest.mark.parametrize("when", ["before", "after"])
def test_wrappers_of_others_are_called_and_stay(build, when):
    """Put on before the callback was made, or after it: TRL's methods are taken when training begins."""
    trainer = build(max_steps=2, save_strategy="steps", save_steps=1)
    calls, wrappers = Counter(), {}

    def wrap(name):
        own = getattr(trainer, name)

        def wrapper(*args, **named):
            calls[name] += 1
            return own(*args, **named)

        wrappers[name] = wrapper
        setattr(trainer, name, wrapper)

    for late in (False, True):
        if late:
            attach(trainer)
        if late == (when == "after"):
            for name in WRAPPED:
                wrap(name)
    trainer.train()
    assert calls == {"_generate_and_score_completions": 2, "_calculate_rewards": 2, "_save_checkpoint": 2, "train": 1}
    still = {name for name in WRAPPED if vars(trainer)[name] is wrappers[name]}
    assert still == set(WRAPPED) - ({"train"} if when == "before" else set())


def test_a_wrapper_put_on_during_training_stays_and_a_second_training_decides_once_a_step(build):
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
    """TRL's vLLM client takes each num_generations-th row for a prompt: in training it must be told 1."""
    told = []
    trainer = build(
        max_steps=1, eval_strategy="steps", eval_steps=1, eval_dataset=rows(4), per_device_eval_batch_size=4
    )
    single = trainer._generate_single_turn
    trainer._generate_single_turn = lambda ids, images, fields, n, **kw: (
        told.append(n) or single(ids, images, fields, n, **kw)
    )
    attach(trainer)
    trainer.train()
    assert told[0] == 1
    assert set(told[1:]) == {4}


def test_the_ledger_replays_to_the_same_decisions(build, tmp_path):
    """A fresh policy fed the logged rewards predicts the logged rates and decides the logged counts, step by step."""
    trainer = build(rows(40), max_steps=6, per_device_train_batch_size=32)
    seen = watch(trainer)
    attach(trainer, ba.adaptive(seed=5), ledger=tmp_path / "ledger.jsonl")
    trainer.train()
    log, policy = ba.Ledger.read(tmp_path / "ledger.jsonl"), ba.adaptive(seed=5)
    for step in range(6):
        here = np.flatnonzero(log.step_R == step)
        ids = [log.ids_R[at] for at in here]
        assert seen["prompts"][step] == [f"{name:03d}=" for name in ids]
        assert policy.belief(ids).mean == pytest.approx(log.predicted_R[here], abs=1e-6)
        counts = policy.allocate(range(40), ba.Budget(32, floor=0, cap=32, min_group=1))
        assert Counter(ids) == {name: n for name, n in enumerate(counts.tolist()) if n}
        policy.observe(ids, log.rewards_R[here])


def test_fields_of_a_rollout_stay_with_it(build, tokenizer):
    """TRL writes what a rollout_func returns into the row: rows of one prompt must not share it."""
    seen = []

    def rollout(prompts, trainer):
        ids = [tokenizer(text)["input_ids"] for text in prompts]
        return {
            "prompt_ids": ids,
            "completion_ids": [[at % 10, 12] for at in range(len(prompts))],
            "logprobs": [[0.0, 0.0] for _ in prompts],
            "turn": list(range(len(prompts))),
        }

    def reward(completions, turn, **_):
        seen.append(turn)
        return [float(n % 2) for n in turn]

    trainer = build(reward=reward, max_steps=1)
    trainer.rollout_func = rollout
    attach(trainer)
    trainer.train()
    assert seen == [list(range(16))]
