"""A shadow against the same policy attached on its own, and a run with it against one without."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import BudgetError, InputError
from budgetalloc.beliefs.state import load_state
from budgetalloc.contrib import shadow as module
from budgetalloc.contrib.costs import Costs
from budgetalloc.contrib.shadow import Shadow, compared_advantages, compared_counts
from budgetalloc.training.options import Options
from budgetalloc.training.parts import Host
from budgetalloc.training.session import Session

NAMES = [f"q{k}" for k in range(12)]
RATES = dict(zip(NAMES, np.linspace(0, 1, 12), strict=True))


def session_of(policy="uniform", **given):
    return Session(policy, ["reward"], **{"pool": NAMES, "quiet": True, "metrics": "all"} | given)


def part_of(session, kind):
    return next(part for part in session.parts if isinstance(part, kind))


def watching(session):
    """The session of the shadow."""
    return part_of(session, Shadow).session


def step(session, number, rewards=lambda success_R: success_R, failed=False):
    """One step on four prompts of the pool; its requests and what `end` returned."""
    own = [NAMES[(4 * number + k) % 12] for k in range(4)]
    session.begin(own, 16, 4)
    ids_R = session.request()
    success_R = np.random.default_rng(number).random(len(ids_R)) < [RATES[name] for name in ids_R]
    if failed:
        session.observe([], [], [])
    else:
        session.observe(ids_R, rewards(success_R.astype(float)), np.ones(len(ids_R)))
    while session.request():  # pragma: no cover, only policies in rounds
        raise AssertionError
    return ids_R, session.end()


def own_part(metrics):
    return {name: value for name, value in metrics.items() if not name.startswith("shadow/")}


def seen(metrics):
    skipped = ("shadow/seconds",)
    return {name: value for name, value in metrics.items() if name.startswith("shadow/") and name not in skipped}


@pytest.mark.parametrize("run", ["uniform", "adaptive", "knapsack"])
@pytest.mark.parametrize("shadow", ["adaptive", "uniform", "thompson", "dapo", "spo"])
def test_the_run_is_the_same_to_the_bit_with_a_shadow(run, shadow):
    plain, watched = session_of(run), session_of(run, shadow=ba.policies.knapsack if shadow == run else shadow)
    for number in range(6):
        before = np.random.get_state()[1].tolist()
        (ids_R, one), (same_R, other) = step(plain, number), step(watched, number)
        assert ids_R == same_R
        assert np.array_equal(one.advantages_R, other.advantages_R)
        assert own_part(other.metrics) == one.metrics
        assert other.metrics["shadow/errors"] == 0
        assert np.random.get_state()[1].tolist() == before
    assert str(plain.policy.state_dict()) == str(watched.policy.state_dict())


def test_of_equal_policies_the_shadow_decides_and_compares_as_the_run():
    session = session_of("adaptive", shadow=ba.adaptive(seed=0))
    for number in range(6):
        _, ended = step(session, number, rewards=lambda success_R: 7 * success_R - 2)
        shadow = seen(ended.metrics)
        assert shadow["shadow/overlap"] == pytest.approx(1.0)
        assert shadow["shadow/frac_in_batch"] == pytest.approx(1.0)
        assert shadow["shadow/prompts"] == ended.metrics["prompts"]
        assert shadow["shadow/variance_predicted"] == shadow["shadow/variance_predicted_run"]
        assert shadow["shadow/brier"] == ended.metrics["brier"]
        assert shadow["shadow/advantage/rms_ratio"] == pytest.approx(1.0)
        assert shadow["shadow/advantage/frac_gained"] == shadow["shadow/advantage/frac_lost"] == 0
        assert shadow["shadow/advantage/mean"] == pytest.approx(shadow["shadow/advantage/mean_run"])
        assert shadow["shadow/advantage/correlation"] == pytest.approx(1.0)
    other = watching(session).policy
    assert str(session.policy.state_dict()) == str(other.state_dict())  # with the learned range of rewards


def test_a_step_in_which_all_rollouts_failed_passes_for_both():
    session = session_of(shadow="adaptive")
    step(session, 0)
    _, ended = step(session, 1, failed=True)
    assert ended.batch is None
    assert set(ended.metrics) == {"shadow/errors", "shadow/seconds"}
    assert session.policy.estimator.step == watching(session).policy.estimator.step == 2


def test_a_loop_without_begin_compares_advantages_only():
    session = session_of(shadow="adaptive")
    session.begin_among(["a", "b"], ba.Budget(rollouts=4), 4, 2)
    session.observe(session.request(), [0, 1, 1, 1], np.ones(4))
    metrics = session.end().metrics
    assert "shadow/prompts" not in metrics
    assert "shadow/advantage/rms" in metrics


# Errors


class ShadowError(Exception):
    pass


def fails(*_):
    raise ShadowError("no such prompt")


@pytest.mark.parametrize("part", ["decide", "expect"])
def test_an_error_in_the_shadow_is_counted_said_once_and_ends_nothing(part, caplog):
    rule = {"decide": fails} if part == "decide" else {"expect": fails, "needs": ba.Needs(baseline="policy")}
    good = ba.knapsack()
    broken = ba.Policy("broken", **{"decide": good.decide, "estimator": good.estimator, "needs": good.needs} | rule)
    plain, watched = session_of(quiet=False), session_of(shadow=broken, quiet=False)
    for number in range(4):
        (ids_R, one), (same_R, other) = step(plain, number), step(watched, number)
        assert ids_R == same_R
        assert own_part(other.metrics) == one.metrics
        assert other.metrics["shadow/errors"] == number + 1
        assert ("shadow/prompts" in other.metrics) == (part == "expect")
        assert ("shadow/advantage/rms" in other.metrics) == (part == "decide")
    said = [x.getMessage() for x in caplog.records if x.name == module.__name__]
    assert len(said) == 1
    assert "The shadow broken raised ShadowError: no such prompt. The run goes on" in said[0]


def test_without_a_pool_only_the_decision_is_missing():
    session = session_of(shadow="adaptive", pool=())  # it chooses among all prompts, and there are none
    _, ended = step(session, 0)
    assert ended.metrics["shadow/errors"] == 1
    assert "shadow/prompts" not in ended.metrics
    assert "shadow/advantage/rms" in ended.metrics
    assert len(watching(session).policy.estimator) == 4


def test_a_policy_cannot_watch_itself_and_names_are_checked():
    policy = ba.adaptive()
    with pytest.raises(InputError, match=r"shadow=adaptive\(seed=0\) is the run's own policy"):
        session_of(policy, shadow=policy)
    with pytest.raises(InputError, match="shadow='adaptiv': policy 'adaptiv' is unknown, did you mean adaptive"):
        session_of(shadow="adaptiv")


@pytest.mark.parametrize(
    ("run", "shadow"), [("adaptive", "knapsack"), ("uniform", "adaptive"), ("adaptive", "uniform")]
)
def test_a_shadow_that_weighs_costs_learns_what_rollouts_reported(run, shadow):
    cost = {} if run == "uniform" else {"cost": {"tokens": 1, "turns": 50}, "cost_per_step": 900.0}
    session = session_of(run, shadow=shadow, **cost)
    for number in range(3):
        session.begin([NAMES[(4 * number + k) % 12] for k in range(4)], 16, 4)
        ids_R = session.request()
        turns = {"costs_R": {"turns": [int(name[1:]) for name in ids_R]}} if cost else {}
        session.observe(ids_R, [1.0] * 16, [10] * 16, prompt_lengths_R=np.full(16, 5), **turns)
        assert session.end().metrics["shadow/errors"] == 0
    shadow_of = watching(session)
    if shadow == "knapsack":
        belief = shadow_of.policy.belief(NAMES)
        own, runs = (part_of(each, Costs).expected(NAMES, belief)[1] for each in (shadow_of, session))
        assert own == pytest.approx(runs)  # 10 tokens, and 50 for each turn
        assert own.max() > 300
    else:
        assert shadow_of.options.cost is shadow_of.options.cost_per_step is None


@pytest.mark.parametrize(("shadow", "cost", "kept"), [("uniform", "tokens", None), ("knapsack", "tokens", "tokens")])
def test_options_of_the_run_alone_do_not_reach_the_shadow(shadow, cost, kept):
    given = {"hint": fails, "buffer": object(), "cost": cost, "cap": 4, "baseline": "loo"}
    policy = ba.adaptive(seed=0)
    run = Session(policy, ["reward"], resolved=Options.resolve(policy.needs, "group", given))
    part = Shadow(shadow)
    part.attach(run, Host())
    options = part.session.options
    assert (options.hint, options.buffer, options.cost, options.bounds.cap) == (None, None, kept, 4)


def test_a_shadow_that_could_not_be_attached_is_refused():
    def check(policy, options):
        raise BudgetError(f"{policy} does not fit")

    run = session_of()
    with pytest.raises(
        BudgetError, match=r"shadow=adaptive\(seed=0\), as if it were attached: adaptive.* does not fit"
    ):
        Shadow("adaptive").attach(run, Host(check=check))


# The state


def test_states_with_and_without_a_shadow_load_into_each_other(tmp_path, caplog):
    session, plain = session_of(shadow="adaptive", quiet=False), session_of(quiet=False)
    for number in range(3):
        step(session, number)
        step(plain, number)
    session.save(tmp_path / "with.npz")
    plain.save(tmp_path / "without.npz")
    loaded = session_of(quiet=False)
    loaded.load(tmp_path / "with.npz")
    assert str(loaded.policy.state_dict()) == str(plain.policy.state_dict())
    caplog.set_level(logging.WARNING)
    watched = session_of(shadow="adaptive", quiet=False)
    watched.load(tmp_path / "without.npz")
    assert "made without the shadow adaptive(seed=0), which starts without beliefs" in caplog.text
    assert watched.policy.estimator.step == 3
    assert len(watching(watched).policy.estimator) == 0


def test_a_shadow_that_does_not_fit_starts_without_beliefs_and_the_run_loads(tmp_path, caplog):
    session = session_of(shadow=ba.adaptive(seed=1), quiet=False)
    step(session, 0)
    session.save(tmp_path / "state.npz")
    other = session_of(shadow=ba.adaptive(seed=2), quiet=False)
    other.load(tmp_path / "state.npz")
    assert "starts without beliefs, because those of the checkpoint do not fit" in caplog.text
    assert other.policy.estimator.step == 1
    assert watching(other).policy.estimator.step == 0
    assert step(other, 1)[1].metrics["shadow/errors"] == 1  # said above, and counted
    state, _ = load_state(tmp_path / "state.npz")
    session_of(shadow="adaptive").restore(state | {"shadow/scoring": 5})  # damaged: nothing is raised


# The comparisons

counts = st.lists(st.sampled_from("abcd"), min_size=1, max_size=12)


@given(counts, counts)
def test_overlap_is_a_share_that_does_not_depend_on_the_order(ids_R, run_R):
    found = compared_counts(ids_R, run_R)
    assert 0 <= found["overlap"] <= min(1, found["frac_in_batch"] + 1e-12)
    assert found == compared_counts(ids_R[::-1], run_R[::-1])
    assert found["overlap"] == pytest.approx(compared_counts(run_R, ids_R)["overlap"])
    assert compared_counts(ids_R, ids_R)["overlap"] == pytest.approx(1)
    assert compared_counts(ids_R, ids_R * 3)["overlap"] == pytest.approx(1)


finite = st.floats(-5, 5).map(lambda x: round(x, 3))


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=20))
def test_compared_advantages_are_shares_and_what_is_undefined_is_left_out(pairs):
    mine_R, run_R = np.array(pairs).T
    found = compared_advantages(mine_R, run_R)
    assert np.isfinite(list(found.values())).all()
    shares = [found[f"advantage/frac_{name}"] for name in ("gained", "lost", "both_zero")]
    both = np.mean((mine_R != 0) & (run_R != 0))
    assert sum(shares) + both == pytest.approx(1)
    assert ("advantage/rms_ratio" in found) == bool(run_R.any())
    if "advantage/correlation" in found:
        assert -1 - 1e-9 <= found["advantage/correlation"] <= 1 + 1e-9
