"""The doctor on a script, and the callback on the trainer that the script makes, refuse alike, word for word."""

import inspect

import pytest
from conftest import low_digit, rows

import budgetalloc as ba
from budgetalloc.cli.doctor.examine import examine
from budgetalloc.cli.doctor.script import read_script
from budgetalloc.cli.doctor.setup import ARGUMENTS, OTHERS
from budgetalloc.logs.progress import read_progress
from budgetalloc.trl import AdaptiveGRPOCallback

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
    if "domain" in given:  # of a comprehension the values are not known, and that is said
        assert raised.startswith("domain='subject': the train dataset has no such column")
        assert any("quotas" in text for text in said.unread)
        return
    assert said.refused == ([raised] if raised else [])


def test_the_doctor_knows_every_argument_of_the_callback():
    parameters = dict(inspect.signature(AdaptiveGRPOCallback).parameters)
    assert set(parameters) == {*ARGUMENTS, *OTHERS}
    assert {name: parameters[name].default for name in ARGUMENTS} == ARGUMENTS


def test_an_evaluation_of_trl_is_written_beside_the_ledger(build, tmp_path):
    config = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8, "max_steps": 2}
    trainer = build(eval_dataset=rows(4), **config)
    trainer.add_callback(callback := AdaptiveGRPOCallback(trainer, ledger=tmp_path / "ledger.jsonl"))
    trainer.train()
    progress = read_progress(tmp_path / "ledger.jsonl")
    assert [before for before, _ in progress.held_out] == [1, 2]
    logged = [entry["eval_reward"] for entry in trainer.state.log_history if "eval_reward" in entry]
    assert [reward for _, reward in progress.held_out] == logged
    assert set(progress.seconds) == {0, 1}
    assert all(seconds > 0 for seconds in progress.seconds.values())
    callback.held_out(0.5)  # after the training there is no file to write to
    assert read_progress(tmp_path / "ledger.jsonl") == progress
