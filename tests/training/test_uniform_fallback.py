"""Groups become uniform while beliefs are wrong on purpose, and no longer when they are right again; healthy runs hear
no word."""

import logging
from dataclasses import replace

import numpy as np
import pytest
from false_alarms import HEALTHY, shuffled, simulated  # in benchmarks
from one_step import rollouts_of

import budgetalloc as ba
from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.training.residuals import PromptResiduals
from budgetalloc.training.uniform_fallback import (
    _FALLEN,
    _HEALED,
    _WARNED,
    CHANGED,
    CONSTANT,
    UniformFallback,
    agreement,
)

SUCCESS = np.tile([0.0, 1.0], 16)
EARLIER = Sums.of(SUCCESS, SUCCESS)


def step(mean_R, success_R=SUCCESS):
    """32 rollouts of as many prompts, with firm beliefs about each."""
    mean_R = np.clip(np.asarray(mean_R, dtype=float) * np.ones(len(success_R)), 0.01, 0.99)
    belief_R = ba.Beta(1e4 * mean_R, 1e4 * (1 - mean_R))
    return rollouts_of(success_R, range(len(success_R)), belief_R=belief_R, earlier=EARLIER)


WHOLE = step(0.5)
REASON = "its history does not say which prompts"


def pairs(mean_P, rate_P=None, n=2, seed=0):
    """Groups of n rollouts of these prompts, with firm beliefs."""
    mean_P = np.asarray(mean_P, dtype=float)
    rate_P = mean_P if rate_P is None else rate_P
    success_R = (np.random.default_rng(seed).random(n * len(mean_P)) < np.repeat(rate_P, n)).astype(float)
    mean_R = np.clip(np.repeat(mean_P, n), 0.01, 0.99)
    belief_R = ba.Beta(8 * mean_R, 8 * (1 - mean_R))
    return rollouts_of(success_R, np.repeat(np.arange(len(mean_P)), n), belief_R=belief_R, earlier=EARLIER)


RATES = np.random.default_rng(0).beta(0.4, 0.4, 64)


def said(guard, quiet=False):
    """These guard, as in a session that logs."""
    guard.quiet = quiet
    return guard


def learn(guard, rollouts):
    return guard.learn(rollouts, step=None)


OTHERS = min(
    (np.random.default_rng(seed).permutation(RATES) for seed in range(50)),
    key=lambda others: abs(np.corrcoef(others, RATES)[0, 1]),
)


def wrong(seed):
    """A step whose beliefs are those of other prompts."""
    return pairs(OTHERS, RATES, seed=seed)


def test_lasting_wrong_beliefs_are_warned_of_once_and_fall_back_until_they_have_healed(caplog):
    guard = said(UniformFallback())
    for at in range(1, _FALLEN + 1):
        assert not guard.uniform
        learn(guard, wrong(at))
        assert (REASON in caplog.text) == (at >= _WARNED)
    assert caplog.text.count(REASON) == 1
    assert "After 8.0 earlier rollouts a prompt" in caplog.text
    assert "From now on groups are uniform" in caplog.text
    steps = 0
    while guard.uniform and steps < 200:
        assert learn(guard, pairs(RATES, seed=steps))["fallback"] == 1.0
        steps += 1
    assert _HEALED <= steps < 60  # the averages of what was wrong fade first
    assert "the policy decides again" in caplog.text


def test_beliefs_that_are_the_opposite_of_the_truth():
    guard = said(UniformFallback(), quiet=True)
    for seed in range(_FALLEN):
        metrics = learn(guard, pairs(1 - RATES, RATES, seed=seed))
    assert metrics["baseline/brier"] > 0.5
    assert guard.uniform


@pytest.mark.parametrize("prompts", [4, 64, 512])
@pytest.mark.parametrize("low_high", [(0.4, 0.6), (0.0, 0.1), (0.95, 1.0)])
def test_prompts_that_resemble_each_other_are_no_fault_of_the_beliefs(prompts, low_high, caplog):
    guard, rng = said(UniformFallback()), np.random.default_rng(0)
    for seed in range(100):
        learn(guard, pairs(rng.random(prompts), rng.uniform(*low_high, prompts), seed=seed))
    assert not guard.uniform
    assert REASON not in caplog.text


def test_single_rollouts_do_not_show_how_much_prompts_differ():
    assert not agreement(step(1 - SUCCESS))[:2].any()


def test_retried_prompts_whose_beliefs_are_alike_raise_no_alarm(caplog):
    """They have all just failed, and some of them have been learned since. Beside single rollouts of the others, whose
    beliefs are high, beliefs tell prompts apart."""
    guard, rng = said(UniformFallback()), np.random.default_rng(0)
    for _ in range(100):
        retried_P, other_P = rng.permutation(np.repeat([0.02, 0.7], 16)), rng.uniform(0.6, 1.0, 64)
        ids_R = np.concatenate([np.repeat(np.arange(32), 2), np.arange(32, 96)])
        mean_P = np.concatenate([rng.uniform(0.1, 0.2, 32), other_P])
        success_R = rng.random(len(ids_R)) < np.concatenate([retried_P, other_P])[ids_R]
        belief_R = ba.Beta(8 * mean_P[ids_R], 8 * (1 - mean_P[ids_R]))
        learn(guard, rollouts_of(success_R.astype(float), ids_R, belief_R=belief_R, earlier=EARLIER))
    assert not guard.uniform
    assert REASON not in caplog.text


@pytest.mark.parametrize("n", [2, 3, 8])
def test_the_agreement_of_a_step_is_unbiased_also_in_groups_that_grow(n):
    """A group that goes on while all fail has more failures than its rate; its first round has not."""
    rng, sums = np.random.default_rng(n), []
    mean_P = np.clip(RATES + 0.2 * rng.normal(size=len(RATES)), 0.05, 0.95)
    for seed in range(400):
        first = pairs(mean_P, RATES, n, seed)
        failed_P = first.success_R.reshape(-1, n).sum(axis=1) == 0
        rows_R = np.flatnonzero(np.repeat(failed_P, n))
        more = pairs(mean_P, RATES, n, seed + 1000)
        grown = np.concatenate([np.arange(len(first)), rows_R])
        sums.append(
            agreement(
                replace(
                    first,
                    ids_R=[first.ids_R[at] for at in grown],
                    group_R=first.group_R[grown],
                    rewards_R=np.concatenate([first.rewards_R, more.rewards_R[rows_R]]),
                    success_R=np.concatenate([first.success_R, more.success_R[rows_R]]),
                    belief_R=first.belief_R.take(grown),
                    prior=first.prior.take(grown),
                    round_R=np.repeat([0, 1], [len(first), len(rows_R)]),
                    hinted_R=np.zeros(len(grown), dtype=bool),
                )
            )
        )
    several, between, prompts, *means = np.mean(sums, axis=0)
    assert several == prompts == len(RATES) - 1
    true = np.cov(mean_P, RATES)
    means = np.array([between, *means]) / prompts
    assert means == pytest.approx([true[1, 1], true[0, 1], true[0, 0], 8.0], rel=0.03)


@pytest.mark.parametrize(("low", "width", "learned"), [(0.0, 1.0, 0.0), (0.2, 0.5, 0.25)])
def test_healthy_steps_do_nothing_and_quick_learning_does_not_fall_back(low, width, learned, caplog):
    """The true rates are `learned` above the believed ones: advantages lean up."""
    guard = said(UniformFallback())
    for seed in range(100):
        rng = np.random.default_rng(seed)
        mean_R = low + width * rng.random(32)
        learn(guard, step(mean_R, (rng.random(32) < mean_R + learned).astype(float)))
    assert not guard.uniform
    assert learned or not caplog.records


def test_without_fallback_it_only_warns(caplog):
    guard = said(UniformFallback(fallback=False))
    for seed in range(2 * _FALLEN):
        learn(guard, wrong(seed))
    assert not guard.uniform
    assert caplog.text.count(REASON) == 1
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert "From now on" not in caplog.text


def test_quiet(caplog):
    guard = said(UniformFallback(), quiet=True)
    for seed in range(_FALLEN):
        learn(guard, wrong(seed))
    assert guard.uniform
    assert not caplog.records


def test_a_step_without_rewards_says_nothing():
    guard = said(UniformFallback())
    assert learn(guard, step(0.5, np.full(4, np.nan))) == {"fallback": 0.0}
    assert guard.state_dict() == UniformFallback().state_dict()


def test_metrics_by_hand():
    metrics = learn(UniformFallback(), WHOLE)
    assert metrics["baseline/brier"] == pytest.approx(0.25)
    assert metrics["baseline/brier_pool_mean"] == pytest.approx(0.25)
    assert metrics["advantage/rms_grpo"] == pytest.approx(np.sqrt(7 / 8 * (1 - 2 / 256)), rel=0.01)


def test_a_saved_state_goes_on():
    first, again = UniformFallback(), UniformFallback()
    for seed in range(_FALLEN - 1):
        learn(first, wrong(seed))
    again.load_state_dict(first.state_dict())
    for guard in (first, again):
        learn(guard, wrong(99))
        assert guard.uniform
    assert first.state_dict() == again.state_dict()
    off = UniformFallback(fallback=False)
    off.load_state_dict(first.state_dict())
    assert not off.uniform


def test_a_change_of_all_rewards_is_said_once(caplog):
    guard = said(UniformFallback())
    for _ in range(2 * _WARNED):
        metrics = learn(guard, step(0.9, np.tile([0.0, 0.0, 0.0, 1.0], 8)))
        assert metrics["baseline/recalibrated"] == 1.0
    assert caplog.text.count(CHANGED.partition("%s")[0]) == 1
    assert "are below what was believed" in caplog.text
    assert learn(guard, WHOLE)["baseline/recalibrated"] == 0.0


@pytest.mark.parametrize("reward", [0.0, 0.7, 1.0])
def test_a_constant_reward_is_no_change_of_rewards_and_is_said_after_the_first_steps(reward, caplog):
    guard = said(UniformFallback(fallback=False))
    for at in range(1, 3 * _WARNED):
        learn(guard, step(0.5, np.full(32, reward)))
        assert (CONSTANT % (_WARNED, reward) in caplog.text) == (at >= _WARNED)
    assert caplog.text.count("all rewards were equal") == 1
    assert CHANGED.partition("%s")[0] not in caplog.text


@pytest.mark.parametrize("rate", [0.9, 0.5])
def test_a_constant_rate_is_no_change_of_rewards(rate, caplog):
    """It seems to be one for some steps in a row: what earlier steps fell short counts again."""
    for seed in range(6):
        session = ba.Session(ba.adaptive(seed=seed), ["reward"], pool=list(range(512)))
        rng = np.random.default_rng(seed)
        for _ in range(60):
            session.begin([], rollouts=64, group=8)
            ids = session.request()
            session.observe(ids, (rng.random(len(ids)) < rate).astype(float), lengths_R=[1] * len(ids))
            session.end()
    assert CHANGED.partition("%s")[0] not in caplog.text


def test_steps_of_equal_rewards_count_in_a_row(caplog):
    guard = said(UniformFallback())
    for at in range(3 * _WARNED):
        learn(guard, WHOLE if at % _WARNED == 0 else step(0.5, np.ones(32)))
    assert "all rewards were equal" not in caplog.text


@pytest.mark.parametrize("change", [{"sums": {}}, {"worse": None}, {"within": "x"}, {"uniform": 3}])
def test_a_damaged_state(change):
    guard = UniformFallback()
    with pytest.raises(ba.StateError, match="damaged"):
        guard.load_state_dict(UniformFallback().state_dict() | change)
    assert guard.state_dict() == UniformFallback().state_dict()


def test_a_session_has_them_only_where_advantages_follow_from_beliefs():
    assert [type(part) for part in ba.Session("adaptive", ["reward"], pool=["a"]).parts] == [
        UniformFallback,
        PromptResiduals,
    ]
    assert not ba.Session("uniform", ["reward"]).parts
    assert ba.Session("adaptive", ["reward"], pool=["a"], fallback=False).part(UniformFallback).fallback is False


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_hears_no_word(name, caplog):
    """`benchmarks/false_alarms.py` makes twenty runs of each, three times as long."""
    assert simulated(HEALTHY[name], 40) == 0
    assert not caplog.records


@pytest.mark.parametrize(("prompts", "rounds", "first"), [(2000, 3, 2), (2000, 1, 2), (300, 3, 2), (300, 1, 4)])
def test_success_that_has_nothing_to_do_with_the_prompt_is_said_within_30_steps(prompts, rounds, first, caplog):
    simulated((prompts, 256, shuffled), 30, rounds=rounds, first=first)
    assert REASON in caplog.text


@pytest.mark.parametrize(
    ("prompts", "given", "uniform"),
    [
        (100, {}, True),
        (128, {}, True),
        (129, {}, False),
        (100, {"fallback": False}, False),
        (100, {"candidates": 1}, False),
        (100, {"baseline": "loo"}, False),  # whose groups are the user's own choice
    ],
)
def test_a_pool_with_two_rollouts_a_prompt_at_each_step_is_trained_on_as_by_grpo(prompts, given, uniform, caplog):
    names, rng = [f"q{at}" for at in range(prompts)], np.random.default_rng(0)
    session = ba.Session(ba.adaptive(), ["reward"], pool=names, trainer_scale="group", **given)
    for _ in range(12):
        session.begin(names[:32], rollouts=256, group=8)
        ids = session.request()
        rewards = rng.integers(0, 2, len(ids)).astype(float)
        session.observe(ids, rewards, lengths_R=[1] * len(ids))
        ended = session.end()
        assert ended.batch.uniform is uniform
        if uniform:
            assert set(np.bincount(ended.batch.group_R)) == {8}
            assert ended.advantages_R == pytest.approx(ba.group_advantages(rewards, ids))
            assert ended.metrics["fallback"] == 0  # which is about beliefs
    assert ("100 prompts for 256 rollouts a step" in caplog.text) is (uniform and prompts == 100)
    assert caplog.text.count("ended below plain GRPO") == int(uniform)


def test_small_pools_keep_their_budget_under_quotas_and_caps():
    names = [f"q{at}" for at in range(40)]
    domain = {name: "even" if int(name[1:]) % 2 == 0 else "odd" for name in names}
    given = {"domain": domain, "quotas": {"even": (0.7, 0.8)}, "cap": 16}
    session = ba.Session(ba.adaptive(), ["reward"], pool=names, quiet=True, **given)
    for _ in range(5):
        session.begin([], rollouts=96, group=8)
        ids = session.request()
        assert len(ids) == 96
        assert 0.7 <= np.mean([domain[x] == "even" for x in ids]) <= 0.8
        assert max(ids.count(x) for x in set(ids)) <= 16
        session.observe(ids, [1.0] * 96, lengths_R=[1] * 96)
        session.end()
