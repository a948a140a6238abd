"""The contract of advantages: their size is that of GRPO on the same prompts, whatever the rewards are.

A `Session` runs the policy, as in a trainer. GRPO's advantages are those of a new group of each rollout's prompt.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.policies.group_advantages import group_advantages
from budgetalloc.training.options import Options
from budgetalloc.training.parts import Host
from budgetalloc.training.session import Session

PROMPTS, ROLLOUTS, STEPS = 200, 64, 60


@dataclass(frozen=True)
class Sizes:
    """Root mean squares of the first 20 steps and of later ones, each with GRPO's, and the largest advantages."""

    first: tuple[float, float]
    later: tuple[float, float]
    largest: float
    grpos_largest: float
    means: tuple[float, ...] = ()  # of each step, relative to its root mean square

    def check(self):
        for size, grpo in (self.first, self.later):
            assert grpo / 1.5 - 1e-3 <= size <= grpo * 1.5 + 1e-3, self
        assert self.largest <= 10 * self.grpos_largest + 1e-3, self


def run(
    draw,
    names=("reward",),
    weights=(1.0,),
    *,
    policy=None,
    seed=0,
    disturb=None,
    steps=STEPS,
    success=None,
    rollouts=ROLLOUTS,
    group=8,
    change=lambda step, scores_RF, weights_F: (scores_RF, weights_F),
    **options,
):
    """Trains on rewards `draw(prompts, rng)` of shape (R, F), which `disturb(step, scores)` may change. `change(step,
    scores, weights)` changes them and the weights for GRPO as well."""
    rng, policy = np.random.default_rng(seed), policy or ba.adaptive(seed=seed)
    options = Options.resolve(policy.needs, "group", {"success": success, **options})
    session = Session(policy, names, weights, pool=range(PROMPTS), resolved=options, quiet=True)
    session.attach(Host())
    pool, squares, means, largest = list(range(PROMPTS)), [], [], [0.0, 0.0]
    for at in range(steps):
        session.begin(pool[: rollouts // group], rollouts, group)
        while ids_R := session.request():
            scores_RF, weights_F = change(at, draw(np.array(ids_R), rng), np.array(weights))
            session.follow(names, weights_F.tolist())
            if disturb is not None:
                scores_RF = disturb(at, scores_RF)
            session.observe(ids_R, scores_RF, np.ones(len(ids_R)))
        ended = session.end()
        advantages_R, ids_R = ended.advantages_R, ended.batch.ids_R
        scores_RF, weights_F = change(at, draw(np.repeat(ids_R, group), rng), np.array(weights))
        scale = "batch" if options.scale == "batch" else "group"  # the trainer's, whatever the policy's
        grpo_R = group_advantages(
            np.nansum(scores_RF * weights_F, axis=1), np.repeat(np.arange(len(ids_R)), group), scale=scale
        )
        squares.append((np.mean(advantages_R**2), np.mean(grpo_R**2)))
        means.append(advantages_R.mean() / max(np.sqrt(squares[-1][0]), 1e-12))
        largest = [max(largest[0], np.abs(advantages_R).max()), max(largest[1], np.abs(grpo_R).max())]
    of_steps = np.array(squares)
    parts = of_steps[:20], of_steps[min(20, steps - 1) :]
    first, later = (tuple(np.sqrt(x.mean(axis=0)).tolist()) for x in parts)
    return Sizes(first, later, *largest, tuple(means))


def one(values):
    return values[:, None]


def binary(p_P):
    return lambda at_R, rng: one((rng.random(len(at_R)) < p_P[at_R]).astype(float))


RATES = 1 / (1 + np.exp(-np.random.default_rng(3).normal(0, 2, PROMPTS)))
some = settings(max_examples=5, deadline=None)
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
    run(draw, policy=ba.adaptive(features=features), rollouts=256, steps=40).check()


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
    run(two(accuracy, form), success=success, rollouts=256, steps=40, **TWO).check()


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


@pytest.mark.parametrize("policy", [ba.methods.spo, ba.methods.ebpo, ba.methods.v05], ids=lambda make: make.__name__)
def test_no_published_baseline_has_an_advantage_out_of_range(policy):
    def disturb(step, scores_RF):
        scores_RF[:, 0] = step == 30 and np.arange(len(scores_RF)) == 5
        return scores_RF

    opened = policy(seed=0)
    options = Options.resolve(opened.needs, "group", {"scale": "group"})
    session = Session(opened, *TWO.values(), pool=range(PROMPTS), resolved=options, quiet=True)
    session.attach(Host())
    rng = np.random.default_rng(0)
    for at in range(31):
        session.begin(list(range(8)), ROLLOUTS, 8)
        while ids_R := session.request():
            session.observe(ids_R, disturb(at, two(0.5, 1.0)(np.array(ids_R), rng)), np.ones(len(ids_R)))
        assert np.abs(session.end().advantages_R).max() <= 5.0


# --- under every scale and weight ---

KINDS = {
    "right or wrong": (binary(RATES), ("reward",), (1.0,)),
    "rarely right": (binary(np.full(PROMPTS, 0.03)), ("reward",), (1.0,)),
    "partial credit": (lambda at_R, rng: one(rng.binomial(5, RATES[at_R]) / 5), ("reward",), (1.0,)),
    "a reward model": (lambda at_R, rng: one(MEANS[at_R] + 0.5 * rng.normal(size=len(at_R))), ("reward",), (1.0,)),
    "right, with a format": (two(0.4, 0.9), *TWO.values()),
    "always wrong, with a penalty on length": (
        lambda at_R, rng: np.stack([0.0 * at_R, -0.001 * rng.integers(1, 20, len(at_R))], axis=1),
        ("accuracy", "length"),
        (1.0, 1.0),
    ),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    ("scale", "weight"), [("group", "rollout"), ("maxrl", "rollout"), ("batch", "prompt"), ("none", "rollout")]
)
def test_every_scale_and_weight(kind, scale, weight):
    run(*kind, scale=scale, weight=weight, rollouts=256, steps=40).check()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("scale", ["group", "maxrl", "none"])
def test_in_rounds(kind, scale):
    run(*kind, policy=ba.adaptive(rounds=3, seed=0), scale=scale, rollouts=256, steps=30).check()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("scale", ["group", "none"])
def test_retries_across_steps(kind, scale):
    policy = ba.policies.retrying(ba.policies.sampled(groups=2, explore=1, discount=0.9, seed=0))
    run(*kind, policy=policy, scale=scale, rollouts=256, steps=30).check()


# --- rewards that change for everybody ---

WHEN = 15


def after(step, value, before=1.0):
    return value if step >= WHEN else before


def graded(at_R, rng):
    return one(rng.binomial(10, RATES[at_R]) / 10)


ONE = ("reward",), (1.0,)
CHANGES = {
    "a weight falls": (binary(RATES), *ONE, lambda t, x, w: (x, w * after(t, 0.1))),
    "a weight turns": (binary(RATES), *ONE, lambda t, x, w: (x, w * after(t, -1.0))),
    "the reward shrinks": (binary(RATES), *ONE, lambda t, x, w: (x * after(t, 0.1), w)),
    "a format stops to count": (two(0.4, 0.9), ("a", "f"), (1.0, 1.0), lambda t, x, w: (x, w * [1.0, after(t, 0.0)])),
    "a format fades": (
        two(0.4, 0.9),
        ("a", "f"),
        (1.0, 1.0),
        lambda t, x, w: (x * [1.0, max(0.0, 1 - max(t - WHEN, 0) / 5)], w),
    ),
    "the other function counts": (two(0.4, 0.6), ("a", "f"), (1.0, 0.2), lambda t, x, w: (x, w[:: after(t, -1, 1)])),
    "partial credit gets stricter": (graded, *ONE, lambda t, x, w: (x ** after(t, 3), w)),
    "only whole credit counts": (graded, *ONE, lambda t, x, w: (np.where(x >= after(t, 1.0, 0.0), x, 0.0), w)),
    "a penalty for all": (graded, *ONE, lambda t, x, w: (x - after(t, 1.0, 0.0), w)),
    "a bonus for all": (graded, *ONE, lambda t, x, w: (x + after(t, 0.5, 0.0), w)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(("rounds", "scale"), [(1, "group"), (3, "batch"), (1, "none")])
def test_advantages_lean_to_no_side_two_steps_after_a_change(change, rounds, scale):
    draw, names, weights, change = change
    policy = ba.adaptive(rounds=rounds, seed=0)
    sizes = run(draw, names, weights, change=change, policy=policy, scale=scale, rollouts=256, steps=WHEN + 7)
    assert abs(np.mean(sizes.means[WHEN + 2 :])) < 0.15
    assert np.abs(sizes.means[:WHEN]).max() < 0.3
    assert sizes.largest <= 10 * sizes.grpos_largest


def strict(power):
    now = {"step": 0}

    def change(step, scores_RF, weights_F):
        now["step"] = step
        return scores_RF, weights_F

    return lambda at_R, rng: binary(RATES ** after(now["step"], power))(at_R, rng), change


@pytest.mark.parametrize("power", [0.3, 2, 4])
def test_a_verifier_that_becomes_stricter_or_laxer(power):
    draw, change = strict(power)
    sizes = run(draw, change=change, rollouts=256, steps=WHEN + 7)
    assert abs(np.mean(sizes.means[WHEN + 2 :])) < 0.15
    sizes.check()


@pytest.mark.parametrize("group", [2, 4, 16])
@pytest.mark.parametrize("scale", ["group", "none"])
def test_groups_of_the_trainers_size(group, scale):
    """A user of groups of two has advantages of half the size, and a learning rate that fits them."""
    run(binary(np.linspace(0, 1, PROMPTS)), group=group, scale=scale).check()


@pytest.mark.parametrize("rare", [0.0, 0.02])
def test_prompts_that_are_mastered_or_hopeless(rare):
    """Vague beliefs expect mixed groups; the rollouts that return show that there are few, or none."""
    sizes = run(binary(np.where(np.arange(PROMPTS) % 2, rare, 1 - rare)))
    size, grpo = sizes.later
    assert grpo / 1.5 <= size <= 1.5 * grpo if rare else size < 0.02


@pytest.mark.parametrize(("prompts", "rollouts"), [(6, 3), (12, 3), (40, 32)])
def test_a_policy_that_has_collapsed_is_not_pushed(prompts, rollouts):
    """From step 15 on, each prompt returns one and the same graded reward: GRPO's advantages are 0 then."""
    rng, ids = np.random.default_rng(0), list(range(prompts))
    reward_P, advantages = rng.random(prompts).round(2), []
    session = ba.Session(ba.adaptive(), ["reward"], pool=ids, quiet=True)
    for at in range(60):
        session.begin(ids[:rollouts], rollouts=rollouts, group=rollouts)
        while ids_R := session.request():
            rewards_R = reward_P[ids_R] if at >= 15 else rng.random(len(ids_R))
            session.observe(ids_R, rewards_R, lengths_R=[1] * len(ids_R))
        advantages.append(session.end().advantages_R)
    late_R = np.concatenate(advantages[40:])
    assert abs(late_R.mean()) < 0.1
    assert np.sqrt(np.mean(late_R**2)) < 0.4  # 0.7 if advantages are the errors of beliefs
    assert np.sqrt(np.mean(np.concatenate(advantages[:15]) ** 2)) > 0.5
