"""XRPO's planner: intervals, bonuses, and rounds that go where the interval shrinks most."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from budgetalloc import Budget
from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.methods.xrpo import deviation, half_widths, xrpo


def second_round(policy, successes_P, each=4, more=32):
    """What the round after the bases adds for prompts with so many successes of `each`."""
    ids = [f"p{k}" for k in range(len(successes_P))]
    step = policy.begin(ids, Budget(each * len(ids) + more))
    assert step.request().tolist() == [each] * len(ids)
    step.observe(np.repeat(ids, each), [float(k < s) for s in successes_P for k in range(each)])
    return step.request()


def test_the_half_widths_are_those_of_student():
    counts_N = np.arange(2, 300)
    exact = stats.t.ppf(0.975, counts_N - 1) / np.sqrt(counts_N)
    assert np.allclose(half_widths(299, 0.05)[2:], exact, rtol=1e-10)
    assert half_widths(2, 0.5)[2] == pytest.approx(stats.t.ppf(0.75, 1) / np.sqrt(2))
    assert (np.diff(half_widths(3000, 0.05)[2:], n=2) > 0).all()  # so that greedy is exact


@given(rewards=st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=40))
@settings(max_examples=50, deadline=None)
def test_the_deviation_of_binary_rewards_is_the_sample_deviation(rewards):
    seen = ByPrompt.of(["a"] * len(rewards), np.array(rewards), np.array(rewards))
    assert deviation(seen)[0] == pytest.approx(np.std(rewards, ddof=1))


@pytest.mark.parametrize("bonus", ["sqrt", "linear"])
@pytest.mark.parametrize("clock", ["rollouts", "steps"])
def test_each_rollout_goes_to_the_highest_priority(bonus, clock):
    """Brute force: each rollout to the largest Pi, which is then taken at n + 1."""
    successes, each, more = [0, 1, 2, 3, 4, 2], 4, 41
    policy = xrpo(rounds=1, weight=0.3, bonus=bonus, clock=clock)
    for _ in range(7):
        policy.observe([], [])
    got = second_round(policy, successes, each, more)
    rate = np.array(successes) / each
    s_P = np.sqrt(each / (each - 1) * rate * (1 - rate))
    n_P = np.full(6, each)
    spent = 7 if clock == "steps" else each * 6
    for _ in range(more):
        shrink = s_P * (stats.t.ppf(0.975, n_P - 1) / np.sqrt(n_P) - stats.t.ppf(0.975, n_P) / np.sqrt(n_P + 1))
        share = np.log(1 + spent) / n_P
        n_P[np.argmax(np.round(shrink + 0.3 * (np.sqrt(share) if bonus == "sqrt" else share), 12))] += 1
    wanted = n_P - each
    assert got.sum() == wanted.sum() == more
    twins = [[0, 4], [1, 3], [2, 5]]  # equal priorities: who of them has the last rollout is a tie
    assert [sorted(got[t]) for t in twins] == [sorted(wanted[t]) for t in twins]


def test_later_rounds_see_the_rewards_of_earlier_ones():
    """Both prompts look alike after the base; the one that then varies gets the last round."""
    step = xrpo(base=4, rounds=2, weight=0.0).begin(["a", "b"], Budget(24))
    step.request()
    step.observe(["a"] * 4 + ["b"] * 4, [1, 0, 0, 0] * 2)
    middle = step.request()
    assert middle.tolist() == [4, 4]
    step.observe(["a"] * 4 + ["b"] * 4, [1, 1, 1, 0, 0, 0, 0, 0])
    last = step.request()
    assert last.sum() == 8
    assert last[0] > last[1]
