"""`resolution=`: groups of graded rewards that differ by less count as groups of equal rewards."""

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc import InputError, methods, policies
from budgetalloc.training.metrics import share_without_spread
from budgetalloc.training.options import Options
from budgetalloc.training.parts import Host
from budgetalloc.training.session import Session

NEAR, FAR, EQUAL = [1.0, 0.999, 1.001, 1.0], [0.2, 0.9, 0.2, 0.5], [0.3] * 4
REWARDS = {"near": NEAR, "far": FAR, "equal": EQUAL}


def begun(policy, resolution=None, rollouts=12, prompts=REWARDS, **options):
    options = Options.resolve(policy.needs, "group", {"metrics": "all", "resolution": resolution, **options})
    session = Session(policy, ["reward"], resolved=options, quiet=True, pool=list(prompts))
    session.attach(Host())
    session.begin(list(prompts), rollouts, 4)
    return session


def observed(session):
    """The next round: its prompts, whose rollouts have their rewards in turn."""
    ids_R = session.request()
    rewards_R = [REWARDS[name][ids_R[:at].count(name) % 4] for at, name in enumerate(ids_R)]
    if ids_R:
        session.observe(ids_R, rewards_R, np.ones(len(ids_R)))
    return ids_R


def ended(policy, resolution=None, **options):
    """A step with a near tie, a mixed group and a group of equal rewards, four rollouts each."""
    session = begun(policy, resolution, **options)
    while observed(session):
        pass
    return session.end()


def of(step, name):
    return step.advantages_R[[each == name for each in step.batch.ids_R]]


def grpo(rewards):
    """TRL's own advantages of a group."""
    rewards = np.array(rewards)
    return (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)


@pytest.mark.parametrize("scale", ["group", "batch", "none", "rms"])
@pytest.mark.parametrize("baseline", ["group", "loo"])
def test_a_near_tie_has_no_advantages_and_the_other_groups_keep_theirs(baseline, scale):
    before = ended(ba.uniform(), baseline=baseline, scale=scale)
    after = ended(ba.uniform(), 0.01, baseline=baseline, scale=scale)
    assert np.abs(of(before, "near")).max() > 0
    assert of(after, "near").tolist() == of(after, "equal").tolist() == [0.0] * 4
    np.testing.assert_array_equal(of(after, "far"), of(before, "far"))


def test_advantages_have_the_size_of_the_trainers_own_which_takes_noise_for_success():
    """The trainer keeps its own advantages without the option; with it they are the same, but for the near tie."""
    assert Options.resolve(ba.uniform().needs, "group", {}).baseline is None
    step = ended(ba.uniform(), 0.01)
    assert np.abs(grpo(NEAR)).max() > 1.0  # 0.001 more reward has as large an advantage as a success among failures
    assert np.abs(grpo(FAR)).max() == pytest.approx(np.abs(of(step, "far")).max(), rel=1e-12)
    assert of(step, "near").tolist() == [0.0] * 4
    asked = Options.resolve(ba.uniform().needs, "none", {"resolution": 0.01})
    assert (asked.baseline, asked.scale, asked.of_groups) == ("group", "none", False)


@pytest.mark.parametrize("resolution", [0.0015, 0.002, 0.01])
def test_the_edge_belongs_to_the_near_tie(resolution):
    """The rewards of the group have a range of 0.002."""
    assert (of(ended(ba.uniform(), resolution), "near") == 0).all() == (resolution >= 0.002)


@pytest.mark.parametrize("baseline", ["batch", "posterior"])
def test_baselines_that_do_not_compare_within_groups_stay(baseline):
    before, after = (ended(ba.uniform(), resolution, baseline=baseline, scale="none") for resolution in (None, 0.01))
    np.testing.assert_array_equal(after.advantages_R, before.advantages_R)
    assert np.abs(of(after, "near")).max() > 0


@pytest.mark.parametrize("policy", [ba.uniform, ba.adaptive, ba.knapsack, methods.knapsack_rl])
def test_without_a_resolution_a_step_is_the_same_to_the_bit(policy):
    plain, zero = ended(policy()), ended(policy(), 0)
    np.testing.assert_array_equal(zero.advantages_R, plain.advantages_R)
    np.testing.assert_equal(zero.metrics, plain.metrics)


def test_metrics_count_a_near_tie_as_tied():
    before, after = ended(ba.uniform(), baseline="group").metrics, ended(ba.uniform(), 0.01).metrics
    shares = [(each["frac_mixed"], each["frac_tied"], each["advantage/frac_nonzero"]) for each in (before, after)]
    assert shares == [pytest.approx((2 / 3, 1 / 3, 8 / 12 - 2 / 12)), pytest.approx((1 / 3, 2 / 3, 4 / 12))]
    assert share_without_spread(ended(ba.uniform(), 0.01).batch) == pytest.approx(2 / 3)


def test_rewards_and_success_stay_in_the_record():
    before, after = ended(ba.uniform()).batch, ended(ba.uniform(), 0.01).batch
    np.testing.assert_array_equal(after.rewards_R, before.rewards_R)
    np.testing.assert_array_equal(after.success_R, before.success_R)


# --- what a policy does with it


def until_mixed():
    return policies.growing(ba.uniform(), wants_more=lambda seen: ~seen.mixed_P, rounds=2)


@pytest.mark.parametrize(("resolution", "more"), [(None, {"equal"}), (0.01, {"equal", "near"})])
def test_a_rule_of_rounds_goes_on_with_a_near_tie(resolution, more):
    session = begun(until_mixed(), resolution, floor=2)
    assert set(observed(session)) == set(REWARDS)
    assert set(observed(session)) == more


def test_a_step_that_is_begun_again_has_its_resolution():
    session = begun(until_mixed(), 0.01, floor=2)
    observed(session)
    session.restart()
    observed(session)
    assert set(observed(session)) == {"equal", "near"}


@pytest.mark.parametrize(("resolution", "batches", "kept"), [(None, 1, "near"), (0.01, 2, "far")])
def test_dapo_draws_a_further_batch_instead_of_training_on_a_near_tie(resolution, batches, kept):
    session = begun(methods.dapo(group=4, generate=2, seed=1), resolution, 4, ("near", "far"), floor=0)
    rounds = 0
    while observed(session):
        rounds += 1
    step = session.end()
    assert (rounds, {step.batch.ids_R[at] for at in step.kept_R}) == (batches, {kept})


def test_the_rule_that_chooses_among_rollouts_sees_a_near_tie_as_equal():
    seen = []

    def keep(ids_R, rewards_R, rows, scores_RF, success_R):
        seen.append({name: set(rewards_R[np.array(ids_R) == name].tolist()) for name in REWARDS})
        return np.arange(rows)

    needs = ba.Needs(generate=2, baseline="group")
    ended(ba.Policy("keeps", lambda view: np.full(3, 8), ba.BetaEstimator(), keep=keep, needs=needs), 0.01)
    assert seen == [{"near": {0.999}, "far": set(FAR), "equal": {0.3}}]


@pytest.mark.parametrize(("resolution", "visits"), [(0.0, 0.0), (0.01, 1.0)])
def test_the_memory_of_a_method_learns_of_near_ties(resolution, visits):
    """GRESO counts a prompt's visits in a row without variance."""
    policy = methods.greso(group=4)
    step = policy.begin(["near"], ba.Budget(rollouts=4), resolution=resolution)
    step.request()
    step.observe(["near"] * 4, NEAR, np.minimum(NEAR, 1.0))
    step.end()
    assert policy.memory.recall(["near"])["run"] == [visits]


@pytest.mark.parametrize("given", [-0.1, float("nan"), float("inf"), "0.1", True])
def test_a_resolution_is_a_number_of_at_least_0(given):
    with pytest.raises(InputError, match=r"resolution=.*use a number in \[0, inf\)"):
        Options.resolve(ba.uniform().needs, "group", {"resolution": given})
