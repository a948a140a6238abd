"""Groups that are extended before others have ended: records, advantages and beliefs are those of whole rounds."""

import heapq
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc import policies
from budgetalloc.testing.conformance import same_state
from budgetalloc.training.session import Session
from budgetalloc.verl.groups import Groups

IDS = [f"p{at}" for at in range(24)]
RATE = {name: at / 23 for at, name in enumerate(IDS)}


def session_of(policy, ids=IDS, **given):
    given = {
        "floor": 0,
        "candidates": "all",
        "baseline": "posterior",
        "scale": "none",
        "reward_range": (0.0, 1.0),
        "fallback": False,  # the pool is small
    } | given
    return Session(policy, ["reward"], pool=ids, **given)


def generate(session, answer, delay, rollouts=48, group=4):
    """A step of an engine in which a group of a prompt takes `delay(name)` seconds, before its end.

    Returns the number of later requests while groups were under way, and the time of the end. `answer` gives the reward
    of a prompt's k-th rollout.
    """
    session.begin([], rollouts, group)
    groups, rewards, ends, made, now, early = Groups(session), {}, [], Counter(), 0.0, 0

    def submit(ids_R):
        turns, keys = groups.requests(), {}
        for name, count in Counter(ids_R).items():
            key = f"{name}/{turns.get(name, 0)}"
            keys[key] = name
            rewards[key] = [answer(name, made[name] + k) for k in range(count)]
            made[name] += count
            heapq.heappush(ends, (now + delay(name), key))
        groups.add(keys, [len(rewards[key]) for key in keys])

    def observe(keys):
        for key in keys:
            name = key.split("/")[0]
            session.observe([name] * len(rewards[key]), rewards[key], [5] * len(rewards[key]))

    submit(session.request())
    while groups.running:
        now, key = heapq.heappop(ends)
        ended = [key]
        while ends and (not groups.early or ends[0][0] == now):
            now, key = heapq.heappop(ends)
            ended.append(key)
        observe(ended)
        if ids_R := groups.request(ended):
            early += bool(groups.running)
            submit(ids_R)
    for keys in groups.in_whole_rounds():
        observe(keys)
    return early, now


def in_whole_rounds(session, answer, rollouts=48, group=4):
    """The same step as a loop without groups, such as TRL's callback, runs it."""
    session.begin([], rollouts, group)
    made = Counter()
    while ids_R := session.request():
        rewards_R = []
        for name in ids_R:
            rewards_R.append(answer(name, made[name]))
            made[name] += 1
        session.observe(ids_R, rewards_R, [5] * len(ids_R))
    return session.end()


def answers(seed):
    """The rewards of each prompt's rollouts, whichever are asked for."""
    drawn_PK = np.random.default_rng(seed).random((len(IDS), 64))
    return lambda name, k: float(drawn_PK[IDS.index(name), k] < RATE[name])


@pytest.mark.parametrize("make", [lambda: policies.growing(ba.adaptive()), lambda: ba.methods.ar3po(group=4, stages=2)])
@pytest.mark.parametrize("hardness", [-1.0, 0.0, 1.0])
def test_latency_changes_nothing_that_is_trained_on_or_learned(make, hardness):
    """Even where hard prompts take longer, or less long: to the bit, over five steps."""
    one, other = session_of(make(), min_group=2), session_of(make(), min_group=2)
    early = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        delays = {name: float(np.exp(hardness * 2 * (0.5 - RATE[name]) + 0.3 * rng.normal())) for name in IDS}
        early += generate(one, answers(seed), delays.get)[0]
        ended = one.end()
        expected = in_whole_rounds(other, answers(seed))
        assert ended.batch.ids_R == expected.batch.ids_R
        assert len(ended.batch) == 48
        for column in ("rewards_R", "round_R"):
            assert (getattr(ended.batch, column) == getattr(expected.batch, column)).all()
        assert (ended.advantages_R == expected.advantages_R).all()
        assert ended.metrics == expected.metrics
    assert same_state(one.state(), other.state())
    assert early > 5


def test_nobody_waits_for_the_slowest_group_of_a_round():
    """Lognormal durations: by group, a step takes less than 0.7 times as long as in whole rounds."""
    policy, seconds = policies.growing(ba.uniform()), Counter()
    for name, each in {
        "by group": policy,
        "rounds": replace(policy, needs=replace(policy.needs, by_group=False)),
    }.items():
        for seed in range(8):
            rng = np.random.default_rng(seed)
            session = session_of(each, [f"p{at}" for at in range(200)])
            easy = lambda name, k: float(int(name[1:]) % 7 <= k)  # noqa: E731
            seconds[name] += generate(session, easy, lambda _, rng=rng: rng.lognormal(), rollouts=256)[1]
    assert seconds["by group"] < 0.7 * seconds["rounds"]


def test_groups_wait_for_each_other_while_the_range_of_the_rewards_is_unknown():
    """Success depends on the rewards of the whole first round in a first step, and on nothing but itself afterwards."""
    session = session_of(policies.growing(ba.uniform()), reward_range=None)
    assert generate(session, answers(0), RATE.get)[0] == 0
    session.end()
    assert generate(session, answers(1), RATE.get)[0] > 0


def test_a_group_whose_rollouts_all_failed_does_not_stop_the_others():
    session = session_of(policies.growing(ba.uniform()))
    session.begin([], 48, 4)
    ids_R = session.request()
    groups = Groups(session)
    groups.add({name: name for name in ids_R}, Counter(ids_R).values())
    session.observe([], [], [])
    assert set(groups.request([ids_R[0]])) <= {ids_R[0], *IDS} - set(ids_R[2:])


def test_a_policy_that_depends_on_who_ends_first_is_found_out():
    """It gives all that is left to the first group that ended."""

    def first_served(view):
        counts_P = np.zeros(len(view.belief_P), dtype=np.int64)
        counts_P[:3] = 2
        seen = yield counts_P
        ended_P = (counts_P > 0) & ~seen.running_P
        yield np.where(np.cumsum(ended_P) == 1, ended_P * (view.budget.rollouts - 6), 0)

    policy = ba.Policy("first", first_served, ba.BetaEstimator(), needs=ba.Needs(by_group=True))
    for quick in (0, 2):  # the other one of the first request is the first of the view
        delays = iter([1.0 + (at != quick) for at in range(9)])
        with pytest.raises(ba.UnsupportedError, match=r"first has needs\.by_group=True, and decided otherwise"):
            generate(session_of(policy), answers(0), lambda name, delays=delays: next(delays), rollouts=12)
    delays = iter([1.0, 2.0, 3.0, 1.0])
    waits = session_of(replace(policy, needs=ba.Needs()))
    generate(waits, answers(0), lambda name: next(delays), rollouts=12)
    assert len(waits.record()) == 12
