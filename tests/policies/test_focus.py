"""BroRL and DRIVE: few prompts with many rollouts each, and how a batch is cut to a budget."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import Budget, InputError
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.policies.base import Policy
from budgetalloc.policies.focus import batch, breadth_depth, brorl, drive, in_proportion, keep_only, lr_scale

IDS = list(range(40))
RATES = {k: k / 39 for k in IDS}  # 0 is the hardest


def observe(policy, rates=RATES, group=78):
    """One step with the given mean reward of each prompt."""
    ids_R = [x for x in rates for _ in range(group)]
    policy.observe(ids_R, [float(k < round(r * group)) for r in rates.values() for k in range(group)])


def decided(decide, ids, budget, **more):
    return Policy("test", decide, BetaEstimator()).allocate(ids, budget, **more)


def test_breadth_and_depth_are_traded_at_equal_rollouts():
    assert breadth_depth(8192, 16) == 512
    assert breadth_depth(8192, 512) == 16
    assert breadth_depth(8191, 512) == 15
    assert breadth_depth(100, 512) == 1


def test_the_learning_rate_grows_by_the_root_of_the_batch():
    assert lr_scale(4, 1) == 2.0
    assert lr_scale(128 * 512, 512 * 16) == pytest.approx(8**0.5)  # exact: 8 times the rollouts
    assert lr_scale(16, 64) == 0.5


@given(rollouts=st.integers(2, 300), group=st.integers(2, 64), seed=st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_brorl_takes_as_many_prompts_as_breadth_depth_says(rollouts, group, seed):
    counts = brorl(group=group, seed=seed).allocate(IDS, Budget(rollouts, floor=0))
    assert counts.sum() == rollouts
    assert (counts > 0).sum() == min(breadth_depth(rollouts, group), len(IDS))
    taken = counts[counts > 0]
    assert taken.min() >= min(group, rollouts)
    assert np.ptp(taken) <= 1  # what does not divide is spread evenly


def test_brorl_draws_every_prompt_equally_often_whatever_its_rate():
    policy, met = brorl(group=16, seed=1), np.zeros(len(IDS))
    for _ in range(600):
        counts = policy.allocate(IDS, Budget(64, floor=0))
        met += counts > 0
        policy.observe(np.repeat(IDS, counts), np.repeat([float(k > 20) for k in IDS], counts))
    expected = 600 * 4 / 40
    assert np.abs(met - expected).max() < 5 * (expected * 0.9) ** 0.5  # binomial


def test_brorl_does_not_wait_for_prompts_whose_rewards_are_missing():
    policy, met = brorl(group=32), np.zeros(len(IDS))
    for _ in range(300):
        counts = policy.allocate(IDS, Budget(32, floor=0))
        met += counts > 0
        policy.observe(np.repeat(IDS, counts), np.repeat([np.nan if k < 30 else 1.0 for k in IDS], counts))
    assert met.min() > 0


def test_brorl_gives_the_floor_to_all_and_the_group_to_few():
    counts = brorl(group=16).allocate(IDS, Budget(40 * 2 + 14 * 3, floor=2))
    assert sorted(counts.tolist()) == [2] * 37 + [16] * 3


def test_brorl_takes_more_prompts_where_the_cap_is_below_the_group():
    counts = brorl(group=512).allocate(IDS, Budget(64, floor=0, cap=8))
    assert sorted(counts.tolist()) == [0] * 32 + [8] * 8


def test_drive_goes_through_its_phases_and_stays_in_the_last():
    policy, budget = drive(phases=[(1.0, 2, 8), (0.4, 3, 16), (0.1, 1, 32)]), Budget(64, floor=0)
    sizes, hardest = [], []
    for _ in range(8):
        counts = policy.allocate(IDS, budget)
        sizes.append(int(counts.max()))
        hardest.append(int(np.flatnonzero(counts).max()))
        observe(policy)
    assert sizes == [8] * 2 + [16] * 3 + [32] * 3
    assert max(hardest[2:5]) < 16  # 0.4 of 40
    assert max(hardest[5:]) < 4


def test_drive_defaults_are_the_papers_shares_of_175_prompts():
    policy, ids = drive(), list(range(175))
    kept = {}
    for step in range(32 + 64 + 32 + 40):
        counts = policy.allocate(ids, Budget(175 * 64, floor=0))
        kept.setdefault(int((counts > 0).sum()), []).append(step)
        observe(policy, {k: k / 174 for k in ids}, group=3)
    spans = {number: (steps[0], len(steps)) for number, steps in kept.items()}
    assert spans == {175: (0, 32), 72: (32, 64), 50: (96, 32), 25: (128, 40)}


def test_drive_first_stage_gives_8_to_each():
    counts = drive().allocate(IDS, Budget(64, floor=0))
    assert sorted(counts.tolist())[-8:] == [8] * 8
    assert drive().allocate(list(range(9)), Budget(72, floor=0)).tolist() == [8] * 9


def test_drive_lets_go_of_a_prompt_that_is_solved():
    policy = drive(phases=[(0.05, 1, 32)])  # 2 of 40
    observe(policy)
    assert np.flatnonzero(policy.allocate(IDS, Budget(64, floor=0))).tolist() == [0, 1]
    for _ in range(20):
        observe(policy, {0: 1.0})
    assert np.flatnonzero(policy.allocate(IDS, Budget(64, floor=0))).tolist() == [1, 2]


def test_drive_does_not_take_a_cold_prompt_for_a_hard_or_a_solved_one():
    policy = drive(phases=[(0.5, 1, 8)])
    observe(policy, {"never": 0.0, "rare": 0.2, "usual": 0.8, "always": 1.0})
    ids = ["always", "cold", "never", "usual"]
    assert policy.allocate(ids, Budget(16, floor=0)).tolist() == [0, 8, 8, 0]
    assert policy.allocate(["cold", "never", "rare", "other"], Budget(16, floor=0)).tolist() == [0, 8, 8, 0]


def test_drive_draws_among_the_kept_where_the_step_has_no_room_for_all():
    policy, met = drive(phases=[(0.25, 1, 16)], seed=2), np.zeros(len(IDS))
    observe(policy)
    for _ in range(60):
        counts = policy.allocate(IDS, Budget(32, floor=0))
        met += counts > 0
        policy.observe(["another"], [1.0])
    assert met[:10].min() > 0
    assert met[10:].max() == 0


def test_drive_spends_the_rest_on_the_kept_prompts_too():
    policy = drive(phases=[(0.1, 1, 8)])
    observe(policy)
    assert policy.allocate(IDS, Budget(64, floor=0)).tolist() == [16] * 4 + [0] * 36
    assert policy.allocate(IDS, Budget(144, floor=2)).tolist() == [18] * 4 + [2] * 36
    counts = policy.allocate(IDS, Budget(64, floor=0, cap=8))  # the cap needs four more: the next hardest
    assert counts.tolist() == [8] * 8 + [0] * 32


@given(
    wants=st.lists(st.integers(2, 12), min_size=1, max_size=10),
    few=st.integers(0, 10),
    costs=st.booleans(),
)
@settings(max_examples=50, deadline=None)
def test_wants_that_add_up_are_met_exactly_in_rollouts_and_in_tokens(wants, few, costs):
    zero = [0] * few
    wanted = np.array([*wants, *zero])
    ids = list(range(len(wanted)))
    total = int(wanted.sum())
    budget = Budget(None, tokens=total, cap=64, floor=0) if costs else Budget(total, floor=0)
    more = {"costs_P": np.ones(len(ids))} if costs else {}
    counts = decided(lambda view: in_proportion(wanted[np.array(view.ids_P)], view), ids, budget, **more)
    assert counts.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("budget", "costs", "number"),
    [
        (Budget(20, floor=0), None, 2),
        (Budget(7, floor=0), None, 1),  # nobody fits: one all the same
        (Budget(20, floor=0, cap=4), None, 5),
        (Budget(22, floor=2), None, 1),  # 2 each, and 6 more for one
        (Budget(None, tokens=160, cap=8, floor=0), 10.0, 2),
        (Budget(None, tokens=280, cap=8, floor=2), 10.0, 2),  # 160 for the floor, 60 more for each
        (Budget(20, tokens=1000, cap=8, floor=0), 10.0, 3),  # two would hold 16 under the cap
    ],
)
def test_a_batch_is_as_large_as_the_budget_has_room_for(budget, costs, number):
    sizes = []

    def decide(view):
        chosen = batch(np.full(len(view.ids_P), 8), view)
        sizes.append(len(chosen))
        return in_proportion(keep_only(np.full(len(view.ids_P), 8), chosen), view)

    decided(decide, list(range(8)), budget, costs_P=None if costs is None else [costs] * 8)
    assert sizes == [number]


def test_what_is_left_of_the_tokens_goes_to_the_wanted_prompts_first():
    wanted = np.array([8, 8, 0, 0, 0])
    for tokens, counts in ((20, [10, 10, 0, 0, 0]), (30, [12, 12, 2, 2, 2])):
        budget = Budget(None, tokens=tokens, cap=12, floor=0)
        found = decided(lambda view: in_proportion(wanted[view.ids_P], view), range(5), budget, costs_P=np.ones(5))
        assert found.tolist() == counts


@pytest.mark.parametrize("build", [brorl, drive], ids=lambda build: build.__name__)
def test_tokens_and_quotas_are_served_too(build):
    costs = np.linspace(10, 40, 12)
    for floor in (0, 2):
        counts = build().allocate(IDS[:12], Budget(None, tokens=1500, cap=16, floor=floor), costs)
        assert 1400 < counts @ costs <= 1500
        quotas = {"math": (60, 64), "code": (0, 40)}
        budget = Budget(96, cap=16, floor=floor, quotas=quotas)
        counts = build().allocate(IDS[:12], budget, domains_P=["math"] * 6 + ["code"] * 6)
        assert counts.sum() == 96
        assert 60 <= counts[:6].sum() <= 64


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: breadth_depth(0, 8), "rollouts=0"),
        (lambda: breadth_depth(8, 0), "group=0"),
        (lambda: lr_scale(0, 1), "batch=0"),
        (lambda: lr_scale(1, float("inf")), "base_batch=inf"),
        (lambda: brorl(group=1.5), "group=1.5"),
        (lambda: drive(phases=[]), r"phases=\[\]: give at least one"),
        (lambda: drive(phases=[(0.5, 8)]), r"phases holds \(0.5, 8\)"),
        (lambda: drive(phases=[(72, 64, 64)]), r"keep=72: use a number in \(0, 1\]"),
        (lambda: drive(phases=[(0.5, 0, 64)]), "steps=0"),
        (lambda: drive(phases=[(0.5, 1, 0)]), "n=0"),
        (lambda: drive(discount=-1), "discount=-1"),
    ],
)
def test_a_bad_setting_is_named(make, text):
    with pytest.raises(InputError, match=text):
        make()
