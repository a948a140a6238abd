"""The baseline of cold prompts: the recent mean success of first visits, without the row's own reward."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_step import advantages_of_step, rollouts_of

import budgetalloc as ba
from budgetalloc.beliefs.cold_start import with_first_visit_prior
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.posterior import Beta
from budgetalloc.policies.batch_advantages import batch_advantages

COLD = ba.Budget(8, floor=0, min_group=1)
PRIOR = (0.3, 0.3)


def test_a_cold_prompt_has_the_mean_success_of_other_first_visits():
    belief_R = Beta([0.3, 0.3, 0.3, 5.0], [0.3, 0.3, 0.3, 2.0])
    cold_R, group_R = np.array([True, True, True, False]), np.array([0, 0, 1, 2])
    got = with_first_visit_prior(belief_R, PRIOR, cold_R, np.array([1.0, 0.0, 1.0, 1.0]), group_R, (3.0, 10.0))
    mean_R = [4.3 / 11.6, 4.3 / 11.6, 4.3 / 12.6]  # the other prompt: 1 of 1, and 1 of 2
    assert got.mean[:3] == pytest.approx(mean_R)
    assert (got.alpha_P + got.beta_P)[:3] == pytest.approx([0.6, 0.6, 0.6])


def test_the_evidence_of_a_known_prompt_counts_with_the_prior_of_first_visits():
    belief_R = Beta([5.0, 0.3], [2.0, 2.3])  # 4.7 successes and 1.7 failures; 2 failures
    cold_R, success_R = np.zeros(2, dtype=bool), np.array([1.0, np.nan])
    m = 5.3 / 9.6  # of first visits; the rollouts of known prompts do not count
    got = with_first_visit_prior(belief_R, PRIOR, cold_R, success_R, np.arange(2), (5.0, 9.0))
    assert got.mean == pytest.approx([(4.7 + 0.6 * m) / 7.0, 0.6 * m / 2.6])
    assert got.alpha_P + got.beta_P == pytest.approx([7.0, 2.6])
    firm = with_first_visit_prior(belief_R, PRIOR, cold_R, success_R, np.arange(2), (5.0, 9.0), share=0.1)
    assert firm.mean == pytest.approx([(4.7 + 0.06 * m) / 6.46, 0.06 * m / 2.06])
    unseen = with_first_visit_prior(belief_R, PRIOR, cold_R, success_R, np.arange(2), (0.0, 0.0))
    assert unseen.mean == pytest.approx(belief_R.mean)


def test_one_success_in_a_hard_pool_does_not_predict_the_next():
    """With a prior mean of 1/2, the expected success after one success would be 1.3 / 1.6 = 0.81."""
    policy = ba.adaptive()
    policy.observe(range(200), [1] + [0] * 199)
    step = policy.begin([0, 1], ba.Budget(2, floor=0, min_group=1))
    assert step.baseline_belief([0, 1], [0, 0]).mean == pytest.approx([(1 + 0.6 * 1.3 / 200.6) / 1.6, 0.002], abs=1e-3)


@pytest.mark.parametrize("given_success", [False, True])
def test_the_baseline_does_not_depend_on_the_own_reward(given_success):
    """Enumerated: all rewards of five rollouts of three cold prompts and one known."""
    ids_R = ["a", "a", "b", "c", "known"]
    policy = ba.adaptive()
    policy.observe(["known", "x", "y"] * 2, [1, 0, 0, 1, 0, 0])
    step = policy.begin(["a", "b", "c", "known"], COLD)

    def baselines(success):
        belief_R = step.baseline_belief(ids_R, success)
        rewards = 0.2 + 0.8 * np.array(success) if given_success else success
        given = {"success_R": success, "reward_range": (0.2, 1.0)} if given_success else {}
        return batch_advantages(rollouts_of(rewards, ids_R, belief_R=belief_R, **given), "posterior", "none").baseline_R

    for row in range(5):
        for rest in itertools.product([0.0, 1.0], repeat=4):
            zero, one = (baselines([*rest[:row], own, *rest[row:]])[row] for own in (0.0, 1.0))
            assert one == pytest.approx(zero, abs=1e-12)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0.0, 0.5, 1.0, np.nan])), max_size=9), max_size=9)
)
def test_first_visits_are_discounted_only_at_steps_with_new_prompts(steps):
    """Against the rule written down row by row; rows may come in several rounds, and a state is loaded between."""
    estimator, seen, sums = BetaEstimator(discount=0.5, idle=0.9), set(), (0.0, 0.0)
    for rows in steps:
        new = [success for x, success in rows if x not in seen and not np.isnan(success)]
        seen |= {x for x, success in rows if not np.isnan(success)}
        if new:
            sums = (0.9 * sums[0] + sum(new), 0.9 * sums[1] + len(new))
        for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            estimator.observe([x for x, _ in part], [success for _, success in part])
            again = BetaEstimator(discount=0.5, idle=0.9)
            again.load_state_dict(estimator.state_dict())
            estimator = again
        estimator.tick()
        assert estimator.first_visits == pytest.approx(sums)


def test_hard_prompts_that_are_visited_once_each_give_hardly_any_gradient():
    """With a prior mean of 1/2, all advantages would be -1 after scaling."""
    policy, rng = ba.adaptive(), np.random.default_rng(0)
    for at in range(40):
        ids = [f"{at} {k}" for k in range(64)]
        step = policy.begin(ids, ba.Budget(64, floor=0, min_group=1))
        success_R = (rng.random(64) < 0.02).astype(float)
        step.observe(ids, success_R)
        belief_R = step.baseline_belief(ids, success_R)
        advantages = advantages_of_step(success_R, ids, "posterior", "none", belief_R=belief_R)
        step.end()
        if not success_R.any():
            assert not advantages.any()
    assert abs(advantages.mean()) < 0.02


def test_the_step_remembers_what_was_cold_before_it():
    policy = ba.uniform()
    policy.observe(["known"], [1])
    step = policy.begin(["known", "new"], ba.Budget(4))
    with pytest.raises(ba.InputError, match=r"ids_R holds 'x', which is not a prompt of this step"):
        step.baseline_belief(["x"], [0])
    before = step.baseline_belief(["new", "known"], [0, 1]).mean
    step.observe(["new", "known"], [0, 1])
    assert step.baseline_belief(["new", "known"], [0, 1]).mean.tolist() == before.tolist()
    assert step.cold_P.tolist() == [False, True]
    step.end()
    assert step.cold_P.tolist() == [False, True]
    with pytest.raises(ba.InputError, match="This step has ended"):
        step.baseline_belief(["new", "known"], [0, 1])
