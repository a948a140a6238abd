"""What a training learns of costs: lengths and seconds of its steps."""

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.contrib.prices import Seconds
from budgetalloc.training.costs import Clock, Costs
from budgetalloc.training.open_step import Round, record
from budgetalloc.training.scoring import Measure
from budgetalloc.training.success import Rule

IDS = ["a", "a", "b", "c"]


def batch_of(lengths_R, prompt_lengths_R, hinted=(), ids_R=IDS):
    """A step of these rollouts; those of the places `hinted` were generated with a hint."""
    rounds = []
    for with_hint in (False, True):
        at = [k for k in range(len(ids_R)) if (k in hinted) == with_hint]
        if at:
            zeros_R = np.zeros(len(at))
            lengths = np.array(lengths_R)[at], with_hint, np.array(prompt_lengths_R)[at]
            rounds.append(Round([ids_R[k] for k in at], zeros_R, zeros_R[:, None], zeros_R, *lengths))
    step = ba.adaptive().begin(sorted(set(ids_R)), ba.Budget(4, floor=0, min_group=1))
    return record(rounds, step, Measure(Rule(), (0.0, 1.0), ("reward",), slope=1.0), Sums(), 0)


def test_a_rollout_costs_its_answer_and_its_share_of_the_prompt():
    costs, batch = Costs.of("tokens", ba.adaptive()), batch_of([10, 20, 30, 40], [6, 6, 8, 10])
    assert costs.described(batch)["cost/rollout"] == (10 + 20 + 30 + 40 + 6 + 8 + 10) / 4
    assert costs.described(batch)["cost/expected"] == (4 + 3) / 4  # nothing is known: a token each
    for _ in range(30):
        costs.learn(batch)
    described = costs.described(batch)
    assert described["cost/expected"] == pytest.approx(described["cost/rollout"], rel=0.15)
    once_P, each_P = costs.expected(["c", "a"], ba.adaptive().belief(["c", "a"]))
    assert once_P.tolist() == [10.0, 6.0]
    assert each_P[0] > 1.5 * each_P[1]


def test_rollouts_with_a_hint_are_not_learned_from():
    costs = Costs.of("tokens", ba.adaptive())
    costs.learn(batch_of([10, 999, 30, 40], [6, 99, 8, 10], hinted=(1,)))
    assert costs.expected(["a"], ba.adaptive().belief(["a"]))[0].tolist() == [6.0]
    assert costs.expected(["a"], ba.adaptive().belief(["a"]))[1][0] < 40


def test_seconds_are_those_of_the_steps_after_the_first():
    costs, now = Costs.of("seconds", ba.adaptive()), [0.0]
    costs.clock = Clock(lambda: now[0])
    for step in range(40):
        costs.clock.go()
        costs.begin()
        tokens = 100 * (1 + step % 5)
        costs.learn(batch_of([tokens] * 4, [5] * 4))
        now[0] += 1000.0 if step == 0 else 0.01 * 4 * tokens  # the first includes compiling
        costs.clock.stop()
        now[0] += 500.0  # an evaluation
    rollout, *_, answer = costs.price.prices
    assert answer == pytest.approx(0.01, rel=0.1)
    assert rollout < 0.5
    costs.restart()  # another training: what was measured last is forgotten, the prices are not
    now[0] += 1e6
    before = costs.price.prices
    for _ in range(2):
        costs.clock.go()
        costs.begin()
        costs.learn(batch_of([100] * 4, [5] * 4))
        now[0] += 1e6
    assert (costs.price.prices == before).all()
    again = Costs.of("seconds", ba.adaptive())
    again.load_state_dict(costs.state_dict())
    assert (again.price.prices == costs.price.prices).all()


def test_seconds_that_do_not_depend_on_lengths_are_warned_of_once(caplog):
    """The clock shows the same for every step, however long its answers."""
    costs, now = Costs.of("seconds", ba.adaptive()), [0.0]
    costs.clock = Clock(lambda: now[0])
    at_bound = []
    for step in range(60):
        costs.clock.go()
        costs.begin()
        batch = batch_of([100 * (1 + step % 5)] * 4, [5] * 4)
        at_bound.append(costs.described(batch)["cost/at_bound"])
        costs.learn(batch)
        now[0] += 3.0
        assert "did not depend on how long" not in caplog.text or step > 15
    assert at_bound[0] == 0.0
    assert at_bound[-1] >= 1.0
    assert caplog.text.count("did not depend on how long") == 1
    _, each = costs.expected(["a", "b", "c"], ba.adaptive().belief(["a", "b", "c"]))
    assert each.max() < 1.05 * each.min()  # as without costs


def test_without_a_price_nothing_is_learned():
    costs, batch = Costs.of(None, ba.uniform()), batch_of([10] * 4, [5] * 4)
    costs.begin()
    costs.learn(batch)
    assert costs.of_step is None
    assert costs.described(batch) == costs.state_dict() == {}
    assert len(costs.lengths) == 0
    costs.load_state_dict({"lengths": "of a run with costs"})


def test_a_state_without_costs_leaves_them_cold_and_prices_may_be_missing():
    costs = Costs.of("tokens", ba.adaptive())
    costs.learn(batch_of([10] * 4, [5] * 4))
    seconds = Costs.of("seconds", ba.adaptive())
    seconds.load_state_dict({})
    assert len(seconds.lengths) == 0
    seconds.load_state_dict(costs.state_dict())
    assert len(seconds.lengths) == 3
    assert (seconds.price.prices == Seconds().prices).all()
