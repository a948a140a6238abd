"""What is refused, and that the reason is given."""

import pytest

import budgetalloc as ba
from budgetalloc.training.options import Options
from budgetalloc.verl.compatibility import (
    BUFFER_SEAM,
    SEAM,
    check_config,
    check_decisions,
    check_rounds,
    check_verl,
    without_rounds,
)
from budgetalloc.verl.settings import Settings


class Node(dict):
    """What `check_config` uses of OmegaConf's nodes."""

    __getattr__ = dict.__getitem__


def config(estimator="grpo", filtering=False, refill=False, skip=False, penalty=False, mode="budgetalloc"):
    return Node(
        algorithm=Node(adv_estimator=estimator, filter_groups=Node(enable=filtering), use_kl_in_reward=penalty),
        trainer=Node(v1=Node(trainer_mode=mode, sampler=Node(sync_refill_failed_groups=refill))),
        skip=Node(rollout_tq=Node(enable=skip)),
    )


def check(policy, critic=False, given=None, **config_of):
    settings = Settings.read({"policy": policy} | (given or {}), deviation=True, penalty=False)
    check_config(config(**config_of), settings.session.policy, settings.session.options, critic)


@pytest.mark.parametrize("name", ["uniform", "adaptive", "thompson", "knapsack", "spo", "pods"])
def test_grpo_is_served(name):
    check(name)


def test_uniform_keeps_any_estimator_of_verl():
    check("uniform", estimator="gae", critic=True)
    check("uniform", estimator="rloo")


@pytest.mark.parametrize(
    ("policy", "critic", "settings", "message"),
    [
        ("pods", False, {"penalty": True}, "use_kl_in_reward=True and a policy that chooses among its rollouts"),
        ("uniform", False, {"filtering": True}, "filter_groups.enable=True: verl drops groups of equal rewards"),
        ("uniform", False, {"refill": True}, "sync_refill_failed_groups=True: new prompts in the middle of a step"),
        ("adaptive", False, {"skip": True}, "rollouts that are read from disk"),
        ("adaptive", True, {"estimator": "gae"}, "a critic .*Use algorithm.adv_estimator=grpo without a critic"),
        ("thompson", False, {"estimator": "rloo"}, "would replace those of rloo"),
    ],
)
def test_what_cannot_be_served_is_refused_with_its_reason(policy, critic, settings, message):
    with pytest.raises(ba.UnsupportedError, match=f"trainer_mode=budgetalloc does not work with .*{message}"):
        check(policy, critic, **settings)


def test_generating_ahead_choices_that_need_the_whole_step_are_refused():
    quotas = {"domain": "subject", "quotas": {"math": [0.5, 1.0]}}
    for given, message in [
        ({"policy": "adaptive", "candidates": 2}, r"candidates=2 in an asynchronous trainer, which trains on a number"),
        ({"policy": "pods"}, r"chooses among its rollouts \(pods.*whose batches hold groups of several decisions"),
        (
            {"policy": "adaptive"} | quotas,
            r"domain='subject' in an asynchronous trainer.*Use trainer_mode=budgetalloc\.",
        ),
    ]:
        settings = Settings.read(given, deviation=True, penalty=False, ahead=True)
        policy, options = settings.session.policy, settings.session.options
        with pytest.raises(ba.UnsupportedError, match=f"trainer_mode=budgetalloc_async does not work with .*{message}"):
            check_config(config(mode="budgetalloc_async"), policy, options, False, ahead=True)


PACING = {"name": "phases", "rollouts": 96, "steps": 2, "quantum": 8, "parts": [[1, 1.0], [1, 2.0]]}


def test_pacing_is_refused_where_counts_are_not_decided_once_a_step():
    for given, ahead, message in [
        ({"policy": "adaptive"}, True, "a pacing .* in an asynchronous trainer"),
        ({"policy": "uniform"}, False, "a pacing of uniform.*, which leaves verl's batch as it is"),
        ({"policy": "pods"}, False, "a pacing of pods.*, which generates more than it trains on"),
    ]:
        settings = Settings.read(given | {"pacing": PACING}, deviation=True, penalty=False, ahead=ahead)
        with pytest.raises(ba.UnsupportedError, match=message):
            check_config(config(), settings.session.policy, settings.session.options, False, ahead=ahead)
    check("adaptive", given={"pacing": PACING})


def test_a_plan_that_no_later_step_could_spend_is_refused_at_once():
    paced = Settings.read({"policy": "knapsack", "pacing": PACING}, deviation=True, penalty=False).session.policy
    decisions(paced, ids=16, cap=8, candidates="all")
    with pytest.raises(ba.BudgetError, match="64"):
        decisions(paced, ids=16, cap=3, candidates="all")


def test_a_policy_that_generates_more_must_choose():
    policy = ba.Policy("more", ba.thompson().decide, ba.BetaEstimator(), needs=ba.Needs(generate=2))
    with pytest.raises(ba.InputError, match="has no keep= that chooses among them"):
        check_config(config(), policy, Options.resolve(policy.needs, "group", {}), False)


def decisions(policy, ids=32, rollouts=32, group=4, **given):
    settings = Settings.read({"policy": "uniform"} | given, deviation=True, penalty=False)
    return check_decisions(policy, settings.session.options, list(range(ids)), rollouts, group)


def test_policies_in_rounds_need_rewards_within_the_step():
    assert not decisions(ba.thompson())
    assert decisions(ba.methods.ar3po(group=4))

    def rounds(enable=False, pool=False, ahead=False, **given):
        model = Node(reward_model=Node(enable=enable, enable_resource_pool=pool))
        check_rounds(ba.methods.ar3po(), without_rounds(Node(reward=model, **config(**given)), ahead=ahead))

    rounds()
    rounds(enable=True, pool=True)
    for given, message in [
        ({"ahead": True}, r"an asynchronous trainer, .* Use trainer_mode=budgetalloc\."),
        ({"enable": True}, r"a colocated reward model, .* Set reward\.reward_model\.enable_resource_pool=True"),
        ({"penalty": True}, r"algorithm\.use_kl_in_reward=True: .* Use actor_rollout_ref\.actor\.use_kl_loss=True\."),
    ]:
        with pytest.raises(ba.UnsupportedError, match=f"ar3po.* decides in rounds, .* does not work with {message}"):
            rounds(**given)


def test_budgets_that_cannot_be_spent_are_refused_before_anything_is_loaded():
    with pytest.raises(ba.BudgetError):
        decisions(ba.thompson(), floor=8)
    with pytest.raises(ba.InputError, match=r"has 4 prompts, and data.train_batch_size is 8"):
        decisions(ba.thompson(), ids=4)
    decisions(ba.thompson(), ids=4, candidates="all")


def test_a_verl_without_a_method_is_refused_by_version_and_name():
    trainer = type("PPOTrainerSync", (), dict.fromkeys(SEAM))
    check_verl(trainer, "0.9.1")
    del trainer._step_once
    with pytest.raises(ba.UnsupportedError, match=r"verl 0.8.0 has no PPOTrainerSync._step_once.*Install verl 0.9.1"):
        check_verl(trainer, "0.8.0")
    with pytest.raises(ba.UnsupportedError, match=r"verl 0.9.1 has no Buffer._sync_metadata_from_transfer_queue"):
        check_verl(type("Buffer", (), {}), "0.9.1", BUFFER_SEAM)
