"""The node `budgetalloc` of verl's configuration."""

import numpy as np
import pytest
from datasets import Dataset

import budgetalloc as ba
from budgetalloc.contrib.costs import Costs
from budgetalloc.contrib.domains import Domains
from budgetalloc.contrib.mixture import Mixture
from budgetalloc.contrib.shadow import Shadow
from budgetalloc.training.parts import Host
from budgetalloc.training.prompts import Prompts
from budgetalloc.verl.settings import Settings


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
    assert read(policy="uniform", resolution=0.01).session.options.baseline == "group"


def test_costs_are_tokens_or_what_agent_loops_report():
    settings = read(cost={"tokens": 1, "turns": 50}, cost_per_step=4000)
    costs = settings.session.part(Costs)
    assert (costs.reports, costs.budget.target) == (("turns",), 4000)
    assert read(cost="tokens").session.options.cost == "tokens"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cost": "seconds"}, "budgetalloc.cost=seconds: verl's steps are not timed. Use cost=tokens"),
        ({"cost_per_step": 9}, "cost_per_step=9 with cost=None"),
        ({"polcy": "knapsack"}, r"budgetalloc.polcy is unknown, did you mean policy\?"),
        ({"policy": "knapsak"}, r"'knapsak' is unknown, did you mean knapsack\?"),
        ({"policy": 3}, "budgetalloc.policy=3 is of type int: give a policy"),
        ({"policy": {"name": "knapsack", "sed": 1}}, r"knapsack\(sed=\) is unknown, did you mean seed\?"),
        ({"policy": {"name": "budgetalloc.knapsack", "sed": 1}}, r"knapsack\(sed=\) is unknown, did you mean seed\?"),
        ({"policy": "dump"}, r"policy='dump' needs the function domain_of=.*budgetalloc.methods.dump\(domain_of"),
        ({"policy": {"seed": 1}}, r"budgetalloc.policy=.*: a mapping needs the key name"),
        ({"policy": "no_such_module.build"}, "cannot be loaded, ModuleNotFoundError: No module named 'no_such_module'"),
        ({"policy": "budgetalloc.no_such"}, "AttributeError: module 'budgetalloc' has no attribute 'no_such'"),
        (
            {"policy": "budgetalloc.methods.table.published"},
            r"policy='budgetalloc.methods.table.published' returned \d+ of type int: give a policy such as ba.adaptive",
        ),
        ({"pacing": "phases"}, "budgetalloc.pacing='phases' is of type str: give a mapping"),
        ({"pacing": {"name": "phase"}}, "budgetalloc.pacing: name='phase'"),
        ({"pacing": {"name": "constant", "rollouts": 9}}, "budgetalloc.pacing: give steps"),
        (
            {"pacing": {"name": "constant", "rollout": 9}},
            r"pacing: rollout is unknown, did you mean rollouts\?",
        ),
        ({"baseline": "mean"}, "baseline='mean': use one of"),
        ({"ledger": 3}, "budgetalloc.ledger=3"),
        ({"prompt_id": 3}, "budgetalloc.prompt_id=3"),
        ({"features": 3}, "budgetalloc.features=3: name at least one column"),
        ({"features": []}, r"budgetalloc.features=\(\): name at least one column"),
        ({"allow_dataset_change": "yes"}, "use True or False"),
        ({"mixture": "learn"}, r"mixture='learn' without domain=: name the dataset column"),
    ],
)
def test_bad_settings_are_refused(given, message):
    with pytest.raises(ba.InputError, match=message):
        read(**given)


def test_a_mixture_needs_no_quotas():
    domains = read(domain="data_source", mixture={"rule": "adept", "probe": 0.1}).session.part(Domains)
    assert (domains.mixture, domains.shares) == (Mixture("adept", 0.1), {})
    session = read(domain="data_source", mixture="learn", quotas={"math": [0.1, 0.5]}).session
    assert session.part(Domains).shares == {"math": (0.1, 0.5)}


def test_a_shadow_adopts_features_and_quotas_and_watches_a_step():
    given = {"domain": "kind", "quotas": {"a": (0.25, 1.0)}, "shadow": {"name": "adaptive", "seed": 4}}
    session = read(policy="knapsack", candidates="all", deviation=False, cap=6, **given).session
    rows = [{"prompt": f"q{k}", "prompt_id": k, "kind": "ab"[k % 2]} for k in range(8)]
    prompts = Prompts(Dataset.from_list(rows))
    session.policy = session.policy.with_features(ba.Features.of_columns(range(8), {"kind": ["a", "b"] * 4}))
    session.pool = prompts.pool
    session.attach(Host(prompts, (16,), 4))
    watching = session.part(Shadow).session
    assert watching.policy.estimator.features is session.policy.estimator.features
    assert watching.part(Domains).quotas is not None
    assert (watching.policy.seed, watching.options.bounds.cap, watching.options.scale) == (4, 6, "none")
    session.begin([], 16, 4)
    session.observe(session.request(), [0, 1] * 8, np.ones(16))
    metrics = session.end().metrics
    assert metrics["shadow/errors"] == 0
    assert metrics["shadow/prompts"] > 0


def test_a_shadow_that_verl_cannot_serve_is_refused():
    settings = read(shadow="uniform")
    with pytest.raises(ba.InputError, match=r"shadow=uniform.*chooses from the loader's batch, and a"):
        settings.session.attach(Host(check=settings.check_shadow))
    with pytest.raises(ba.InputError, match=r"budgetalloc\.shadow='adaptive': verl decides several steps ahead"):
        Settings.read({"shadow": "adaptive"}, deviation=True, penalty=False, ahead=True)
    with pytest.raises(ba.InputError, match=r"budgetalloc\.shadow=3 is of type int"):
        read(shadow=3)


def test_a_policy_of_the_user_s_own_is_imported():
    own = {"name": "budgetalloc.methods.mopps.mopps", "seed": 2}
    assert read(policy=own).session.policy.seed == 2


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


def test_the_time_that_a_batch_waits_for_stragglers():
    assert Settings.read({}, deviation=True, penalty=False, ahead=True).straggler_timeout == 600
    given = {"straggler_timeout": 30}
    assert Settings.read(given, deviation=True, penalty=False, ahead=True).straggler_timeout == 30
    with pytest.raises(ba.InputError, match="straggler_timeout is for trainer_mode=budgetalloc_async"):
        Settings.read(given, deviation=True, penalty=False)
    with pytest.raises(ba.InputError, match=r"budgetalloc\.straggler_timeout=0"):
        Settings.read({"straggler_timeout": 0}, deviation=True, penalty=False, ahead=True)
