"""DRIVE: phases, and what is kept in them."""

from functools import partial

import numpy as np
import policy_steps

from budgetalloc import Budget
from budgetalloc.methods.drive import drive

IDS = list(range(40))


RATES = {k: k / 39 for k in IDS}  # 0 is the hardest
observe = partial(policy_steps.observe, group=78)


def test_drive_goes_through_its_phases_and_stays_in_the_last():
    policy, budget = drive(phases=[(1.0, 2, 8), (0.4, 3, 16), (0.1, 1, 32)]), Budget(64, floor=0)
    sizes, hardest = [], []
    for _ in range(8):
        counts = policy.allocate(IDS, budget)
        sizes.append(int(counts.max()))
        hardest.append(int(np.flatnonzero(counts).max()))
        observe(policy, RATES)
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


def test_drive_leaves_out_a_prompt_that_is_solved():
    policy = drive(phases=[(0.05, 1, 32)])  # 2 of 40
    observe(policy, RATES)
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
    observe(policy, RATES)
    for _ in range(60):
        counts = policy.allocate(IDS, Budget(32, floor=0))
        met += counts > 0
        policy.observe(["another"], [1.0])
    assert met[:10].min() > 0
    assert met[10:].max() == 0


def test_drive_spends_the_rest_on_the_kept_prompts_too():
    policy = drive(phases=[(0.1, 1, 8)])
    observe(policy, RATES)
    assert policy.allocate(IDS, Budget(64, floor=0)).tolist() == [16] * 4 + [0] * 36
    assert policy.allocate(IDS, Budget(144, floor=2)).tolist() == [18] * 4 + [2] * 36
    counts = policy.allocate(IDS, Budget(64, floor=0, cap=8))  # the cap needs four more: the next hardest
    assert counts.tolist() == [8] * 8 + [0] * 32
