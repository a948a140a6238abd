"""Policies compared on a log: counts by hand, bounds that hold, the same for any number of processes."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

import budgetalloc as ba
from budgetalloc import BudgetError, InputError, Replay, testing
from budgetalloc.methods.table import METHODS
from budgetalloc.offline.comparison import FIGURES, compare, comparisons, summarise
from budgetalloc.offline.intervals import interval
from budgetalloc.policies import Needs, Policy

LOG = testing.log_of(testing.three_kinds(12), 24, prompts=6, group=8)  # 24 steps of 48 rollouts, 12 visits of each
KINDS = {"uniform": ba.uniform(), "knapsack": ba.knapsack}


def fixed(counts):
    """The same counts at each step, in the order of the ids."""

    def decide(view):
        return np.array([counts[at] for at in view.ids_P])

    return Policy("fixed", decide, ba.BetaEstimator(), needs=Needs(candidates="all"))


def test_a_uniform_replay_of_the_logs_own_size_is_the_log():
    """Every logged rollout is drawn once and none is modelled, so that figures are those of the log."""
    (row,) = compare({"uniform": ba.uniform()}, LOG, 48, seeds=[0], prompts=12).reset_index().to_dict("records")
    assert (row["policy"], row["seeds"], row["steps"], row["rollouts"]) == ("uniform", 1, 24, 24 * 48)
    run = list(comparisons({"uniform": ba.uniform()}, LOG, 48, seeds=[0], prompts=6, workers=1))
    passed = LOG.frame.groupby(["step", "prompt"]).reward.sum()
    mixed = ((passed > 0) & (passed < 8)).sum()
    assert sum(x["mixed"] for x in run) == mixed
    assert np.mean([x["mixed_rollouts"] for x in run]) == pytest.approx(mixed / len(passed))
    assert np.mean([x["reward"] for x in run]) == pytest.approx(LOG.frame.reward.mean())
    for seen in run:
        assert (seen["drawn"], seen["modelled"], seen["generated"]) == (1, 0, 48)
    assert [x["step"] for x in run] == list(range(1, 25))


def test_a_run_is_a_simulation_with_its_seed():
    budget = ba.Budget(64, floor=2, cap=16)
    run = comparisons({"knapsack": ba.knapsack()}, Replay(LOG, seed=8), budget, seeds=[3], steps=9, prompts=6)
    alone = list(ba.simulate(ba.knapsack(seed=3), Replay(LOG, seed=3), budget, 9, prompts=6))
    assert [{name: seen[name] for name in alone[0]} for seen in run] == alone


def test_figures_by_hand():
    """Of 6, 5 and 1 rollouts of three prompts that were logged four times each, 2, 1 and none are modelled."""
    rewards = [0, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0]
    frame = pd.DataFrame({"step": 0, "prompt": np.repeat([0, 1, 2], 4), "reward": rewards})
    log = ba.Ledger.of_frame(frame)
    policy = fixed({0: 6, 1: 5, 2: 1})
    (seen,) = comparisons({"fixed": policy}, log, ba.Budget(12, floor=0, min_group=1), seeds=[7], steps=1)
    assert (seen["generated"], seen["prompts"], seen["seed"], seen["policy"]) == (12, 3, 7, "fixed")
    assert seen["modelled"] == pytest.approx(3 / 12)
    assert seen["drawn"] == pytest.approx(9 / 12)
    # 1's logged rewards are all 1, and its fifth may be 0; a group of one is never mixed
    assert seen["mixed_rollouts"] in (pytest.approx(6 / 12), pytest.approx(11 / 12))


@pytest.mark.slow
def test_any_number_of_processes_gives_the_same():
    policies = KINDS | {"partial": partial(ba.knapsack, belief="mean")}
    one, more = (list(comparisons(policies, LOG, 64, seeds=[3, 0, 5], steps=4, workers=n)) for n in (1, 3))
    assert one == more
    assert [(x["policy"], x["seed"], x["step"]) for x in one] == [
        (name, seed, step) for name in policies for seed in (3, 0, 5) for step in range(1, 5)
    ]


def test_policies_and_worlds_of_the_caller_do_not_change():
    policy, world = ba.knapsack(), Replay(LOG, seed=9)
    policy.observe([0, 0], [1, 0])
    before = policy.state_dict()
    run = list(comparisons({"one": policy}, world, 48, seeds=[0], steps=6, workers=1))
    assert testing.same_state(before, policy.state_dict())
    assert (world.drawn, world.sweep) == (0, 0)
    assert run == list(comparisons({"one": policy}, LOG, 48, seeds=[0], steps=6, workers=1))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_policy_with_another_seed_is_one_built_with_it(method):
    """`comparisons` copies a Policy and changes its seed: for each method the same as building it so."""
    given, function = (
        list(comparisons({"x": x}, LOG, ba.Budget(48, floor=0), seeds=[3], steps=4, workers=1))
        for x in (method.build(seed=0), method.build)
    )
    assert given == function
    assert all(seen["generated"] <= 48 for seen in given)


def test_a_floor_that_all_on_offer_cannot_have_is_one_for_those_that_get_any():
    budget = ba.Budget(16, floor=4, min_group=2)
    run = list(comparisons({"all": ba.thompson, "batch": ba.uniform}, LOG, budget, seeds=[0], steps=6, prompts=4))
    assert all(seen["generated"] == 16 for seen in run)
    assert all(seen["prompts"] <= 4 for seen in run)
    fixed_to_batch = replace(ba.uniform(), needs=Needs(candidates=1))
    with pytest.raises(BudgetError):  # in the batch it is the caller's own mistake
        list(comparisons({"batch": fixed_to_batch}, LOG, ba.Budget(16, floor=0, cap=2), steps=2, prompts=4))


@pytest.mark.slow
def test_the_table_is_the_mean_over_steps_and_its_intervals_are_over_seeds():
    run = list(comparisons(KINDS, LOG, 64, seeds=range(4), steps=18))
    table = pd.DataFrame(summarise(run)).set_index("policy")
    assert table.equals(compare(KINDS, LOG, 64, seeds=range(4), steps=18, workers=2))
    assert list(table.index) == ["uniform", "knapsack"]
    names = {x + suffix for x in FIGURES for suffix in ("", "_low", "_high", "_diff", "_diff_low", "_diff_high")}
    assert set(table.columns) == {"seeds", "steps", "rollouts"} | names
    frame = pd.DataFrame(run)
    for figure in FIGURES:
        seeds = frame.groupby(["policy", "seed"])[figure].mean().unstack("seed").loc[["uniform", "knapsack"]]
        assert table[figure].to_numpy() == pytest.approx(seeds.mean(axis=1).to_numpy())
        assert table[f"{figure}_diff"]["uniform"] == 0
        paired = (seeds.loc["knapsack"] - seeds.loc["uniform"]).to_numpy()
        low, high = interval(paired)
        assert table.loc["knapsack", [f"{figure}_diff", f"{figure}_diff_low", f"{figure}_diff_high"]].to_numpy(
            float
        ) == pytest.approx([paired.mean(), low, high])


def test_progress_counts_ended_runs():
    calls = []
    run = comparisons(KINDS, LOG, 48, seeds=[0, 1], steps=2, workers=2, progress=lambda *x: calls.append(x))
    next(run)
    assert calls == [(1, 4)]
    run.close()  # a caller that has seen enough
    assert len(list(comparisons(KINDS, LOG, 48, seeds=[0, 1], steps=2, progress=lambda *x: calls.append(x)))) == 8
    assert calls[1:] == [(k, 4) for k in range(1, 5)]


def test_steps_and_prompts_are_the_logs_own():
    run = list(comparisons({"uniform": ba.uniform()}, LOG, 100, seeds=[0]))
    assert (len(run), run[0]["prompts"]) == (24 * 48 // 100, 12)
    with pytest.raises(
        InputError, match=r"steps=13: 13 steps of 100 rollouts are 1300 rollouts, and the log has 1152.*steps=12"
    ):
        comparisons({"uniform": ba.uniform()}, LOG, 100, steps=13)


def test_the_signal_of_graded_rewards_is_their_variance():
    """0.45 and 0.55 have a standard deviation of 0.05, so the signal is 4 * 0.05^2 = 0.01, not 4 p (1-p) = 1."""
    rewards_R = np.tile([0.45, 0.55], 32)
    step_R, ids_R = np.repeat(np.arange(4), 16), ["a", "a", "b", "b"] * 16
    log = ba.Ledger.of_frame(pd.DataFrame({"step": step_R, "prompt": ids_R, "reward": rewards_R}))
    seen = next(iter(comparisons({"uniform": ba.uniform()}, log, 8, seeds=[0], workers=1)))
    assert seen["signal"] == pytest.approx(0.01)
