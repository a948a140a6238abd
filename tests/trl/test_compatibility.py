"""The doctor on a script and the callback on the script's trainer refuse with the same words."""

import inspect
import math

import pytest
from conftest import logged, low_digit, rows, trained
from datasets import Dataset

import budgetalloc as ba
from budgetalloc.cli.doctor.advice import generations
from budgetalloc.cli.doctor.checks import examine
from budgetalloc.cli.doctor.grpo_config import resolved
from budgetalloc.cli.doctor.script import read_script
from budgetalloc.cli.doctor.setup import ARGUMENTS, OTHERS
from budgetalloc.logs.progress import read_progress
from budgetalloc.trl import AdaptiveGRPOCallback
from budgetalloc.trl.compatibility import Facts, unaligned_saves

SCRIPT = """
def low_digit(completions, **_): ...
data = {data}
args = GRPOConfig("run", per_device_train_batch_size=16, num_generations=4{config})
trainer = GRPOTrainer(model, low_digit, args, data)
trainer.add_callback(AdaptiveGRPOCallback(trainer, {policy}{given}))
"""
DATA = "Dataset.from_list([{'prompt': f'{n:03d}=', 'prompt_id': n} for n in range(%d)])"
CASES = [
    ({}, "uniform", {}, 24),
    ({}, "adaptive", {}, 24),
    ({}, "adaptive", {}, 3),
    ({"multi_objective_aggregation": "normalize_then_sum"}, "adaptive", {}, 24),
    ({"multi_objective_aggregation": "normalize_then_sum"}, "uniform", {}, 24),
    ({"remove_unused_columns": True}, "knapsack", {}, 24),
    ({}, "knapsack", {"quantum": 5}, 24),
    ({}, "knapsack", {"floor": 1, "candidates": 1}, 24),
    ({}, "thompson", {"success": "accuracy"}, 24),
    ({}, "thompson", {"baseline": "mean"}, 24),
    ({}, "adaptive", {"domain": "subject", "quotas": {"a": (0.1, 0.2)}}, 24),
]


@pytest.mark.parametrize(("config", "name", "given", "count"), CASES)
def test_the_doctor_says_what_the_callback_raises(build, config, name, given, count):
    raised = ""
    try:
        AdaptiveGRPOCallback(build(rows(count), low_digit, **config), getattr(ba, name)(), **given)
    except ba.BudgetallocError as error:
        raised = str(error)
    parts = {"data": DATA % count, "policy": f"ba.{name}()"}
    parts["config"] = "".join(f", {key}={value!r}" for key, value in config.items())
    parts["given"] = "".join(f", {key}={value!r}" for key, value in given.items())
    said = examine(read_script(SCRIPT.format(**parts), "train.py", 1))
    if "domain" in given:  # the doctor does not know the values of a comprehension, and says so
        assert raised.startswith("domain='subject': the train dataset has no such column")
        assert any("quotas" in text for text in said.unread)
        return
    assert said.refused == ([raised] if raised else [])


@pytest.mark.parametrize(
    ("count", "config"),
    [
        (60, {"num_train_epochs": 1}),
        (63, {"num_train_epochs": 2, "gradient_accumulation_steps": 2}),
        (63, {"num_train_epochs": 1.5, "gradient_accumulation_steps": 2, "steps_per_generation": 4}),
        (61, {"num_train_epochs": 3, "gradient_accumulation_steps": 3, "generation_batch_size": 32}),
        (60, {"num_train_epochs": 1, "num_iterations": 2}),
        (60, {"max_steps": 7, "num_iterations": 2, "gradient_accumulation_steps": 4, "steps_per_generation": 2}),
    ],
)
def test_the_doctor_counts_the_steps_of_a_run_as_trl_does(build, count, config):
    """Rows, a third of them twins; batches that are not full are dropped."""
    twins = [dict(rows(count)[n % (2 * count // 3)]) for n in range(count)]
    trainer = build(Dataset.from_list(twins), low_digit, per_device_train_batch_size=16, **{"max_steps": -1, **config})
    args, batches = trainer.args, len(trainer.get_train_dataloader())
    per_epoch = -(-batches // args.gradient_accumulation_steps)  # an optimizer step at the end of an epoch may be short
    steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * per_epoch)
    micro_steps = args.steps_per_generation * trainer.num_iterations
    assert batches % micro_steps == 0
    sizes, mistakes = resolved({"per_device_train_batch_size": 16, "num_generations": 4, **config}, processes=1)
    assert mistakes == []
    assert generations(sizes, count) == -(-steps * args.gradient_accumulation_steps // micro_steps)


@pytest.mark.parametrize(("save_steps", "warned"), [(3, True), (4, False), (0.3, False), (0.75, False)])
def test_a_share_of_the_run_is_no_number_of_steps(save_steps, warned):
    settings = {"steps_per_generation": 4, "num_iterations": 1, "gradient_accumulation_steps": 2}
    facts = Facts(settings | {"save_steps": save_steps, "save_strategy": "steps"})
    assert (unaligned_saves(facts) is not None) == warned


def test_the_doctor_knows_every_argument_of_the_callback():
    parameters = dict(inspect.signature(AdaptiveGRPOCallback).parameters)
    assert set(parameters) == {*ARGUMENTS, *OTHERS}
    assert {name: parameters[name].default for name in ARGUMENTS} == ARGUMENTS


def test_an_evaluation_of_trl_is_written_next_to_the_ledger(build, ledger):
    config = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8, "max_steps": 2}
    callback = trained(build(eval_dataset=rows(4), **config), ledger=ledger)
    progress = read_progress(ledger)
    assert [before for before, _ in progress.held_out] == [1, 2]
    assert [reward for _, reward in progress.held_out] == logged(callback.trainer, "eval_reward")
    assert set(progress.seconds) == {0, 1}
    assert all(seconds > 0 for seconds in progress.seconds.values())
    callback.held_out(0.5)  # after the training there is no file to write to
    assert read_progress(ledger) == progress
