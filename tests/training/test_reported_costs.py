"""Costs that rollouts report: weighed, learned per prompt, and filled where a report is missing."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import InputError, UnsupportedError
from budgetalloc.training.costs import Costs, check_cost
from budgetalloc.training.reported_costs import ReportedCosts
from budgetalloc.training.session import Session

PRICES = {"tokens": 1.0, "turns": 50.0, "tool_seconds": 200.0}


def session_of(**given):
    return Session(ba.adaptive(seed=0), ["reward"], pool=list("abcdefgh"), cost=PRICES, **given)


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


def test_a_rollout_costs_the_weighted_sum_and_its_share_of_the_prompt():
    turns_of = {name: 1 + at for at, name in enumerate("abcdefgh")}
    (ended,) = played(session_of(), turns_of, steps=1)
    batch = ended.batch
    own_R = np.array([20 + 50 * turns_of[name] + 200 * 0.5 for name in batch.ids_R])
    assert batch.costs_R == pytest.approx(own_R + 7 / batch.counts_R)
    assert ended.metrics["cost/rollout"] == pytest.approx(batch.costs_R.mean())
    assert ended.metrics["cost/missing"] == 0


def test_costs_are_learned_per_prompt_and_cheap_prompts_get_more():
    turns_of = {name: 1 if name in "abcd" else 10 for name in "abcdefgh"}
    session = session_of()
    ended = played(session, turns_of)
    _, each_P = session.costs.expected(list("ae"), session.policy.belief(list("ae")))
    assert each_P == pytest.approx([20 + 50 + 100, 20 + 500 + 100], rel=0.2)
    cheap = np.mean([name in "abcd" for each in ended[5:] for name in each.batch.ids_R])
    assert cheap > 0.58  # both halves pass half of the time
    assert ended[-1].metrics["cost/expected"] == pytest.approx(ended[-1].metrics["cost/rollout"], rel=0.2)


def test_a_missing_report_counts_as_expected_and_is_said_once(caplog):
    session, turns_of = session_of(), dict.fromkeys("abcdefgh", 3)
    played(session, turns_of)
    learned = session.costs.lengths.state_dict()
    odd = {"a": None, "b": math.nan, "c": -1, "d": math.inf, "e": "many", "f": 3, "g": 3, "h": 3}
    ended = played(session, odd, steps=5)
    assert caplog.text.count("reported no 'turns' that is a number of at least 0") == 1
    assert len(caplog.records) == 1
    for each in ended:
        without_R = np.array([name in "abcde" for name in each.batch.ids_R])
        assert each.metrics["cost/missing"] == without_R.sum()
        assert each.batch.costs_R == pytest.approx(20 + 150 + 100 + 7, rel=0.1)  # none is 0 or NaN
    after = session.costs.lengths.state_dict()
    at = learned["ids"].index("a")
    assert (after["tokens"][at] == learned["tokens"][at]).all()  # nothing was learned of it


def test_an_environment_that_reports_nothing_costs_tokens_until_it_does(caplog):
    session, nothing = session_of(), dict.fromkeys("abcdefgh")
    ended = played(session, nothing, seconds=None, steps=3)
    assert all(each.batch.costs_R == pytest.approx(20 + 7 / each.batch.counts_R) for each in ended)
    assert caplog.text.count("reported 'turns', so it counts as 0 until one does") == 1
    assert caplog.text.count("reported 'tool_seconds', so it counts as 0") == 1
    (ended,) = played(session, dict.fromkeys("abcdefgh", 2), seconds=None, steps=1)
    assert ended.batch.costs_R == pytest.approx(20 + 100 + 7 / ended.batch.counts_R)
    assert len(caplog.records) == 2


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 1e6) | st.none() | st.just(math.nan), min_size=1, max_size=30), st.integers(0, 10**6))
def test_whatever_is_reported_costs_are_positive_and_finite(turns, seed):
    """In the session's record and in the costs that the next decision weighs."""
    session = Session(ba.adaptive(seed=seed), ["reward"], pool=list("abc"), cost={"turns": 2.0}, quiet=True)
    for _ in range(2):
        session.begin([], len(turns), 1)
        ids_R = session.request()
        session.observe(ids_R, [1.0] * len(ids_R), [5] * len(ids_R), costs_R=turns)
        costs_R = session.end().batch.costs_R
        assert (np.isfinite(costs_R) & (costs_R > 0)).all()
    known_R = np.array([x is not None and not math.isnan(x) for x in turns])
    assert costs_R[known_R] == pytest.approx(np.maximum([2.0 * x for x in np.array(turns)[known_R]], 1e-9))


def test_one_column_is_enough_for_one_name():
    reported = ReportedCosts({"tokens": 1, "turns": 50})
    assert reported.columns([1, 2], 2)["turns"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"turn": [1, 2]}, r"costs_R\['turn'\] has no price, did you mean turns\? Use \['turns', 'tool_seconds'\]"),
        ({"turns": [1, 2, 3]}, r"costs_R\['turns'\]=.*: give a number for each of the 2 rollouts"),
        ([1, 2], r"costs_R is one column, and cost= has \['turns', 'tool_seconds'\]"),
    ],
)
def test_wrong_columns_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        ReportedCosts(PRICES).columns(given, 2)


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ({}, "no price is above 0"),
        ({"turns": 0}, "no price is above 0"),
        ({"turns": -1}, r"cost\['turns'\]=-1: use a number in"),
        ({3: 1.0}, "3 is not a name"),
        (3, "prices by name such as"),
    ],
)
def test_wrong_prices_are_refused(cost, message):
    with pytest.raises(InputError, match=message):
        check_cost(cost)


def test_what_cannot_be_used_is_refused_by_the_session():
    with pytest.raises(UnsupportedError, match=r"cost=.*turns.*does not weigh costs"):
        Session(ba.uniform(), ["reward"], cost=PRICES)
    with pytest.raises(InputError, match="only the adapters for TRL measure the seconds"):
        Session(ba.adaptive(), ["reward"], cost="seconds")
    session = Session(ba.adaptive(), ["reward"], pool=["a"], cost="tokens")
    session.begin([], 2, 2)
    with pytest.raises(InputError, match="costs_R is given, and cost= has no prices by name"):
        session.observe(session.request(), [0, 1], [3, 3], costs_R=[1, 2])
    session.observe(["a", "a"], [0, 1], [3, 3])  # the step goes on
    assert session.end().batch.costs_R.tolist() == [3, 3]


def test_learned_costs_are_restored_only_in_their_own_unit(tmp_path):
    session = session_of()
    played(session, dict.fromkeys("abcdefgh", 4), steps=3)
    session.save(tmp_path / "state.npz")
    again = session_of()
    again.load(tmp_path / "state.npz")
    belief = again.policy.belief(["a"])
    assert again.costs.expected(["a"], belief)[1] == session.costs.expected(["a"], belief)[1]
    assert again.costs.state_dict()["costs/reported"] == session.costs.state_dict()["costs/reported"]
    for cost in ({"tokens": 1.0, "turns": 5.0}, "tokens"):
        other = Costs.of(cost, ba.adaptive())
        other.load_state_dict(session.costs.state_dict())
        assert len(other.lengths) == 0
