"""The sections of a settings file."""

import pytest

from budgetalloc.cli.config.settings import CallbackSettings, PolicySettings, paced
from budgetalloc.cli.config.yaml_file import read_text
from budgetalloc.errors import InputError
from budgetalloc.policies.methods import tuples


def test_a_policy_of_two_sections_is_one_set_of_options():
    text = "policy: {name: knapsack, solver: ortools}\nestimator: {prior: [1, 2]}"
    settings = PolicySettings.read(read_text(text, "f.yaml"))
    assert settings.options["solver"] == "ortools"
    assert settings.options["prior"] == (1, 2)
    assert settings.options["discount"] == 0.9
    assert repr(settings.build(seed=4)).endswith("prior=(1.0, 2.0), discount=0.9, idle=1.0, seed=4)")


def test_lists_of_a_file_are_tuples_at_any_depth():
    assert tuples([1, [2, "a"], {"b": 3}]) == (1, (2, "a"), {"b": 3})


def test_the_plan_of_a_constant_pace_spends_all_rollouts_in_portions():
    settings, plan = paced(read_text("pacing: {name: constant, rollouts: 100, steps: 7, quantum: 4}", "f.yaml"))
    assert sum(plan) == 100
    assert set(plan) == {12, 16}
    assert settings["low"] == 4  # one portion by default
    assert paced(read_text("policy: vade", "f.yaml")) == ({}, ())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("baseline", "grup"),
        ("scale", 1),
        ("weight", None),
        ("prompt_id", 7),
        ("ledger", ["x"]),
        ("success", True),
        ("success", {"a": 1}),
        ("reward_range", (1, 0)),
        ("allow_dataset_change", 1),
    ],
)
def test_an_argument_of_the_callback_is_checked_and_named(key, value):
    plain = {"baseline": None, "scale": None, "weight": "rollout"}
    CallbackSettings(**plain)
    with pytest.raises(InputError, match=f"^{key}="):
        CallbackSettings(**plain | {key: value})
