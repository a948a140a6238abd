"""What rollouts cost: by length, by reports and by seconds; and a budget of it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import InputError, StateError, UnsupportedError
from budgetalloc.contrib.costs import CostBudget, Costs, check_cost
from budgetalloc.training.clock import Clock
from budgetalloc.training.parts import Host
from budgetalloc.training.session import Session

PRICES = {"tokens": 1.0, "turns": 50.0, "tool_seconds": 200.0}
NAMES = list("abcdefgh")
POOL = [f"{kind}{at}" for kind in ("quick", "slow") for at in range(100)]
ROLLOUTS = 64


def session_of(cost=PRICES, pool=NAMES, **given):
    # without fallback: the pool is small
    return Session(ba.adaptive(seed=0), ["reward"], pool=pool, cost=cost, fallback=False, **given)


def costs_of(session):
    return next(part for part in session.parts if isinstance(part, Costs))


def played(session, turns_of, *, seconds=0.5, steps=20, rollouts=16):
    """Steps whose rollouts report `turns_of[prompt]` turns; returns the ended steps."""
    ended, rng = [], np.random.default_rng(0)
    for _ in range(steps):
        session.begin([], rollouts, 4)
        ids_R = session.request()
        rewards_R = rng.integers(0, 2, len(ids_R))
        reports = {"turns": [turns_of[name] for name in ids_R], "tool_seconds": [seconds] * len(ids_R)}
        prompts_R = np.full(len(ids_R), 7)
        session.observe(ids_R, rewards_R, [20] * len(ids_R), prompt_lengths_R=prompts_R, costs_R=reports)
        ended.append(session.end())
    return ended


def timed(tokens_of_step, seconds_of_step, steps):
    """A session with `cost="seconds"` in steps of such answers and seconds, and its metrics."""
    part, now, metrics = Costs("seconds"), [0.0], []
    part.clock = Clock(lambda: now[0])
    session = Session(ba.adaptive(), ["reward"], pool=NAMES, quiet=False)
    part.attach(session, Host(measures_seconds=True))
    session.parts.append(part)
    for step in range(steps):
        part.clock.go()
        session.begin([], 4, 2)
        ids_R = session.request()
        session.observe(ids_R, [0.0] * 4, [tokens_of_step(step)] * 4, prompt_lengths_R=np.full(4, 5))
        metrics.append(session.end().metrics)
        now[0] += seconds_of_step(step)
        part.clock.stop()
        now[0] += 500.0  # an evaluation
    return part, metrics


def test_a_rollout_costs_its_answer_and_its_share_of_the_prompt():
    session, lengths = session_of("tokens", ["a", "b", "c"], metrics="all"), {"a": 10, "b": 30, "c": 40}
    for step in range(30):
        session.begin([], 8, 4)
        ids_R = session.request()
        prompts_R = np.array([{"a": 6, "b": 8, "c": 10}[name] for name in ids_R])
        session.observe(ids_R, [0.0] * 8, [lengths[name] for name in ids_R], prompt_lengths_R=prompts_R)
        ended = session.end()
        once_R = prompts_R / ended.batch.counts_R
        assert ended.batch.costs_R == pytest.approx([lengths[name] for name in ids_R] + once_R)
        assert ended.metrics["cost/rollout"] == pytest.approx(ended.batch.costs_R.mean())
        if step == 0:  # nothing is known: a token for each answer and each prompt
            assert ended.metrics["cost/expected"] == 1 + len(set(ids_R)) / 8
    assert ended.metrics["cost/expected"] == pytest.approx(ended.metrics["cost/rollout"], rel=0.15)
    once_P, each_P = costs_of(session).expected(["c", "a"], session.policy.belief(["c", "a"]))
    assert once_P.tolist() == [10.0, 6.0]
    assert each_P[0] > 2 * each_P[1]


def test_seconds_are_those_of_the_steps_after_the_first():
    def seconds(step):
        return 1000.0 if step == 0 else 0.01 * 400 * (1 + step % 5)  # the first includes compiling

    costs, _ = timed(lambda step: 100 * (1 + step % 5), seconds, 40)
    rollout, *_, answer = costs.price.prices
    assert answer == pytest.approx(0.01, rel=0.1)
    assert rollout < 0.5
    again = Costs("seconds")
    again.load_state_dict(costs.state_dict())
    assert (again.price.prices == costs.price.prices).all()
    tokens = Costs("tokens")
    tokens.load_state_dict(costs.state_dict())  # lengths have the same unit
    assert len(tokens.lengths) == len(costs.lengths)


def test_seconds_that_do_not_depend_on_lengths_are_warned_of_once(caplog):
    costs, metrics = timed(lambda step: 100 * (1 + step % 5), lambda _: 3.0, 60)
    assert metrics[0]["cost/at_bound"] == 0.0
    assert metrics[-1]["cost/at_bound"] >= 1.0
    assert caplog.text.count("did not depend on how long") == 1
    _, each = costs.expected(NAMES, ba.adaptive().belief(NAMES))
    assert each.max() < 1.05 * each.min()  # as without costs


class TestReports:
    def test_a_rollout_costs_the_weighted_sum_and_its_share_of_the_prompt(self):
        turns_of = {name: 1 + at for at, name in enumerate(NAMES)}
        (ended,) = played(session_of(), turns_of, steps=1)
        batch = ended.batch
        own_R = np.array([20 + 50 * turns_of[name] + 200 * 0.5 for name in batch.ids_R])
        assert batch.costs_R == pytest.approx(own_R + 7 / batch.counts_R)
        assert ended.metrics["cost/missing"] == 0

    def test_costs_are_learned_per_prompt_and_cheap_prompts_get_more(self):
        turns_of = {name: 1 if name in "abcd" else 10 for name in NAMES}
        session = session_of()
        ended = played(session, turns_of)
        _, each_P = costs_of(session).expected(list("ae"), session.policy.belief(list("ae")))
        assert each_P == pytest.approx([20 + 50 + 100, 20 + 500 + 100], rel=0.2)
        cheap = np.mean([name in "abcd" for each in ended[5:] for name in each.batch.ids_R])
        assert cheap > 0.58  # both halves pass half of the time

    def test_a_missing_report_counts_as_expected_and_is_said_once(self, caplog):
        session, turns_of = session_of(), dict.fromkeys(NAMES, 3)
        played(session, turns_of)
        learned = session.state()["parts"]["Costs"]
        odd = {"a": None, "b": math.nan, "c": -1, "d": math.inf, "e": "many", "f": 3, "g": 3, "h": 3}
        ended = played(session, odd, steps=5)
        assert caplog.text.count("reported no 'turns' that is a number of at least 0") == 1
        assert len(caplog.records) == 1
        for each in ended:
            without_R = np.array([name in "abcde" for name in each.batch.ids_R])
            assert each.metrics["cost/missing"] == without_R.sum()
            assert each.batch.costs_R == pytest.approx(20 + 150 + 100 + 7, rel=0.1)  # none is 0 or NaN
        after = session.state()["parts"]["Costs"]
        at = learned["lengths"]["ids"].index("a")
        assert (after["lengths"]["tokens"][at] == learned["lengths"]["tokens"][at]).all()  # nothing was learned of it

    def test_an_environment_that_reports_nothing_costs_tokens_until_it_does(self, caplog):
        session = session_of()
        ended = played(session, dict.fromkeys(NAMES), seconds=None, steps=3)
        assert all(each.batch.costs_R == pytest.approx(20 + 7 / each.batch.counts_R) for each in ended)
        assert caplog.text.count("reported 'turns', so it counts as 0 until one does") == 1
        (ended,) = played(session, dict.fromkeys(NAMES, 2), seconds=None, steps=1)
        assert ended.batch.costs_R == pytest.approx(20 + 100 + 7 / ended.batch.counts_R)
        assert len(caplog.records) == 2  # the other: of 'tool_seconds'

    @settings(deadline=None, max_examples=50)
    @given(st.lists(st.floats(0, 1e6) | st.none() | st.just(math.nan), min_size=1, max_size=30), st.integers(0, 10**6))
    def test_whatever_is_reported_costs_are_positive_and_finite(self, turns, seed):
        session = Session(ba.adaptive(seed=seed), ["reward"], pool=list("abc"), cost={"turns": 2.0}, quiet=True)
        for _ in range(2):
            session.begin([], len(turns), 1)
            ids_R = session.request()
            session.observe(ids_R, [1.0] * len(ids_R), [5] * len(ids_R), costs_R=turns)
            costs_R = session.end().batch.costs_R
            assert (np.isfinite(costs_R) & (costs_R > 0)).all()
        known_R = np.array([x is not None and not math.isnan(x) for x in turns])
        assert costs_R[known_R] == pytest.approx(np.maximum([2.0 * x for x in np.array(turns)[known_R]], 1e-9))

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"turn": [1, 2]}, r"costs_R\['turn'\] has no price, did you mean turns\? Use \['turns', 'tool_seconds'\]"),
            ({"turns": [1, 2, 3]}, r"costs_R\['turns'\]=.*: give a number for each of the 2 rollouts"),
            ([1, 2], r"costs_R is one column, and cost= has prices of \['turns', 'tool_seconds'\]"),
        ],
    )
    def test_wrong_columns_are_refused_and_the_step_goes_on(self, given, message):
        session = session_of(pool=["a"])
        session.begin([], 2, 2)
        with pytest.raises(InputError, match=message):
            session.observe(session.request(), [0, 1], [3, 3], costs_R=given)
        session.observe(["a", "a"], [0, 1], [3, 3])
        assert session.end().batch.costs_R.tolist() == [3, 3]

    def test_they_are_restored_only_in_their_own_unit(self, tmp_path):
        session = session_of()
        played(session, dict.fromkeys(NAMES, 4), steps=3)
        session.save(tmp_path / "state.npz")
        again = session_of()
        again.load(tmp_path / "state.npz")
        for name, value in session.state().items():
            np.testing.assert_equal(again.state()[name], value)
        for cost in ({"tokens": 1.0, "turns": 5.0}, "tokens"):
            other = Costs(cost)
            other.load_state_dict(session.state())
            assert len(other.lengths) == 0


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ({}, "prices by name, not all 0"),
        ({"turns": 0}, "prices by name, not all 0"),
        ({"turns": -1}, r"cost\['turns'\]=-1: use a number in"),
        ({3: 1.0}, "3 is not a name"),
        (3, "prices by name, not all 0"),
        ("second", "use 'tokens', 'seconds'"),
    ],
)
def test_wrong_costs_are_refused(cost, message):
    with pytest.raises(InputError, match=message):
        check_cost(cost)


def test_what_cannot_be_used_is_refused_when_it_is_attached():
    with pytest.raises(UnsupportedError, match=r"cost=.*turns.*does not weigh costs"):
        Session(ba.uniform(), ["reward"], cost=PRICES)
    with pytest.raises(InputError, match="only the adapters for TRL measure the seconds"):
        Session(ba.adaptive(), ["reward"], cost="seconds")


class TestBudget:
    def run(self, policy, target, steps, session=None):
        """Steps in which slow prompts take ten turns and quick ones take one; the session and the ended steps."""
        given = {"cost": {"turns": 1.0}, "cost_per_step": target}
        session = session or Session(policy, ["reward"], pool=POOL, candidates="all", **given)
        ended = []
        for _ in range(steps):
            session.begin([], ROLLOUTS, 8)
            ids_R = session.request()
            rng = np.random.default_rng([session.policy.estimator.step, 5])
            turns_R = [10 if name.startswith("slow") else 1 for name in ids_R]
            session.observe(ids_R, rng.integers(0, 2, len(ids_R)), [9] * len(ids_R), costs_R=turns_R)
            ended.append(session.end())
        return session, ended

    def cost_of(self, ended):
        return float(np.mean([each.batch.costs_R.sum() for each in ended]))

    @pytest.mark.parametrize("policy", [ba.adaptive, ba.knapsack, ba.thompson])
    def test_the_mean_cost_is_kept_and_the_number_of_rollouts_stays(self, policy):
        """640 would be the cost of slow prompts only, 64 that of quick ones."""
        target = 150.0
        _, ended = self.run(policy(seed=0), target, 100)
        assert [len(each.batch) for each in ended] == [ROLLOUTS] * 100
        assert self.cost_of(ended) == pytest.approx(target, rel=0.05)
        assert ended[-1].metrics["cost/target"] == target
        assert ended[-1].metrics["cost/mean"] == pytest.approx(self.cost_of(ended[:-1]))
        slow = {name for each in ended for name in each.batch.ids_R if name.startswith("slow")}
        assert len(slow) > 20  # expensive prompts are still tried

    def test_a_target_above_what_is_spent_lowers_the_price_to_0_and_is_no_fault(self, caplog):
        _, ended = self.run(ba.adaptive(seed=0), 10.0 * ROLLOUTS, 30)
        assert ended[-1].metrics["cost/price"] == 0
        assert self.cost_of(ended[10:]) == pytest.approx(5.5 * ROLLOUTS, rel=0.1)  # as if rollouts had no costs
        assert "cannot be kept" not in caplog.text

    def test_a_target_that_cannot_be_kept_is_counted_said_once_and_ends_nothing(self, caplog):
        _, ended = self.run(ba.adaptive(seed=0), 0.5 * ROLLOUTS, 60)  # no rollout costs less than one turn
        assert [len(each.batch) for each in ended] == [ROLLOUTS] * 60
        assert ended[-1].metrics["cost/price"] == 4
        assert ended[-1].metrics["cost/over"] > 20
        assert caplog.text.count("cost_per_step=32 cannot be kept") == 1
        slow = sum(name.startswith("slow") for each in ended[30:] for name in each.batch.ids_R)
        assert slow > 30  # of 1,920: few, and not none

    @settings(deadline=None, max_examples=100)
    @given(
        st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=30),
        st.lists(st.floats(0, 1e6), min_size=30, max_size=30),
        st.lists(st.floats(0, 1e4), max_size=20),
    )
    def test_weighed_costs_are_bounded_and_keep_the_order_and_the_group_sizes(self, each, once, spent_S):
        budget = CostBudget(100.0)
        for spent in spent_S:
            budget.learn(spent)
        each_P, once_P = np.array(each), np.array(once)[: len(each)]
        weighed_once_P, weighed_P = budget.weighed(once_P, each_P)
        relative_P = weighed_P / each_P.mean()
        assert ((relative_P >= 1 / 16 - 1e-9) & (relative_P <= 16 + 1e-9)).all()
        order = np.argsort(each_P)
        assert (np.diff(weighed_P[order]) >= -1e-9 * each_P.mean()).all()
        assert weighed_once_P * each_P == pytest.approx(once_P * weighed_P)  # the prompt's part of the cost stays

    @pytest.mark.parametrize(
        "change", [{"price": 5.0}, {"spent": -1.0}, {"price": np.nan}, {"steps": -1}, {"over": "x"}]
    )
    def test_a_damaged_state_is_refused(self, change):
        costs = Costs("tokens", 5.0)
        state = costs.state_dict()
        with pytest.raises(StateError, match="CostBudget"):
            costs.load_state_dict(state | {"costs/budget": state["costs/budget"] | change})
        assert costs.budget == CostBudget(5.0)

    @pytest.mark.parametrize(
        ("target", "cost", "message"),
        [
            (0, "tokens", "cost_per_step=0: use a number in"),
            (100, None, "cost_per_step=100 with cost=None: it is in the unit of cost="),
            (100, "seconds", "cost_per_step=100 with cost='seconds'"),
        ],
    )
    def test_it_needs_a_fixed_unit(self, target, cost, message):
        with pytest.raises(InputError, match=message):
            Costs(cost, target)
