"""Decisions in rounds: the budget, group sizes, stop rules."""

import itertools

import numpy as np
import pytest
from policy_steps import play

from budgetalloc import (
    Budget,
    BudgetError,
    Features,
    InputError,
    Policy,
    UnsupportedError,
    adaptive,
    group_advantages,
    uniform,
)
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.methods import on_all_fail
from budgetalloc.policies import sequential


def test_a_rule_that_asks_for_more_than_the_budget_is_stopped():
    def greedy(view):
        while True:
            yield np.full(len(view.belief_P), 4)

    policy = Policy("greedy one", greedy, BetaEstimator())
    step = policy.begin(["a", "b"], Budget(10, floor=0))
    assert step.request().tolist() == [4, 4]
    with pytest.raises(BudgetError, match="request 16 rollouts"):
        step.request()


def test_further_rounds_need_a_budget_in_rollouts():
    with pytest.raises(UnsupportedError, match="on_all_fail spends rollouts only"):
        on_all_fail(uniform(), lambda ids: None).begin(["a"], Budget(None, tokens=100, cap=8), costs_P=[1.0]).request()


def gradient_sum(p, baseline):
    """The expected sum over a step's rollouts of (r - b) d log P(r) / dp, and the expected number of rollouts: one
    prompt of rate p gets 2 rollouts, and 2 more if both failed. All outcomes are enumerated."""
    total = rollouts = 0.0
    belief = BetaEstimator(prior=(0.4, 0.7)).belief(["x"])
    for outcomes in itertools.product([0.0, 1.0], repeat=4):
        if any(outcomes[:2]):
            outcomes = outcomes[:2]
        reward_R, round_R = np.array(outcomes), np.array([0, 0, 1, 1])[: len(outcomes)]
        tails = 2 ** (4 - len(outcomes))  # continuations that were not generated and say the same
        chance = np.prod(np.where(reward_R == 1, p, 1 - p)) / tails
        belief_R = belief.take(np.zeros(len(outcomes), dtype=np.int64))
        options = {"belief_R": belief_R, "round_R": round_R} if baseline == "rounds" else {"belief_R": belief_R}
        named = "posterior" if baseline in ("rounds", "posterior") else baseline
        away_R = group_advantages(reward_R, ["x"] * len(outcomes), named, "none", **options)
        total += chance * np.sum(away_R * np.where(reward_R == 1, 1 / p, -1 / (1 - p)))
        rollouts += chance * len(outcomes)
    return total, rollouts


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_a_group_extended_by_its_outcomes_has_the_true_gradient_if_later_rounds_are_left_out(p):
    total, rollouts = gradient_sum(p, "rounds")
    assert rollouts == pytest.approx(2 + 2 * (1 - p) ** 2)
    assert total == pytest.approx(rollouts)  # d p / d p is 1 for each rollout
    for biased in ("group", "loo", "posterior"):  # a group's mean also shrinks by its own share, so only this is sure:
        assert abs(gradient_sum(p, biased)[0] - rollouts) > 0.01 * rollouts


def test_the_second_round_goes_to_prompts_without_a_success_or_to_those_that_a_rule_names():
    rates = {"solved": 1.0, "failed": 0.0}
    counts_NP, _ = play(sequential(uniform(), share=0.5), list(rates), Budget(16), rates)
    assert counts_NP.tolist() == [[4, 4], [0, 8]]
    solved = sequential(uniform(), share=0.5, wants_more=lambda tally: tally.successes_P > 0)
    counts_NP, _ = play(solved, list(rates), Budget(16), rates)
    assert counts_NP.tolist() == [[4, 4], [8, 0]]


def test_a_rule_of_another_shape_is_refused():
    with pytest.raises(InputError, match=r"wants_more gave shape \(1,\): give True or False for each prompt"):
        play(sequential(uniform(), wants_more=lambda tally: [True]), ["a", "b"], Budget(16), {"a": 0.0, "b": 0.0})


@pytest.mark.parametrize("wrap", [sequential, lambda policy: on_all_fail(policy, lambda ids: ids, fewest=1)])
def test_a_policy_with_a_second_round_keeps_it_when_it_gets_features(wrap):
    policy = wrap(adaptive()).with_features(Features(["a", "b"], [[0.0], [1.0]]))
    step = policy.begin(["a", "b"], Budget(16, floor=0, min_group=1))
    assert step.in_rounds()
    assert step.request().sum() < 16
