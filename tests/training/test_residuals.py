"""Residual rewards, compared with GRPO, which compares the rollouts of a prompt with each other."""

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.beliefs.expected_reward import Offset, Sums
from budgetalloc.training.residuals import PromptResiduals

RATE_P = np.random.default_rng(5).random(400)
LEVEL_P = np.random.default_rng(6).normal(size=400)


def a_session(weights=(1.0, 1.0), **options):
    return ba.Session(
        ba.adaptive(seed=0), ["right", "brief"], list(weights), pool=list(range(400)), success="right", **options
    )


def trained(session, steps, apart, noise=0.2, weights=None, seed=0, outlier=None):
    """The advantages of these steps; beside success there is a penalty on length, say, whose level is the prompt's.
    With them, what each rollout gained over the mean of its prompt, and that mean."""
    rng, found = np.random.default_rng(seed), []
    for step in range(steps):
        weight = 1.0 if weights is None else weights[step]
        session.follow(["right", "brief"], [1.0, weight])
        session.begin([], rollouts=64, group=8)
        ids_R = np.array(session.request())
        right_R = (rng.random(len(ids_R)) < RATE_P[ids_R]).astype(float)
        brief_R = apart * LEVEL_P[ids_R] + noise * rng.normal(size=len(ids_R))
        if outlier is not None:
            brief_R[0] = outlier
        session.observe(ids_R.tolist(), np.column_stack([right_R, brief_R]), lengths_R=[1] * len(ids_R))
        mean_R = RATE_P[ids_R] + weight * apart * LEVEL_P[ids_R]
        found.append((session.end().advantages_R, right_R + weight * brief_R - mean_R, mean_R))
    return found


def correlations(found):
    """Of advantages with what rollouts gained over their prompt's mean, and with that mean."""
    advantages, gained, mean = map(np.concatenate, zip(*found, strict=True))
    return np.corrcoef(advantages, gained)[0, 1], np.corrcoef(advantages, mean)[0, 1]


@pytest.mark.parametrize("apart", [0.0, 0.3, 1.0, 3.0, 10.0])
def test_no_advantage_is_the_level_of_a_prompt(apart):
    """GRPO has 0.88 and 0 here, and success alone as the baseline 0.41 and 0.87 with levels of deviation 1."""
    gained, level = correlations(trained(a_session(), 120, apart)[60:])
    assert gained > 0.9
    assert abs(level) < 0.15


@pytest.mark.parametrize(("group", "success"), [(8, 1.0), (8, None), (2, None)])
def test_levels_without_variation_within_prompts_have_no_advantages(group, success):
    """As in GRPO, where all groups have zero variance: here a policy that has collapsed."""
    session = a_session()
    for _ in range(60):
        session.begin([], rollouts=64, group=group)
        ids_R = np.array(session.request())
        right_R = np.where(RATE_P[ids_R] > 0.5, 1.0, 0.0) if success is None else np.full(len(ids_R), success)
        scores_RF = np.column_stack([right_R, np.where(LEVEL_P[ids_R] > 0, 1.0, 0.0)])
        session.observe(ids_R.tolist(), scores_RF, lengths_R=[1] * len(ids_R))
        advantages_R = session.end().advantages_R
    assert np.sqrt(np.mean(advantages_R**2)) < 0.01


@pytest.mark.parametrize("outlier", [1e3, -1e6])
def test_one_outlier_does_not_switch_the_memory_off(outlier):
    session = a_session()
    trained(session, 40, 1.0)
    trained(session, 1, 1.0, outlier=outlier)
    gained, level = correlations(trained(session, 40, 1.0)[10:])
    assert gained > 0.75
    assert abs(level) < 0.2


def test_what_begins_to_vary_after_constant_residuals_is_learned():
    session = a_session()
    trained(session, 30, 0.0, noise=0.0)
    gained, level = correlations(trained(session, 90, 1.0)[60:])
    assert gained > 0.8
    assert abs(level) < 0.4  # old rollouts, a third of the memory, had none


def test_states_that_hold_nothing_of_residuals_can_be_loaded():
    """As those of 0.5.0."""
    saved, session = a_session(), a_session()
    trained(saved, 5, 1.0)
    state = saved.state()
    names = ("residual_within", "residual_between", "residual_pairs", "same_residual", "compared")
    sums = {name: x for name, x in state["scoring"]["sums"].items() if name not in names}
    scoring, parts = state["scoring"] | {"sums": sums}, {"UniformFallback": state["parts"]["UniformFallback"]}
    session.restore(state | {"scoring": scoring, "parts": parts})
    trained(session, 2, 1.0)
    assert session.policy.estimator.step == 7


def test_under_a_schedule_of_weights_levels_are_half_known():
    """The memory is of earlier weights. Without it, the correlation with the level is 0.8."""
    weights = np.linspace(0.1, 1.0, 120)
    gained, level = correlations(trained(a_session(), 120, 1.0, weights=weights)[60:])
    assert gained > 0.6
    assert abs(level) < 0.6


def test_a_weight_that_becomes_zero_leaves_no_level():
    weights = [1.0] * 60 + [0.0] * 60
    found = trained(a_session(), 120, 1.0, weights=weights)
    gained, level = correlations(found[62:])
    alone = correlations(trained(a_session((1.0, 0.0)), 120, 1.0, weights=[0.0] * 120)[62:])
    assert gained > alone[0] - 0.05
    assert abs(level) < abs(alone[1]) + 0.1


def test_levels_are_saved_with_the_session(tmp_path):
    whole, first, second = a_session(), a_session(), a_session()
    expected = trained(whole, 20, 1.0)
    trained(first, 20, 1.0)
    first.save(tmp_path / "state.npz")
    second.load(tmp_path / "state.npz")
    assert len(second.part(PromptResiduals).state_dict()["ids"]) > 100
    ahead, again = trained(whole, 5, 1.0, seed=1), trained(second, 5, 1.0, seed=1)
    for one, other in zip(ahead, again, strict=True):
        assert np.array_equal(one[0], other[0])
    assert len(expected) == 20


def test_nothing_is_remembered_where_success_is_the_reward():
    session = ba.Session(ba.adaptive(seed=0), ["reward"], pool=["a", "b"], fallback=False)
    for _ in range(3):
        session.begin([], rollouts=4, group=2)
        ids = session.request()
        session.observe(ids, [0.0, 1.0, 0.5, 0.5], lengths_R=[1] * 4)
        assert session.end().batch.residuals_R3 is None
    assert session.part(PromptResiduals).state_dict()["ids"] == []


def test_the_memory_is_of_about_ten_rollouts():
    part, session = PromptResiduals(), a_session(parts=[])
    session.parts = [part]
    trained(session, 60, 1.0, noise=0.0)
    n_P, sum_P = part.state_dict()["residuals"].T
    assert 8 < n_P.max() < 12  # 1 / (1 - 0.9) earlier ones at most
    ids = np.array(part.state_dict()["ids"])
    assert np.corrcoef(sum_P / n_P, LEVEL_P[ids])[0, 1] > 0.95


def test_levels_are_the_best_linear_prediction():
    """With the variances known, no other multiple of the mean predicts better."""
    rng = np.random.default_rng(0)
    level_P, before = rng.normal(size=4000), 3
    earlier_P = level_P * before + rng.normal(size=(before, 4000)).sum(axis=0)
    residual_R = level_P + rng.normal(size=4000)
    rows = np.arange(4000)
    before_R2 = np.column_stack([np.full(4000, float(before)), earlier_P])
    made = Offset.of(residual_R, rows, np.zeros(4000, dtype=int), before_R2, np.full(4000, 2.0), Sums())
    error = np.mean((residual_R - made.offset_R) ** 2)
    others = [np.mean((residual_R - share * earlier_P / before) ** 2) for share in (0.65, 0.85)]
    assert error < min(others)
    assert error == pytest.approx(made.around_R[0], rel=0.05)
    assert made.sums["residual_within"] / made.sums["residual_pairs"] == pytest.approx(1.0, rel=0.1)
