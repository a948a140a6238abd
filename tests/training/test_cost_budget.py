"""A budget in cost keeps a step's mean cost, leaves the number of rollouts, and starves no prompt."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import InputError
from budgetalloc.errors import StateError
from budgetalloc.training.cost_budget import CostBudget
from budgetalloc.training.costs import check_cost_per_step
from budgetalloc.training.session import Session

POOL = [f"{kind}{at}" for kind in ("quick", "slow") for at in range(100)]
ROLLOUTS = 64


def run(policy, target, steps, session=None):
    """Steps in which slow prompts take ten turns and quick ones take one; returns the session and the ended steps."""
    given = {} if target is None else {"cost_per_step": target}
    session = session or Session(policy, ["reward"], pool=POOL, cost={"turns": 1.0}, candidates="all", **given)
    ended = []
    for _ in range(steps):
        session.begin([], ROLLOUTS, 8)
        ids_R = session.request()
        rng = np.random.default_rng([session.policy.estimator.step, 5])
        turns_R = [10 if name.startswith("slow") else 1 for name in ids_R]
        session.observe(ids_R, rng.integers(0, 2, len(ids_R)), [9] * len(ids_R), costs_R=turns_R)
        ended.append(session.end())
    return session, ended


def said(caplog):
    return [record for record in caplog.records if record.name == "budgetalloc.training.cost_budget"]


def cost_of(ended):
    return float(np.mean([each.batch.costs_R.sum() for each in ended]))


@pytest.mark.parametrize("policy", [ba.adaptive, ba.knapsack, ba.thompson])
def test_the_mean_cost_is_kept_and_the_number_of_rollouts_stays(policy):
    """640 would be the cost of slow prompts only, 64 that of quick ones."""
    target = 150.0
    _, ended = run(policy(seed=0), target, 100)
    assert [len(each.batch) for each in ended] == [ROLLOUTS] * 100
    assert cost_of(ended) == pytest.approx(target, rel=0.05)
    assert ended[-1].metrics["cost/target"] == target
    assert ended[-1].metrics["cost/mean"] == pytest.approx(cost_of(ended[:-1]))
    slow = {name for each in ended for name in each.batch.ids_R if name.startswith("slow")}
    assert len(slow) > 20  # expensive prompts are still tried


def test_a_target_above_what_is_spent_lowers_the_price_to_0_and_is_no_fault(caplog):
    _, ended = run(ba.adaptive(seed=0), 10.0 * ROLLOUTS, 30)
    assert ended[-1].metrics["cost/price"] == 0
    assert cost_of(ended[10:]) == pytest.approx(5.5 * ROLLOUTS, rel=0.1)  # as if rollouts had no costs
    assert not said(caplog)


def test_a_target_that_cannot_be_kept_is_counted_said_once_and_ends_nothing(caplog):
    _, ended = run(ba.adaptive(seed=0), 0.5 * ROLLOUTS, 60)  # no rollout costs less than one turn
    assert [len(each.batch) for each in ended] == [ROLLOUTS] * 60
    assert ended[-1].metrics["cost/price"] == 4
    assert ended[-1].metrics["cost/over"] > 20
    assert caplog.text.count("cost_per_step=32 cannot be kept") == 1
    assert len(said(caplog)) == 1
    slow = sum(name.startswith("slow") for each in ended[30:] for name in each.batch.ids_R)
    assert slow > 30  # of 1,920: few, and not none


def test_a_resumed_run_decides_as_an_uninterrupted_one(tmp_path):
    session, _ = run(ba.adaptive(seed=0), 150.0, 12)
    session.save(tmp_path / "state.npz")
    _, rest = run(None, None, 5, session)
    again = Session(ba.adaptive(seed=0), ["reward"], pool=POOL, cost={"turns": 1.0}, cost_per_step=150.0)
    again.load(tmp_path / "state.npz")
    _, same = run(None, None, 5, again)
    assert [each.batch.ids_R for each in same] == [each.batch.ids_R for each in rest]
    assert [each.metrics["cost/mean"] for each in same] == [each.metrics["cost/mean"] for each in rest]


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=30),
    st.lists(st.floats(0, 1e6), min_size=30, max_size=30),
    st.lists(st.floats(0, 1e4), max_size=20),
)
def test_weighed_costs_are_bounded_and_keep_the_order_and_the_group_sizes(each, once, spent_S):
    budget = CostBudget(100.0, quiet=True)
    for spent in spent_S:
        budget.learn(spent)
    each_P, once_P = np.array(each), np.array(once)[: len(each)]
    weighed_once_P, weighed_P = budget.weighed(once_P, each_P)
    relative_P = weighed_P / each_P.mean()
    assert ((relative_P >= 1 / 16 - 1e-9) & (relative_P <= 16 + 1e-9)).all()
    order = np.argsort(each_P)
    assert (np.diff(weighed_P[order]) >= -1e-9 * each_P.mean()).all()
    assert weighed_once_P * each_P == pytest.approx(once_P * weighed_P)  # the prompt's part of the cost stays


def test_a_price_of_1_changes_nothing():
    once_P, each_P = np.array([3.0, 0.0]), np.array([1.0, 10.0])
    weighed = CostBudget(5.0).weighed(once_P, each_P)
    assert [x.tolist() for x in weighed] == [once_P.tolist(), each_P.tolist()]


@pytest.mark.parametrize("numbers", [[1.0], [5.0, 0, 0, 0, 0], [-1.0, 0, 0, 0, 0], [np.nan, 0, 0, 0, 0]])
def test_a_damaged_state_is_refused_and_changes_nothing(numbers):
    budget = CostBudget(5.0)
    with pytest.raises(StateError, match="no budget in cost"):
        budget.load_state_dict({"costs/budget": np.array(numbers)})
    assert budget.described() == CostBudget(5.0).described()


@pytest.mark.parametrize(
    ("target", "cost", "message"),
    [
        (0, "tokens", "cost_per_step=0: use a number in"),
        (100, None, "cost_per_step=100 with cost=None: it is in the unit of cost="),
        (100, "seconds", "cost_per_step=100 with cost='seconds'"),
    ],
)
def test_a_budget_needs_a_fixed_unit(target, cost, message):
    with pytest.raises(InputError, match=message):
        check_cost_per_step(target, cost)
