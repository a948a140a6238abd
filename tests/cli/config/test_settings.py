"""The sections of a settings file."""

from budgetalloc.cli.config.settings import PolicySettings, paced
from budgetalloc.cli.config.yaml_file import read_text
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
