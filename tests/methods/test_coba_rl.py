"""CoBA-RL: the density, the failures that move it, and the paper's value by brute force."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from policy_steps import visited
from scipy import stats

from budgetalloc import Budget
from budgetalloc.methods.coba_rl import capability, coba_rl


def paper_value(rates, counts, a, kappa, tau):
    """The paper's formula with scipy's density, which is another implementation than ours."""
    return sum(
        (1 - math.exp(-n * p * (1 - p) / tau)) * stats.beta.pdf(p, a, kappa - a)
        for p, n in zip(rates, counts, strict=True)
    )


@pytest.mark.parametrize(
    ("failure", "a"),
    [(1.0, 10.0), (0.75, 7.75), (0.5, 5.5), (0.25, 1 + 9 / (1 + math.exp(2.5))), (0.0, 1 + 9 / (1 + math.exp(5)))],
)
def test_the_weight_is_a_beta_density_that_follows_the_failures(failure, a):
    p_P = np.array([0.01, 0.2, 0.5, 0.8, 0.99])
    assert capability(p_P, failure, 11.0) == pytest.approx(stats.beta.pdf(p_P, a, 11 - a), rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 16), min_size=2, max_size=4), st.integers(0, 12), st.sampled_from([2.0, 11.0]))
def test_coba_rl_maximises_the_papers_value(passed, extra, kappa):
    rates = [k / 16 for k in passed]
    rollouts = 2 * len(rates) + extra
    assume(rollouts <= 9 * len(rates))
    counts_P = visited(coba_rl(high=9, kappa=kappa), rates).allocate(range(len(rates)), Budget(rollouts=rollouts))
    failure = 1 - np.mean(rates)
    share = failure if failure > 0.5 else 1 / (1 + math.exp(-10 * (failure - 0.5)))
    within = np.clip(rates, 0.01, 0.99)
    neither = [p for p in rates if 0.05 <= p <= 0.99] or [0.5]  # the released code's batch of tau
    others = (within, 1 + (kappa - 2) * share, kappa, 3 + 9 * min(6 * np.var(neither), 1))

    def worth(counts):
        return paper_value(others[0], counts, *others[1:])

    splits = itertools.product(range(2, 10), repeat=len(rates))
    assert worth(counts_P) >= max(worth(c) for c in splits if sum(c) == rollouts) - 1e-8


def test_a_weak_model_works_on_easy_prompts_and_a_strong_one_on_hard_ones():
    budget = Budget(rollouts=32)
    weak = visited(coba_rl(), [0.75, 0.25] + [0.0] * 8)
    assert weak.allocate([0, 1], budget).tolist() == [30, 2]
    strong = visited(coba_rl(), [0.75, 0.25] + [1.0] * 8)
    assert strong.allocate([0, 1], budget).tolist() == [2, 30]


def test_failures_and_rates_look_back_over_the_window():
    policy = coba_rl(window=2)
    for rewards in ([0] * 4, [1] * 4, [1, 0, 0, 0]):
        policy.observe(["a"] * 4 + ["b"] * 8, rewards + [1] * 8)
    policy.observe([], [])  # a step that shows nothing
    # a prompt counts once, however many rollouts
    assert policy.memory.numbers == {"failure_0": 3 / 8, "failure_1": 0.0}
    recall = policy.memory.recall(["a"])
    assert [recall[name][0].tolist() for name in ("successes", "scored")] == [[1, 4], [4, 4]]
