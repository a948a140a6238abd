"""The contract of advantages: their size is that of GRPO in groups of 8 on the same prompts, whatever the rewards are.

A `Session` runs the policy, as in a trainer. GRPO's advantages are those of 8 new rollouts of each rollout's prompt.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import policies
from budgetalloc.policies.advantages import group_advantages
from budgetalloc.training.options import Options
from budgetalloc.training.session import Session

PROMPTS, ROLLOUTS, STEPS = 200, 64, 60


@dataclass(frozen=True)
class Sizes:
    """Root mean squares of the first 20 steps and of later ones, each with GRPO's, and the largest advantages."""

    first: tuple[float, float]
    later: tuple[float, float]
    largest: float
    grpos_largest: float

    def check(self):
        for (size, grpo), factor in ((self.first, 3.0), (self.later, 1.5)):
            assert grpo / factor - 1e-3 <= size <= grpo * factor + 1e-3, self
        assert self.largest <= 10 * max(self.grpos_largest, 1.0), self


def run(draw, names=("reward",), weights=(1.0,), *, policy=None, seed=0, disturb=None, steps=STEPS, success=None):
    """Trains on rewards `draw(prompts, rng)` of shape (R, F), which `disturb(step, scores)` may change."""
    rng, policy = np.random.default_rng(seed), policy or ba.adaptive(seed=seed)
    options = Options.resolve(policy.needs, "group", {} if success is None else {"success": success})
    session = Session(policy, names, weights, pool=range(PROMPTS), resolved=options, quiet=True)
    pool, squares, largest = list(range(PROMPTS)), [], [0.0, 0.0]
    for at in range(steps):
        session.begin(pool[:8], ROLLOUTS, 8)
        ids_R = session.request()
        scores_RF = draw(np.array(ids_R), rng)
        if disturb is not None:
            scores_RF = disturb(at, scores_RF)
        session.observe(ids_R, scores_RF, np.ones(len(ids_R)))
        advantages_R = session.end().advantages_R
        eight = np.nansum(draw(np.repeat(ids_R, 8), rng) * np.array(weights), axis=1)
        grpo_R = group_advantages(eight, np.repeat(np.arange(len(ids_R)), 8))
        squares.append((np.mean(advantages_R**2), np.mean(grpo_R**2)))
        largest = [max(largest[0], np.abs(advantages_R).max()), max(largest[1], np.abs(grpo_R).max())]
    of_steps = np.array(squares)
    parts = of_steps[:20], of_steps[min(20, steps - 1) :]
    first, later = (tuple(np.sqrt(x.mean(axis=0)).tolist()) for x in parts)
    return Sizes(first, later, *largest)


def one(values):
    return values[:, None]


def binary(p_P):
    return lambda at_R, rng: one((rng.random(len(at_R)) < p_P[at_R]).astype(float))


RATES = 1 / (1 + np.exp(-np.random.default_rng(3).normal(0, 2, PROMPTS)))
some = settings(max_examples=8, deadline=None)
# One feature of three tells the rate in most pools below.
FEATURES = ba.Features(range(PROMPTS), np.column_stack([RATES, np.random.default_rng(4).normal(0, 1, (PROMPTS, 2))]))
both = pytest.mark.parametrize("features", [None, FEATURES], ids=["alone", "features"])


@both
@some
@given(st.floats(0.01, 0.99), st.floats(0, 3), st.integers(0, 9))
def test_success_or_failure(features, rate, spread, seed):
    """From pools of one rate, rare or not, to pools of all rates."""
    logit_P = np.log(rate / (1 - rate)) + np.random.default_rng(seed).normal(0, spread, PROMPTS)
    run(binary(1 / (1 + np.exp(-logit_P))), policy=ba.adaptive(features=features, seed=seed), seed=seed).check()


@both
@some
@given(st.sampled_from([2.0, 0.8, 0.3, 0.1]), st.floats(0, 10), st.integers(0, 9))
@example(0.1, 10.0, 1)  # first visits have advantages of 5 here, which must not lower those of later steps
def test_a_reward_model(features, within, between, seed):
    """Table of `within` deviations from 2 to 0.1; a reward model's scores have no bounds and any mean."""
    mean_P = np.random.default_rng(seed).normal(3, between, PROMPTS)
    run(
        lambda at_R, rng: one(mean_P[at_R] + within * rng.normal(size=len(at_R))),
        policy=ba.adaptive(features=features, seed=seed),
        seed=seed,
    ).check()


@both
@some
@given(st.integers(2, 20), st.booleans(), st.integers(0, 9))
def test_partial_credit_and_penalties(features, parts, penalty, seed):
    run(
        lambda at_R, rng: one(rng.binomial(parts, RATES[at_R]) / parts - penalty),
        policy=ba.adaptive(features=features, seed=seed),
        seed=seed,
    ).check()


MEANS = np.random.default_rng(0).normal(0, 2, PROMPTS)
OTHER_REWARDS = {
    "whose spread differs": lambda at_R, rng: one(
        MEANS[at_R] + np.where(at_R % 2, 0.1, 2.0) * rng.normal(size=len(at_R))
    ),
    "of rare partial credit": lambda at_R, rng: one(np.where(rng.random(len(at_R)) < 0.05, rng.random(len(at_R)), 0.0)),
    "that are missing": lambda at_R, rng: np.where(rng.random((len(at_R), 1)) < 0.2, np.nan, binary(RATES)(at_R, rng)),
}


@both
@pytest.mark.parametrize("draw", OTHER_REWARDS.values(), ids=OTHER_REWARDS)
def test_other_rewards(features, draw):
    run(draw, policy=ba.adaptive(features=features)).check()


@both
def test_a_constant_teaches_nothing(features):
    sizes = run(lambda at_R, rng: np.full((len(at_R), 1), 0.7), policy=ba.adaptive(features=features))
    assert (sizes.first[0], sizes.later[0], sizes.largest) == (0.0, 0.0, 0.0)


@some
@given(st.sampled_from([-1000.0, -10.0, -1.0, 2.0, 1000.0]), st.sampled_from([0, 1, 5, 30]), st.booleans())
def test_an_outlier_at_any_step(outlier, when, all_fail):
    """Also in a first step in which all rollouts fail."""

    def disturb(step, scores_RF):
        if step == when:
            scores_RF[:] = 0.0 if all_fail else scores_RF
            scores_RF[3] = outlier
        return scores_RF

    run(binary(RATES), disturb=disturb).check()


def two(accuracy, form):
    def draw(at_R, rng):
        return np.stack([rng.random(len(at_R)) < accuracy, rng.random(len(at_R)) < form], axis=1).astype(float)

    return draw


TWO = {"names": ("accuracy", "format"), "weights": (1.0, 0.2)}


@some
@given(st.sampled_from([0.01, 0.1, 0.5, 0.97]), st.sampled_from([0.0, 0.5, 0.9, 1.0]), st.sampled_from([None, 0.9, 0]))
def test_two_functions(accuracy, form, success):
    """`success=` left out, as a threshold and as the place of a function."""
    run(two(accuracy, form), success=success, **TWO).check()


@pytest.mark.parametrize("form", [1.0, 0.98, 0.5])
@pytest.mark.parametrize("failures", [1, 4, 40])
@pytest.mark.parametrize("right", [True, False])
def test_the_first_success_after_any_number_of_failures(form, failures, right):
    """Also the first failure after successes only."""

    def disturb(step, scores_RF):
        scores_RF[:, 0] = float(not right)
        if step == failures:
            scores_RF[5, 0] = float(right)
        return scores_RF

    sizes = run(two(0.5, form), disturb=disturb, steps=failures + 1, **TWO)
    assert sizes.largest <= 5.0


@pytest.mark.parametrize("policy", [policies.spo, policies.ebpo, policies.v05], ids=lambda make: make.__name__)
def test_no_published_baseline_has_an_advantage_out_of_range(policy):
    def disturb(step, scores_RF):
        scores_RF[:, 0] = step == 30 and np.arange(len(scores_RF)) == 5
        return scores_RF

    opened = policy(seed=0)
    options = Options.resolve(opened.needs, "group", {"scale": "group"})
    session = Session(opened, *TWO.values(), pool=range(PROMPTS), resolved=options, quiet=True)
    rng = np.random.default_rng(0)
    for at in range(31):
        session.begin(list(range(8)), ROLLOUTS, 8)
        while ids_R := session.request():
            session.observe(ids_R, disturb(at, two(0.5, 1.0)(np.array(ids_R), rng)), np.ones(len(ids_R)))
        assert np.abs(session.end().advantages_R).max() <= 5.0
