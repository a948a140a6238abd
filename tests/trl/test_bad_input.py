"""The callback refuses what it cannot support, and its errors say what to do."""

from dataclasses import replace

import numpy as np
import pytest
import trl
from conftest import attach, rows, trained
from datasets import Dataset

import budgetalloc as ba
from budgetalloc import BudgetError, InputError, UnsupportedError
from budgetalloc.contrib.stored_responses import CorrectResponseBuffer
from budgetalloc.trl import AdaptiveGRPOCallback
from budgetalloc.trl.compatibility import SEAM


@pytest.mark.parametrize("trainer", [None, "GRPOTrainer", object()])
def test_not_a_grpo_trainer(trainer):
    with pytest.raises(UnsupportedError, match=f"trainer is a {type(trainer).__name__}.*supports trl.GRPOTrainer"):
        AdaptiveGRPOCallback(trainer)


class Mine(AdaptiveGRPOCallback):
    pass


@pytest.mark.parametrize("kind", [AdaptiveGRPOCallback, Mine])
def test_added_twice(build, kind):
    trainer = build(max_steps=2)
    callback = kind(trainer)
    trainer.add_callback(callback)
    with pytest.raises(InputError, match="has an AdaptiveGRPOCallback already"):
        AdaptiveGRPOCallback(trainer)
    trainer.callback_handler.callbacks.append(callback)
    with pytest.raises(InputError, match="has 2 AdaptiveGRPOCallbacks: add exactly one"):
        trainer.train()
    trainer.callback_handler.callbacks.pop()
    trainer.train()
    assert callback.policy.estimator.step == 2


@pytest.mark.parametrize("name", SEAM)
def test_a_trl_without_the_seam(build, monkeypatch, name):
    trainer = build()
    if name in vars(trainer):
        monkeypatch.delattr(trainer, name)
    for cls in type(trainer).__mro__:
        if name in vars(cls):
            monkeypatch.delattr(cls, name)
    with pytest.raises(UnsupportedError, match=f"TRL {trl.__version__} has no GRPOTrainer.{name}.*Install trl"):
        AdaptiveGRPOCallback(trainer)


@pytest.mark.parametrize(
    ("version", "warned"), [("1.12.0", 1), ("1.14.2", 0), (trl.__version__, 0), ("1.17.0.dev0", 1)]
)
def test_an_untested_version_of_trl_is_said(build, monkeypatch, caplog, version, warned):
    trainer = build()
    monkeypatch.setattr(trl, "__version__", version)
    AdaptiveGRPOCallback(trainer, ba.uniform())
    assert caplog.text.count(f"TRL {version} is not tested with this budgetalloc") == warned


@pytest.mark.parametrize("policy", ["thompson", ba.thompson, ba.thompson()])
def test_a_policy_is_given_by_name_by_function_or_made(build, policy):
    assert AdaptiveGRPOCallback(build(), policy).policy.name == ba.thompson().name


GENERATES_TWICE = replace(ba.knapsack(), needs=replace(ba.knapsack().needs, generate=2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": 0}, "candidates=0"),
        ({"baseline": "mean"}, "baseline='mean'"),
        ({"floor": 1, "candidates": 1, "min_group": 2}, "floor=1, min_group=2.*Use floor=0, floor=2 or min_group=1"),
        ({"quantum": 5}, "rollouts=16, quantum=5.*Use rollouts=15 or 20"),
        ({"policy": "knapsack", "floor": 16}, "4 prompts at floor=16 need 64 rollouts"),
        ({"policy": "knapsack", "cap": 3}, "4 prompts at cap=3 can take only 12 rollouts"),
        ({"policy": "knapsack", "candidates": 3, "floor": 2}, "12 prompts at floor=2 need 24 rollouts"),
        ({"policy": "thompson", "baseline": "policy"}, "has no rule of its own"),
        (
            {"baseline": "batch", "scale": "group"},
            "a group of equal rewards has no deviation, and differs from the batch",
        ),
        ({"policy": "thompson", "scale": "whiten_tokens", "buffer": CorrectResponseBuffer()}, "whiten_tokens"),
        ({"policy": GENERATES_TWICE}, "no keep=.*up to 32 rows.*GRPOConfig asks for 16"),
        ({"prompt_id": "nope"}, r"prompt_id='nope': .* It has \['prompt', 'pro"),
        ({"success": "low_digits"}, r"success='low_digits': .*\['low_digit'\]"),
        ({"ledger": 5}, "ledger=5"),
    ],
)
def test_bad_options(build, options, message):
    with pytest.raises((InputError, BudgetError), match=message):
        AdaptiveGRPOCallback(build(), **options)


def test_a_floor_that_the_distinct_prompts_of_the_data_can_have_is_accepted(build):
    """The four rows of a batch are of two prompts."""
    twins = Dataset.from_list([{"prompt": f"{n // 2}="} for n in range(4)])
    callback = trained(build(twins, max_steps=1), ba.knapsack(), floor=8)
    assert callback.batch.counts_G.tolist() == [8, 8]
    with pytest.raises(BudgetError, match="2 prompts at floor=9 need 18 rollouts"):
        AdaptiveGRPOCallback(build(twins), ba.knapsack(), floor=9)


def test_a_new_ledger_is_not_made_before_the_first_step_and_an_old_one_is_left_as_it_is(build, tmp_path):
    new, old = tmp_path / "runs" / "ledger.jsonl", tmp_path / "ledger.jsonl"
    old.write_text("{}\n")
    for path in (new, str(old)):
        AdaptiveGRPOCallback(build(), ledger=path)
    assert not new.exists()
    assert old.read_text() == "{}\n"


def named(name):
    """Rows whose prompt ids are `name` of their numbers."""
    return Dataset.from_list([{"prompt": f"{n}=", "prompt_id": name(n)} for n in range(24)])


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"dataset": rows().to_iterable_dataset()}, UnsupportedError, "candidates='all'.*IterableDataset"),
        ({"dataset": rows(3)}, InputError, "has 3 rows and a generation batch takes 4 prompts"),
        ({"dataset": named(lambda n: n / 2)}, InputError, r"prompt_id\[0\] is 0.0 of type float"),
        ({"multi_objective_aggregation": "normalize_then_sum"}, UnsupportedError, "'normalize_then_sum'"),
        ({"remove_unused_columns": True}, InputError, r"remove_unused_columns=True\) drops the column 'prompt_id'"),
    ],
)
def test_bad_trainers(build, config, error, message):
    with pytest.raises(error, match=message):
        AdaptiveGRPOCallback(build(**config))


def test_images_need_a_prompt_id(build):
    trainer = build()
    trainer.train_dataset = rows().remove_columns("prompt_id").add_column("image", [None] * 24)
    with pytest.raises(UnsupportedError, match=r"has images.*Add a column 'prompt_id'"):
        AdaptiveGRPOCallback(trainer)


@pytest.mark.parametrize("config", [{"multi_objective_aggregation": "normalize_then_sum"}, {"dataset": rows(4)}])
def test_uniform_needs_neither_one_aggregation_nor_more_than_a_batch_of_rows(build, config):
    callback = trained(build(max_steps=1, **config), ba.uniform())
    assert callback.trainer.state.global_step == 1


@pytest.mark.parametrize(
    "chosen", [np.arange(15), np.arange(17), np.arange(16) / 2, np.arange(16) + 30], ids=["few", "many", "no", "out"]
)
def test_a_rule_that_chooses_another_number_of_rows(build, chosen):
    policy = replace(ba.methods.pods(generate=2), keep=lambda *_: chosen)
    trainer = attach(build(), policy).trainer
    with pytest.raises(InputError, match="from 0 to 31, of 16 of the 32"):
        trainer.train()
    assert (trainer.state.global_step, policy.estimator.step) == (0, 0)


def test_few_prompts_without_a_cap_work(build):
    callback = trained(build(Dataset.from_list([{"prompt": "1="}] * 24), max_steps=2))
    assert callback.trainer.state.log_history[0]["budgetalloc/count/max"] == 16
