"""Reward functions of every kind get the columns of the prompt that they score."""

from pathlib import Path
from textwrap import dedent

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import attach, logged, low_digit, same_weights, trained, weights
from datasets import Dataset
from test_surface import assert_in_place, even_sum, rebuilt, total, train, uneven
from tiny_llama import tiny_config, tiny_llama
from transformers import LlamaForSequenceClassification, TrainerCallback

import budgetalloc as ba
from budgetalloc.contrib.set_rewards import polychromic_rewards


def half(completions, **_):
    return [0.5 * low for low in low_digit(completions)]


def sometimes(prompts, completions, prompt_id, **_):
    """None for every third prompt, and for a completion that starts with a 9."""
    scores = even_sum(prompts, completions)
    return [
        None if name % 3 == 0 or text[:1] == "9" else score
        for name, text, score in zip(prompt_id, completions, scores, strict=True)
    ]


def columns():
    """Rows with columns of every kind, each telling the prompt's number."""
    return Dataset.from_list(
        [
            {"prompt": f"{n:03d}=", "prompt_id": n, "answer": str(n), "limits": [n, n + 1], "about": {"n": n}}
            for n in range(24)
        ]
    )


@pytest.mark.parametrize("policy", [uneven, ba.methods.pods])
def test_weights_and_missing_scores(build, policy):
    """A rollout's reward is the weighted sum of the functions that scored it."""
    trainer = build(reward=[half, sometimes], reward_weights=[1.0, 2.0], max_steps=3)
    callback, made = train(trainer, policy(seed=1), success=1.0)
    if policy is uneven:
        assert_in_place(trainer, callback, made)
    for each in made:
        assert np.isnan(each.rewards_RF[:, 1]).tolist() == [
            row["prompt_id"] % 3 == 0 or ids[:1] == [9]
            for row, ids in zip(each.scored, each.completion_ids, strict=True)
        ]
    assert logged(trainer, "reward") == pytest.approx([total(trainer, each).mean() for each in made], abs=1e-5)


@pytest.mark.parametrize(
    ("policy", "candidates"),
    [(ba.thompson, 1), (ba.methods.reinforce_ada, 1), (ba.methods.pods, 2)],
)
def test_columns_are_those_of_the_prompt(build, policy, candidates):
    """Also in rounds, with more rollouts than are trained on, and in the table of completions."""
    seen = []

    def reward(prompts, completions, answer, limits, about, log_extra, log_metric, trainer_state, **_):
        seen.extend(zip(prompts, answer, limits, about, strict=True))
        log_extra("answer_seen", list(answer))
        log_metric("answers", len(answer))
        assert trainer_state.global_step in (0, 1)
        return even_sum(prompts, completions)

    trainer = build(columns(), reward, max_steps=2, log_completions=True)
    train(trainer, policy(seed=1), candidates=candidates)
    assert len(seen) >= 32
    for prompt, answer, limits, about in seen:
        number = int(prompt[:3])
        assert (answer, limits, about) == (str(number), [number, number + 1], {"n": number})
    for step in (1, 2):
        table = pd.read_parquet(f"{trainer.args.output_dir}/completions/completions_{step:05d}.parquet")
        assert len(table) == 16
        prompts = [text.replace(" ", "") for text in table["prompt"]]  # TRL 1.14 shows the tokens, decoded one by one
        assert [int(prompt[:3]) for prompt in prompts] == [int(answer) for answer in table["answer_seen"]]
        texts = ["" if text is None else text for text in table["completion"]]
        assert table["reward"].tolist() == even_sum(prompts, texts)


def better(one, other):
    """1 if the first digit of `one` is larger, half if both are equal."""
    return 0.5 * ((one[:1] > other[:1]) + (one[:1] >= other[:1]))


def judge_of_the_readme(judge):
    """`wins` of integrations/trl/README.md: the share of the group's other answers that an answer beats."""
    text = (Path(__file__).parents[2] / "integrations/trl/README.md").read_text()
    begins = text.index("    from collections import defaultdict")
    names = {"judge": judge}
    exec(dedent(text[begins : text.index("\n- ", begins)]), names)  # up to the next point of the list
    return names["wins"]


@pytest.mark.parametrize("policy", [ba.uniform, ba.adaptive, ba.methods.pods])
def test_a_judge_of_pairs_gets_the_groups(build, policy):
    """Other functions get them too."""
    groups, wins = [], judge_of_the_readme(better)

    def judge(prompts, completions, budgetalloc_group, **more):
        groups.append(list(budgetalloc_group))
        assert budgetalloc_group == more["prompt_id"] == [int(prompt[:3]) for prompt in prompts]
        return wins(prompts, completions, budgetalloc_group=budgetalloc_group)

    async def later(completions, budgetalloc_group, **_):
        assert budgetalloc_group == groups[-1]
        return [0.0] * len(completions)

    trainer = build(columns(), [judge, later], max_steps=3)
    _, made = train(trainer, policy(seed=1))
    assert len(groups) == len(made) >= 3
    for each, names in zip(made, groups, strict=True):
        texts = trainer.processing_class.batch_decode(each.completion_ids, skip_special_tokens=True)
        for name in set(names):
            mine = [at for at, other in enumerate(names) if other == name]
            if len(mine) > 1:  # every pair shares one win
                assert each.rewards_RF[mine, 0].sum() == pytest.approx(len(mine) / 2)
            best = max(mine, key=lambda at: texts[at][:1])
            assert each.rewards_RF[best, 0] == max(each.rewards_RF[mine, 0])
        assert all("budgetalloc_group" not in row for row in each.rows)  # an environment's reset() does not get it


def test_rewards_of_sets_train_in_groups(build):
    """The set's reward is the total; success is the plain reward, which has no weight."""

    def of_sets(prompts, completions, budgetalloc_group=None, **_):
        plain, kinds = low_digit(completions), [text[:1] for text in completions]
        return polychromic_rewards(plain, kinds, budgetalloc_group or prompts, size=3).tolist()

    def plain(completions, **_):
        return low_digit(completions)

    trainer = build(columns(), [of_sets, plain], max_steps=2, reward_weights=[1.0, 0.0])
    policy = ba.knapsack(seed=1)
    before = weights(trainer.model)
    callback, made = train(trainer, policy, floor=4, min_group=4, success="plain")
    for each in made:
        names = [row["prompt_id"] for row in each.rows]
        texts = trainer.processing_class.batch_decode(each.completion_ids, skip_special_tokens=True)
        assert each.rewards_RF[:, 0].tolist() == pytest.approx(of_sets(names, texts))
    assert callback.session.scoring.rule.functions == (1,)
    assert not same_weights(before, weights(trainer.model))


def test_a_users_column_of_that_name_stays(build):
    def judge(completions, budgetalloc_group, **_):
        assert set(budgetalloc_group) == {"mine"}
        return low_digit(completions)

    trained(build(columns().add_column("budgetalloc_group", ["mine"] * 24), judge, max_steps=2))


def test_rollouts_do_not_share_a_list_in_a_column(build):
    """TRL's loader makes a new row each time, so a function that changes a list changes only one rollout's."""
    seen = []

    def reward(completions, limits, **_):
        for each in limits:
            seen.append(len(each))
            each.append(0)
        return low_digit(completions)

    trainer = build(columns(), reward, max_steps=1)
    train(trainer)
    assert set(seen) == {2}


def test_a_reward_model(build, tokenizer):
    """`reward_range` maps a model's scores to [0, 1] for the beliefs; advantages keep the scale of the scores."""
    config = tiny_config(13, num_hidden_layers=1, num_labels=1, pad_token_id=11)
    model = tiny_llama(config, 3, LlamaForSequenceClassification)
    trainer = rebuilt(build(max_steps=2), reward_funcs=model, reward_processing_classes=tokenizer)
    callback, made = train(trainer, reward_range=(-50.0, 50.0), scale="none")
    assert_in_place(trainer, callback, made)
    for each in made:
        texts = tokenizer.batch_decode(each.completion_ids, skip_special_tokens=True)
        for row, text, reward in zip(each.scored, texts, each.rewards_RF[:, 0], strict=True):
            ids = torch.tensor([tokenizer(row["prompt"] + text)["input_ids"]])
            assert float(model(ids).logits[0, 0].detach()) == pytest.approx(reward, abs=1e-4)


def test_the_judge_of_the_readme_compares_within_a_group():
    wins = judge_of_the_readme(lambda one, other: float(one > other))
    given = {"prompts": ["p", "q", "p", "p"], "completions": ["b", "a", "c", "a"], "more": 1}
    assert wins(**given, budgetalloc_group=[3, 4, 3, 3]) == wins(**given) == [0.5, 0.5, 1.0, 0.0]


class Schedule(TrainerCallback):
    """Changes the weights of the trainer after a step, as schedules of users do."""

    def __init__(self, trainer, at, later):
        self.trainer, self.at, self.later = trainer, at, later

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.at:
            self.trainer.reward_weights = torch.tensor(self.later)


def long_enough(completions, **_):
    return [float(len(text) > 2) for text in completions]


@pytest.mark.parametrize(("before", "later"), [([1.0, 1.0], [1.0, 0.0]), ([0.2, 1.0], [-1.0, 0.2])])
def test_weights_that_change_while_it_trains(build, before, later):
    """How advantages follow such a change: tests/training/test_size_of_advantages.py."""
    trainer = build(reward=[low_digit, long_enough], reward_weights=before, max_steps=3)
    trainer.add_callback(Schedule(trainer, 2, later))
    callback = trained(trainer, ba.adaptive(seed=0))
    assert callback.session.scoring.weights == pytest.approx(later)
    assert callback.batch.rewards_R == pytest.approx(callback.batch.scores_RF @ np.array(later))


def test_a_stage_that_adds_a_reward_function(build):
    """Uniform groups train as without the callback; what success is stays what it was."""

    def in_two_stages(policy):
        trainer = build(reward=[low_digit], max_steps=2)
        callback = None if policy is None else attach(trainer, policy)
        trainer.train()
        trainer.reward_funcs.append(long_enough)
        trainer.reward_func_names.append("long_enough")
        trainer.reward_processing_classes.append(None)
        trainer.reward_weights = torch.tensor([1.0, 0.5])
        trainer.train()
        return trainer, callback

    (alone, _), (other, _), (_, callback) = (in_two_stages(x) for x in (None, "uniform", ba.adaptive(seed=0)))
    assert same_weights(weights(alone), weights(other))
    assert callback.session.scoring.rule.functions == (0,)
    assert callback.batch.scores_RF.shape[1] == 2
