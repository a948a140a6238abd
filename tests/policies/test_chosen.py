"""Which prompts: MoPPS and GRESO against their formulas, and what all rules that rank prompts must keep."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from budgetalloc import Budget, BudgetError, InputError
from budgetalloc.policies.chosen import greso, greso_keep, mopps, ranked
from budgetalloc.policies.compose import spend
from budgetalloc.policies.explorable import depo
from budgetalloc.policies.gates import gate, masa, pvpo
from budgetalloc.policies.selection import top

RANKED = {"mopps": mopps, "depo": depo, "greso": greso, "gate": gate, "masa": masa, "pvpo": pvpo}
NAN = float("nan")


def visit(policy, **passed_of_8):
    """One step with a visit of 8 rollouts to each of these prompts."""
    ids = [x for x in passed_of_8 for _ in range(8)]
    policy.observe(ids, [float(k < n) for n in passed_of_8.values() for k in range(8)])


@pytest.mark.parametrize("name", RANKED)
@given(
    prompts=st.integers(1, 13),
    units=st.integers(1, 60),
    floor=st.integers(0, 3),
    cap=st.none() | st.integers(1, 24),
    quantum=st.sampled_from([1, 2, 3]),
    min_group=st.integers(1, 4),
    seed=st.integers(0, 9),
)
@settings(max_examples=30, deadline=None)
def test_the_budget_is_spent_exactly_and_in_groups_that_it_allows(
    name, prompts, units, floor, cap, quantum, min_group, seed
):
    try:
        budget = Budget(units * quantum, floor=floor, cap=cap, quantum=quantum, min_group=min(min_group, floor or 9))
        budget.check(prompts)
    except BudgetError:
        assume(False)
    policy, rng = RANKED[name](seed=seed), np.random.default_rng(seed)
    ids = list(range(prompts))
    for _ in range(3):
        counts_P = policy.allocate(ids, budget)
        assert counts_P.sum() == budget.rollouts
        assert set(counts_P.tolist()) <= set(budget.grid().tolist())
        rates_R = np.repeat(rng.choice([0.0, 0.5, 1.0], prompts), counts_P)
        policy.observe(np.repeat(ids, counts_P), np.where(rng.random(rates_R.size) < 0.1, NAN, rates_R))


@given(
    scores=st.lists(st.floats(1e-9, 1), min_size=1, max_size=30, unique=True),
    units=st.integers(1, 40),
    cap=st.none() | st.integers(1, 12),
    quantum=st.sampled_from([1, 2]),
    min_group=st.integers(1, 4),
    group=st.integers(1, 9),
)
@settings(max_examples=50, deadline=None)
def test_pricing_only_what_can_be_chosen_is_worth_as_much_as_pricing_the_whole_pool(
    scores, units, cap, quantum, min_group, group
):
    scores_P = np.array(scores)
    try:
        budget = Budget(units * quantum, floor=0, cap=cap, quantum=quantum, min_group=min_group)
        budget.check(len(scores))
    except BudgetError:
        assume(False)
    view = mopps().begin(list(range(len(scores))), budget)._view()
    value = top(scores_P, group)
    whole, cut = spend(view.belief_P, value, view, None), ranked(scores_P, group, view)
    counts_N, rows = budget.grid(), np.arange(len(scores))
    values_PN = value(view.belief_P, counts_N)
    worth = [values_PN[rows, np.searchsorted(counts_N, counts_P)].sum() for counts_P in (whole, cut)]
    assert worth[1] == pytest.approx(worth[0], rel=1e-9)


def test_the_best_scored_prompts_get_a_group_each():
    scores_P = np.random.default_rng(0).permutation(40) + 1.0
    view = mopps().begin(list(range(40)), Budget(32, floor=0))._view()
    assert ranked(scores_P, 8, view).tolist() == np.where(scores_P > 36, 8, 0).tolist()
    floored = mopps().begin(list(range(4)), Budget(20, floor=2))._view()
    assert ranked(np.array([1.0, 4.0, 3.0, 2.0]), 8, floored).tolist() == [2, 8, 8, 2]


@pytest.mark.parametrize("name", RANKED)
def test_under_tokens_the_order_does_not_depend_on_what_a_rollout_costs(name):
    costs_P = np.where(np.arange(20) % 2, 1.0, 5.0)
    dear = 0
    for seed in range(20):
        policy = RANKED[name](seed=seed)
        counts_P = policy.allocate(list(range(20)), Budget(None, tokens=160, floor=0, cap=16), costs_P=costs_P)
        assert counts_P @ costs_P <= 160
        dear += (counts_P[::2] > 0).sum()
    assert dear > 20 * (2 if name == "pvpo" else 1)  # cheap first would leave them nothing: 10 groups at a price of 1


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=6), st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_mopps_keeps_its_own_update(visits, keep):
    policy, alpha, beta = mopps(discount=keep), 1.0, 1.0
    for passed, failed in visits:
        policy.observe(["x"] * (passed + failed) + ["other"], [1.0] * passed + [0.0] * failed + [1.0])
        if passed + failed:
            alpha = keep * alpha + (1 - keep) * 1.0 + passed
            beta = keep * beta + (1 - keep) * 1.0 + failed
    belief = policy.belief(["x"])
    np.testing.assert_allclose([belief.alpha_P[0], belief.beta_P[0]], [alpha, beta], rtol=1e-12)


@pytest.mark.parametrize("target", [0.0, 0.3, 0.5, 1.0])
def test_mopps_takes_the_draws_with_the_smallest_square(target):
    policy = mopps(target=target, seed=3)
    policy.observe(np.repeat(np.arange(30), 8), np.random.default_rng(0).random(240) < np.repeat(np.arange(30) / 30, 8))
    step = policy.begin(list(range(30)), Budget(40, floor=0))
    view, again = step._view(), step._view()
    square_P = (view.belief_P.sample(view.rng).mean - target) ** 2
    best = {again.ids_P[at] for at in np.argsort(square_P)[:5]}
    assert set(np.flatnonzero(step.request()).tolist()) == best


def test_mopps_graded_rewards_count_in_part_and_nan_not_at_all():
    policy = mopps()
    policy.observe(["x", "x", "x", "y"], [0.25, 0.75, NAN, NAN])
    belief = policy.belief(["x", "y"])
    assert (belief.alpha_P.tolist(), belief.beta_P.tolist()) == ([2.0, 1.0], [2.0, 1.0])


def test_greso_keeps_with_p_to_the_power_of_the_run():
    # A run of 3 at p_e = 0.5 is kept with 1/8; two prompts, one group: the fresh one loses where the other is kept and
    # wins the draw of the order, so the other is chosen with 1/8 * 1/2.
    policy = greso(change=0.0, seed=0)
    for _ in range(3):
        visit(policy, flat=8, fresh=4)
    state, chosen, runs = policy.state_dict(), 0, 800
    for seed in range(runs):
        other = greso(change=0.0, seed=seed)
        other.load_state_dict(state | {"seed": seed})
        chosen += other.allocate(["flat", "fresh"], Budget(8, floor=0))[0] > 0
    assert abs(chosen / runs - 1 / 16) < 4 * (1 / 16 * 15 / 16 / runs) ** 0.5


def test_greso_the_chance_to_keep_has_a_floor():
    assert greso_keep(np.array([9.0, 9.0]), np.array([0.5, 0.95]), 0.2) == pytest.approx([0.2, 0.95**9])
    policy, chosen = greso(), 0
    for _ in range(9):
        visit(policy, flat=8, fresh=4)
    for seed in range(100):
        other = greso(least=1.0, seed=seed)  # nobody is skipped: the order alone decides
        other.load_state_dict(policy.state_dict() | {"seed": seed})
        chosen += other.allocate(["flat", "fresh"], Budget(8, floor=0))[0] > 0
    assert 30 <= chosen <= 70


def test_greso_counts_visits_without_variance_in_a_row_whichever_kind():
    policy, ids = greso(), ["x", "y"]
    for passed in (8, 8, 0):
        visit(policy, x=passed, y=4)
    assert policy.memory.recall(ids)["run"].tolist() == [3, 0]
    assert policy.memory.recall(ids)["easy"].tolist() == [0, 0]
    visit(policy, x=7, y=8)
    assert policy.memory.recall(ids)["run"].tolist() == [0, 1]
    policy.observe(["y"], [0.0])  # one rollout shows no variance either way
    policy.observe(["y"] * 3, [NAN, NAN, NAN])
    assert policy.memory.recall(ids)["run"].tolist() == [0, 1]


def test_greso_moves_each_chance_towards_its_own_target():
    policy = greso(target=0.3, change=0.1)  # easy 0.1, hard 0.2 of the groups
    visit(policy, a=8, b=4, c=4, d=4)  # 1/4 easy: too many; none hard: too few
    assert policy.memory.numbers == pytest.approx({"easy": 0.4, "hard": 0.6})
    visit(policy, a=0, b=0, c=4, d=4)
    assert policy.memory.numbers == pytest.approx({"easy": 0.5, "hard": 0.5})
    policy.observe(["a"], [NAN])  # a step without evidence moves nothing
    assert policy.memory.numbers == pytest.approx({"easy": 0.5, "hard": 0.5})
    visit(policy, a=8, b=0, c=4, d=4, e=4, f=4, g=4)  # 1/7 of each lies between the targets
    assert policy.memory.numbers == pytest.approx({"easy": 0.4, "hard": 0.6})
    for _ in range(10):
        visit(policy, a=8)
    assert policy.memory.numbers == pytest.approx({"easy": 0.05, "hard": 0.95})


def test_greso_the_chance_depends_on_what_the_prompt_was_last():
    policy = greso(change=0.1, target=0.0)
    policy.memory.numbers.update(easy=0.9, hard=0.1)
    assert greso_keep(np.array([2.0, 2.0]), np.array([0.9, 0.2])) == pytest.approx([0.81, 0.04])
    for _ in range(2):
        policy.observe(["solved"] * 8 + ["failed"] * 8, [1] * 8 + [0] * 8)
        policy.memory.numbers.update(easy=0.95, hard=0.05)
    state, solved = policy.state_dict(), 0
    for seed in range(200):
        other = greso(change=0.1, target=0.0, seed=seed)
        other.load_state_dict(state | {"seed": seed})
        solved += other.allocate(["solved", "failed"], Budget(8, floor=0))[0] > 0
    assert solved > 170  # 0.95^2 against 0.05^2, where both or none are kept the order decides


def test_a_restored_policy_decides_the_same():
    for build in RANKED.values():
        policy, other = build(seed=4), build(seed=4)
        policy.observe(np.repeat(np.arange(20), 8), np.random.default_rng(1).random(160) < 0.3)
        other.load_state_dict(policy.state_dict())
        budget = Budget(64, floor=0)
        assert policy.allocate(range(25), budget).tolist() == other.allocate(range(25), budget).tolist()
        assert policy.allocate(range(25), budget).tolist() == other.allocate(range(24, -1, -1), budget)[::-1].tolist()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: mopps(group=0), "group=0"),
        (lambda: mopps(target=1.5), "target=1.5"),
        (lambda: mopps(discount=NAN), "discount=nan"),
        (lambda: greso(explore=0.0), "explore=0.0"),
        (lambda: greso(target=-0.1), "target=-0.1"),
        (lambda: greso(change=2), "change=2"),
        (lambda: greso(least=0), "least=0"),
    ],
)
def test_a_bad_setting_is_named(make, text):
    with pytest.raises(InputError, match=text):
        make()
