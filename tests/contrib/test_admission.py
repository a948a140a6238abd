"""Plans against any order of arrival, the bound of the age against a trainer that is simulated, and wrong calls."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc import InputError
from budgetalloc.contrib.admission import Admission, Plan, most_ahead


@given(st.data(), st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_plans_are_admitted_in_their_order_whichever_rollouts_end_first(data, sizes):
    admission, keys = Admission(), []
    plans = [Plan(size) for size in sizes]
    for at, plan in enumerate(plans):
        admission.begin(plan)
        keys += [(at, number) for number in plan.ask(plan.rollouts)]
    assert admission.rollouts == sum(sizes)
    admitted, lost = [], set()
    for at, number in data.draw(st.permutations(keys)):
        if data.draw(st.booleans()):
            lost.add((at, number))
        plans[at].take(number, None if (at, number) in lost else (at, number))
        while (plan := admission.next()) is not None:
            assert plan.complete
            admission.admit()
            admitted.append(plan)
        assert not any(plan.complete for plan in plans[len(admitted) :][:1])  # the oldest that was not admitted
    assert admitted == plans
    assert len(admission) == admission.rollouts == 0
    for at, plan in enumerate(plans):
        assert plan.came() == [key for key in keys if key[0] == at and key not in lost]  # by number, not by arrival
        assert plan.lost == sum(key[0] == at for key in lost)


def test_a_plan_in_rounds_returns_the_last_round():
    plan = Plan(4)
    for number in plan.ask(2):
        plan.take(number, "first")
    assert plan.came() == ["first", "first"]
    assert list(plan.ask(2)) == [2, 3]
    assert not plan.complete
    plan.take(3, "second")
    plan.take(2, None)
    assert plan.complete
    assert plan.came() == ["second"]
    assert plan.lost == 1


def test_nothing_is_counted_twice():
    plan = Plan(2)
    plan.ask(2)
    plan.take(0, "a")
    with pytest.raises(InputError, match=r"take\(0\): the plan waits for no such rollout"):
        plan.take(0, "a")
    with pytest.raises(InputError, match=r"take\(2\)"):
        plan.take(2, "b")
    assert not plan.complete


@given(st.integers(0, 4), st.integers(1, 6), st.integers(1, 20), st.integers(0, 10_000))
def test_no_rollout_is_taken_later_than_the_bound(staleness, batch, size, seed):
    """Plans of one size with one that ends late: the trainer takes rollouts whenever there are any, and steps."""
    rng, admission, ahead = np.random.default_rng(seed), Admission(), most_ahead(staleness, batch, size)
    queue, ages, collected, version, running, began = [], [], 0, 0, [], {}
    for _ in range(400):
        if admission.may_begin(len(queue), ahead):
            plan = Plan(size)
            admission.begin(plan)
            began[id(plan)] = version
            running += [(plan, number) for number in plan.ask(size)]
        elif rng.random() < 0.5 and running:
            plan, number = running.pop(int(rng.integers(len(running))))
            plan.take(number, number)
        elif queue:
            ages.append(version - queue.pop(0))
            collected += 1
            version, collected = version + collected // batch, collected % batch
        while (plan := admission.next()) is not None:
            admission.admit()
            queue += [began[id(plan)]] * size
    assert ages
    assert max(ages) <= max(staleness, (batch + size - 2) // batch)  # one plan alone may be longer than the bound
    assert most_ahead(staleness, batch, size) == ahead >= 0


def test_one_more_rollout_ahead_would_break_the_bound():
    """The last rollout of a plan of 3 is taken (1 + ahead + 2) // 2 steps after it began, with one being collected."""
    ahead = most_ahead(max_staleness=4, batch=2, rollouts=3)
    assert (2 - 1 + ahead + 3 - 1) // 2 == 4
    assert (2 - 1 + ahead + 1 + 3 - 1) // 2 == 5
