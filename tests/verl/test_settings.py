"""The node `budgetalloc` of verl's configuration."""

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.verl.settings import Settings, build


def read(deviation=True, penalty=False, **given):
    return Settings.read(given, deviation=deviation, penalty=penalty)


def test_an_empty_node_is_the_default_policy():
    settings = read()
    assert settings.session.policy.name == ba.adaptive().name
    assert settings.session.options.bounds.candidates == "all"
    assert settings.session.options.baseline == "posterior"
    assert (settings.prompt_id, settings.ledger, settings.allow_dataset_change) == (None, None, False)


def test_the_scale_is_verls_unless_given():
    assert read(policy="thompson").session.options.scale == "group"
    assert read(policy="thompson", deviation=False).session.options.scale == "none"
    assert read(policy="thompson", deviation=False, scale="batch").session.options.scale == "batch"


def test_pacing_is_that_of_a_yaml_file():
    pacing = {"name": "phases", "rollouts": 96, "steps": 2, "quantum": 8, "parts": [[1, 1.0], [1, 2.0]]}
    policy = read(policy={"name": "knapsack", "seed": 3}, pacing=pacing).session.policy
    assert (policy.seed, policy.rollouts(48)) == (3, 32)
    policy.observe(["a"], [1.0])
    assert policy.rollouts(48) == 64
    policy.observe(["a"], [1.0])
    assert policy.rollouts(48) == 48


def test_uniform_keeps_verls_batch_and_advantages():
    options = read(policy="uniform").session.options
    assert options.keep_batch
    assert options.baseline is None
    assert read(policy="uniform", baseline="group").session.options.baseline == "group"


def test_costs_are_tokens_or_what_agent_loops_report():
    settings = read(cost={"tokens": 1, "turns": 50}, cost_per_step=4000)
    assert settings.session.costs.reported.names == ("turns",)
    assert settings.session.costs.budget.target == 4000
    assert read(cost="tokens").session.options.cost == "tokens"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cost": "seconds"}, "budgetalloc.cost=seconds: verl's steps are not timed. Use cost=tokens"),
        ({"cost_per_step": 9}, "cost_per_step=9 with cost=None"),
        ({"polcy": "knapsack"}, r"budgetalloc.polcy is unknown, did you mean policy\?"),
        ({"policy": "knapsak"}, r"'knapsak' is unknown, did you mean knapsack\?"),
        ({"policy": 3}, "budgetalloc.policy=3: give a name"),
        ({"policy": {"name": "knapsack", "sed": 1}}, r"knapsack\(sed=\) is unknown, did you mean seed\?"),
        ({"policy": {"name": "budgetalloc.knapsack", "sed": 1}}, "was called and raised TypeError, .*'sed'"),
        ({"policy": "dump"}, r"policy='dump' needs the function domain_of=.*budgetalloc.policies.dump\(domain_of"),
        ({"policy": {"seed": 1}}, "give a name of `budgetalloc methods`, or a mapping"),
        ({"policy": "no_such_module.build"}, "cannot be imported: No module named 'no_such_module'"),
        ({"policy": "budgetalloc.no_such"}, "cannot be imported: module 'budgetalloc' has no attribute 'no_such'"),
        (
            {"policy": "budgetalloc.policies.methods.published"},
            r"policy=<function published .* returned \d+ of type int: give a policy such as ba.adaptive",
        ),
        ({"pacing": "phases"}, "budgetalloc.pacing='phases' is of type str: give a mapping"),
        ({"pacing": {"name": "phase"}}, "budgetalloc.pacing: name='phase'"),
        ({"pacing": {"name": "constant", "rollouts": 9}}, "budgetalloc.pacing: give steps"),
        (
            {"pacing": {"name": "constant", "rollout": 9}},
            r"pacing: rollout is unknown, did you mean rollouts\?",
        ),
        ({"candidates": 0}, "candidates=0"),
        ({"baseline": "mean"}, "baseline='mean': use one of"),
        ({"ledger": 3}, "budgetalloc.ledger=3"),
        ({"prompt_id": 3}, "budgetalloc.prompt_id=3"),
        ({"features": 3}, "budgetalloc.features=3: name at least one column"),
        ({"features": []}, r"budgetalloc.features=\(\): name at least one column"),
        ({"allow_dataset_change": "yes"}, "use True or False"),
        ({"success": 2}, r"the trainer has 1 reward functions, \['reward'\]"),
        ({"domain": "data_source"}, r"domain='data_source' without quotas=None: give both"),
        ({"domain": "data_source", "quotas": {"math": 0.5}}, r"'math': 0.5}: give two shares of the rollouts"),
    ],
)
def test_bad_settings_are_refused(given, message):
    with pytest.raises(ba.InputError, match=message):
        read(**given)


def test_features_are_named():
    assert read(features=["text", "run:old.jsonl"]).features == ("text", "run:old.jsonl")
    assert read().features is None


def test_lists_of_a_configuration_become_tuples():
    assert read(reward_range=[-1.0, 1.0]).session.options.reward_range == (-1.0, 1.0)


def test_a_policy_of_the_user_s_own_is_imported():
    assert build({"name": "budgetalloc.policies.published.which_prompts.mopps.mopps", "seed": 2}).seed == 2


def test_success_may_be_an_entry_of_the_reward_function_s_dictionary():
    scoring = read(success="acc").session.scoring
    assert (scoring.names, scoring.weights) == (("reward", "acc"), [1.0, 0.0])
    scores_RF = np.array([[2.5, 1.0], [0.5, 0.0]])
    assert scoring.measure(scores_RF[:, 0], scores_RF).success(scores_RF[:, 0], scores_RF).tolist() == [1.0, 0.0]


def test_beliefs_are_about_the_score_and_not_the_penalty():
    scoring = read(penalty=True).session.scoring
    assert (scoring.names, scoring.weights) == (("reward", "kl_penalty"), [1.0, 1.0])
    scores_RF = np.array([[1.0, -0.7], [0.0, -0.1]])
    measure = scoring.measure(scores_RF.sum(axis=1), scores_RF)
    assert measure.success(scores_RF.sum(axis=1), scores_RF).tolist() == [1.0, 0.0]
    assert measure.reward_range is None  # the expected total is learned, with the penalty
