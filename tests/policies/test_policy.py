"""Policies and steps: what every policy keeps, whatever rule it decides by."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import Budget, BudgetError, InputError, Policy, StateError
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.memory import Memory
from budgetalloc.testing import same_state

POLICIES = {
    "uniform": ba.uniform,
    "knapsack": ba.knapsack,
    "knapsack of means": lambda **kw: ba.knapsack(belief="mean", value=ba.success_gain, **kw),
    "thompson": ba.thompson,
    "adaptive": ba.adaptive,
    "vade": ba.methods.vade,
    "cures": ba.methods.cures,
}
each_policy = pytest.mark.parametrize("make", POLICIES.values(), ids=POLICIES.keys())
IDS = [*range(6), *map(str, range(6)), "a prompt"]


def half(view, seen):
    """0.5 for each rollout of a prompt with a success, nothing of the others: not trained on."""
    return np.where(seen.mean_P > 0, 0.5, np.nan)[seen.prompt_R]


def own(expect=half, baseline="policy"):
    needs = ba.Needs(baseline=baseline)
    return Policy("own", lambda view: np.ones(len(view.ids_P), dtype=int), BetaEstimator(), needs=needs, expect=expect)


def test_a_baseline_of_the_policys_own_is_asked_for_before_it_learns():
    asked = []
    policy = own(lambda view, seen: asked.append((view, seen)) or half(view, seen))
    policy.observe(["b"], [1])
    step = policy.begin(["a", "b", "c"], ba.Budget(rollouts=3, min_group=1, floor=1))
    got = step.expected_success(["b", "a", "b"], [1, 0, None])
    assert got == pytest.approx([0.5, np.nan, 0.5], nan_ok=True)
    view, seen = asked[0]
    assert (list(view.ids_P), list(seen.ids_P)) == (["b", "a"], ["b", "a"])
    assert seen.prompt_R.tolist() == [0, 1, 0]
    assert (view.belief_P.mean.tolist(), view.cold_P.tolist()) == ([0.75, 0.5], [False, True])
    assert (view.recall, view.numbers) == ({}, {})
    assert ba.uniform().begin(["a"], ba.Budget(rollouts=2)).expected_success(["a"], [1]) is None
    with pytest.raises(ba.InputError, match="'z', which is not a prompt of this step"):
        step.expected_success(["z"], [1])


def test_a_baseline_of_the_policys_own_that_is_no_success_is_refused():
    step = own(lambda view, seen: np.full(len(seen.prompt_R), 1.5)).begin(["a"], ba.Budget(rollouts=2))
    with pytest.raises(ba.InputError, match=r"expect\(view, seen\)\[0\] = 1.5"):
        step.expected_success(["a"], [1])


@pytest.mark.parametrize(("given", "text"), [((None,), "pass expect="), ((1, "group"), "expect=1")])
def test_a_policy_that_asks_for_its_own_baseline_has_one(given, text):
    with pytest.raises(InputError, match=text):
        own(*given)


def trained(make, seed=0, steps=12, history_seed=0):
    """A policy with some history: some prompts never seen, some always solved, some never."""
    policy = make(seed=seed)
    rng = np.random.default_rng(history_seed)
    for _ in range(steps):
        seen = rng.choice(9, 4, replace=False)
        ids = [IDS[i] for i in seen for _ in range(4)]
        policy.observe(ids, (rng.random(16) < np.repeat(seen, 4) / 8).astype(float))
    return policy


# --- equal seeds and histories ---


@each_policy
def test_counts_do_not_depend_on_the_order_of_history(make):
    """Within a step rows may stand anywhere; rewards of 0 and 1 add up exactly."""
    rows = [(i, reward) for i in IDS for reward in (1, 0, 0, 1)]
    first, second = make(), make()
    first.observe(*zip(*rows, strict=True))
    second.observe(*zip(*[rows[k] for k in np.random.default_rng(0).permutation(len(rows))], strict=True))
    budget = Budget(rollouts=70)
    assert first.allocate(IDS, budget).tolist() == second.allocate(IDS, budget).tolist()


@each_policy
def test_ties_move_from_step_to_step(make):
    policy, budget = make(), Budget(rollouts=2, floor=0)
    chosen = set()
    for _ in range(200):
        chosen.add(int(policy.allocate(range(8), budget).argmax()))
        policy.observe([], [])
    assert chosen == set(range(8))


def test_a_state_of_another_seed_is_refused_and_changes_nothing():
    policy = trained(ba.thompson, seed=1)
    before = policy.state_dict()
    with pytest.raises(StateError, match=r"saved with seed=2, this policy has seed=1.*Build the policy with seed=2"):
        policy.load_state_dict(trained(ba.thompson, seed=2, steps=3).state_dict())
    with pytest.raises(StateError, match="another version of budgetalloc"):
        policy.load_state_dict({**trained(ba.thompson, seed=1, steps=3).state_dict(), "beliefs": "beta 9"})
    with pytest.raises(StateError, match="seed=None"):
        policy.load_state_dict({})
    assert same_state(policy.state_dict(), before)


# --- what a policy knows ---


def test_a_rule_of_ones_own():
    """A policy is an estimator and a rule; the rule sees the prompts in an order of its own."""

    def first_takes_all(view):
        counts_P = np.zeros(len(view.belief_P), dtype=np.int64)
        counts_P[view.belief_P.mean.argmax()] = view.budget.rollouts
        return counts_P

    policy = Policy("best", first_takes_all, ba.BetaEstimator())
    policy.observe(["good"] * 4, [1] * 4)
    assert policy.allocate(["new", "good", "other"], Budget(rollouts=8, floor=0)).tolist() == [0, 8, 0]


# --- steps ---


def learn_sum(memory, seen):
    if len(seen.ids_P) > 3:
        raise ZeroDivisionError
    memory.columns["sum"][memory.rows(seen.ids_P)] += seen.successes_P


def with_memory():
    estimator = ba.BetaEstimator(discount=0.7, idle=0.99)
    return Policy("rounds", lambda view: None, estimator, memory=Memory({"sum": 0.0}, learn_sum))


rounds_of_steps = st.lists(
    st.lists(
        st.lists(st.tuples(st.sampled_from([*"abc", 1, 2]), st.sampled_from([0.0, 1.0, 0.3, np.nan])), max_size=6),
        max_size=4,
    ),
    max_size=6,
)


@given(rounds_of_steps)
def test_a_step_teaches_at_its_end_what_its_rounds_would_teach_one_by_one(steps):
    """To the bit. A step that raises, or is never ended, teaches nothing."""
    policy, estimator = with_memory(), ba.BetaEstimator(discount=0.7, idle=0.99)
    for rounds in steps:
        before = policy.state_dict()
        step = policy.begin(list({"a", *(x for rows in rounds for x, _ in rows)}), Budget(rollouts=64, floor=0))
        for rows in rounds:
            step.observe([x for x, _ in rows], [r for _, r in rows])
        assert same_state(policy.state_dict(), before)
        if len({x for rows in rounds for x, r in rows if r == r}) > 3:
            with pytest.raises(ZeroDivisionError):
                step.end()
            assert same_state(policy.state_dict(), before)
            continue
        step.end()
        for rows in rounds:
            estimator.observe([x for x, _ in rows], [r for _, r in rows])
        estimator.tick()
        learned = {key: value for key, value in policy.state_dict().items() if key in estimator.state_dict()}
        assert same_state(learned, estimator.state_dict())


def test_a_step_that_has_ended():
    step = ba.uniform().begin(["a"], Budget(rollouts=2))
    step.request()
    step.end()
    for use in (step.request, lambda: step.observe(["a"], [1]), step.end):
        with pytest.raises(InputError, match=r"This step has ended.*policy.begin\(ids_P, budget\)"):
            use()


@pytest.mark.parametrize(
    ("ids", "budget", "costs", "error", "text"),
    [
        (["a", "b", "a"], Budget(rollouts=8), None, InputError, "ids_P holds the id 'a' twice"),
        ([], Budget(rollouts=8), None, InputError, "ids_P is empty"),
        ([1.5], Budget(rollouts=8), None, InputError, "ids_P[0] is 1.5"),
        (["a", "b"], Budget(2, floor=2, min_group=2), None, BudgetError, "2 prompts at floor=2 need 4 rollouts"),
        (["a"], Budget(rollouts=8, cap=4), None, BudgetError, "cap=4 can take only 4 rollouts"),
        (["a"], Budget(rollouts=None, tokens=100, cap=4), None, InputError, "costs_P=None"),
        (["a"], Budget(rollouts=None, tokens=100, cap=4), [0], InputError, "costs_P=[0]"),
        (["a"], Budget(rollouts=8), [1, 2], InputError, "costs_P=[1, 2]"),
        (["a"], Budget(None, tokens=100, cap=4, floor=2, min_group=2), [90], BudgetError, "Use tokens=180 or more"),
    ],
)
def test_bad_input(ids, budget, costs, error, text):
    policy = ba.thompson()
    with pytest.raises(error, match=re.escape(text)):
        policy.allocate(ids, budget, costs)
    assert policy.estimator.step == 0


def pairs(view):
    """Two rollouts each, and two more where a prompt has failed."""
    seen = yield np.full(len(view.ids_P), 2)
    yield np.where(seen.successes_P == 0, 2, 0)


@pytest.mark.parametrize(
    "policy",
    [
        ba.methods.dapo(),
        ba.methods.hora(),
        ba.methods.on_all_fail(ba.uniform(), lambda ids: None),
        Policy("pairs", pairs, BetaEstimator()),
    ],
    ids=lambda policy: policy.name.split("(")[0],
)
def test_allocate_of_a_decision_in_rounds_raises_and_names_begin(policy):
    """Its first round would not add up to the budget."""
    budget = Budget(32, floor=0)
    with pytest.raises(ba.UnsupportedError, match=r"decides in rounds.*policy\.begin\(ids_P, budget\)"):
        policy.allocate(range(8), budget)
    step = policy.begin(range(8), budget)
    assert step.in_rounds()
    assert 0 < step.request().sum() <= 32


@pytest.mark.parametrize("build", [ba.adaptive, ba.methods.spo, ba.methods.knapsack_rl])  # the last two have a memory
def test_a_replaced_policy_learns_for_itself_and_its_name_tells_its_seed(build):
    policy = build(seed=0)
    policy.observe(["a"] * 4, [1, 0, 1, 1])
    before, other = policy.state_dict(), replace(policy, seed=1)
    assert (other.name, repr(other)) == (build(seed=1).name,) * 2
    assert {**other.state_dict(), "seed": 0}.keys() == before.keys()
    assert other.belief(["a"]).mean == policy.belief(["a"]).mean  # it goes on from what the first has learned
    other.observe(["a", "b"], [0, 1])
    assert repr(policy.state_dict()) == repr(before)  # NaN included
    assert repr(other.state_dict()) != repr({**before, "seed": 1})
    policy.observe(["c"], [1])
    assert other.cold(["b", "c"]).tolist() == [False, True]


def test_a_policy_does_not_share_the_estimator_that_it_was_given():
    estimator = ba.BetaEstimator()
    one, two = (ba.Policy(f"p(seed={seed})", ba.uniform().decide, estimator, 7) for seed in (0, 12))
    assert one.name == two.name == "p(seed=7)"
    one.observe(["a"], [1])
    assert two.cold(["a"]).tolist() == [True]
    assert len(estimator) == 0
