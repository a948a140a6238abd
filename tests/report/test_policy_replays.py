"""Policies on a log with its own budget: what is held back for them, and figures known by hand."""

import numpy as np
import pandas as pd
import pytest

from budgetalloc import InputError, Ledger
from budgetalloc.offline.comparison import FIGURES
from budgetalloc.report.log_scan import measure
from budgetalloc.report.policy_replays import first_steps, replay, unit_rewards


def log(passed_SP, n=4, first=0):
    """Step s rolls every prompt out n times, of which `passed_SP[s][p]` pass."""
    cells = [(first + s, p, passed) for s, row in enumerate(passed_SP) for p, passed in enumerate(row)]
    rows = [(step, p, float(k < passed)) for step, p, passed in cells for k in range(n)]
    steps, ids, rewards = zip(*rows, strict=True)
    return Ledger.of_frame(pd.DataFrame({"step": steps, "prompt": ids, "reward": rewards}))


HALF = log([[0, 4, 2, 2]] * 6)


def run(names, **options):
    return replay(HALF, names, measure(HALF), workers=1, **options)


def test_uniform_draws_the_log_itself():
    replayed = run(["uniform"], seeds=[0, 1])
    row = replayed.rows[0]
    assert (replayed.steps, replayed.rollouts, replayed.prompts, replayed.seeds) == (6, 16, 4, 2)
    assert (row["mixed_rollouts"], row["mixed"], row["reward"], row["modelled"]) == (0.5, 2, 0.5, 0)
    assert row["mixed_rollouts_low"] == row["mixed_rollouts_high"] == 0.5


def test_the_signal_is_that_of_the_prompts_that_got_rollouts():
    """Two of four prompts pass half of the time, the others always or never: 4 p (1-p) is 1, 1, 0 and 0."""
    uniform, adaptive = run(["uniform", "adaptive"], seeds=[0, 1, 2]).rows
    assert uniform["signal"] == pytest.approx(0.5)
    assert uniform["signal_diff"] == 0
    assert adaptive["signal"] > 0.6
    assert adaptive["signal_diff"] == pytest.approx(adaptive["signal"] - 0.5)


def test_adaptive_may_have_groups_of_one_and_the_others_may_not():
    assert [row["min_group"] for row in run(["thompson", "adaptive"], seeds=[0], steps=1).rows] == [2, 1]


def test_adaptive_draws_groups_of_one_where_rollouts_are_few():
    """60 rollouts for 60 prompts that pass half of the time: pairs would be mixed half of the time, ones never are."""
    few = log([[(step + p) % 2 for p in range(60)] for step in range(4)], n=1)
    row = replay(few, ["adaptive"], measure(few), seeds=[0, 1], workers=1).rows[0]
    assert row["mixed_rollouts"] < 0.35


def test_one_seed_has_no_interval():
    row = run(["uniform"], seeds=[3]).rows[0]
    assert all(np.isnan(row[f"{figure}_low"]) for figure in FIGURES)


def test_policies_that_generate_more_have_the_same_rollouts():
    assert run(["uniform", "dapo"], seeds=[0]).rows[1]["reward"] >= 0


def test_progress_counts_all_runs():
    seen = []
    run(["uniform", "knapsack"], seeds=[0, 1], steps=1, progress=lambda *args: seen.append(args))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_more_steps_than_the_log_has_are_refused():
    with pytest.raises(InputError, match="steps"):
        run(["uniform"], seeds=[0], steps=7)


def test_the_first_whole_steps_are_kept():
    whole = log([[1, 1]] * 12)  # 8 rollouts a step
    kept = first_steps(whole, 44)
    assert (len(kept), kept.frame.step.max()) == (40, 4)
    assert len(first_steps(whole, 1)) == 8  # one step at least
    assert first_steps(whole) is whole


def test_rewards_are_mapped_to_one_range():
    one = log([[0, 4]])
    one.frame["reward"] = one.frame["success"] = one.frame["reward"] * 4 - 2
    assert set(unit_rewards(one, (-2, 2)).frame.reward) == {0, 1}
    assert set(one.frame.reward) == {-2, 2}  # the caller's log stays as it was
