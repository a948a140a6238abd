"""The metrics of a step, against sums over its groups by hand."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_step import rollouts_of

import budgetalloc as ba
from budgetalloc.beliefs.rewards import KINDS
from budgetalloc.logs.progress import Progress
from budgetalloc.report import as_json, report
from budgetalloc.report.comparison import Side, comparison_of
from budgetalloc.training.log_writer import append
from budgetalloc.training.metrics import MAIN, metrics_of, share_without_spread
from budgetalloc.training.success import Measure, Rule
from budgetalloc.values import mixed_group

rollouts = st.tuples(st.sampled_from(["a", "b", 7]), st.sampled_from([0.0, 1.0, np.nan]))
made = st.lists(rollouts, min_size=1, max_size=6)
rounds_with_hints = st.lists(st.tuples(made, st.booleans()), min_size=1, max_size=4)
KEYS = ("frac_mixed", "frac_all_pass", "frac_all_fail", "frac_single", "frac_tied", "frac_mixed_predicted")


TOTAL = Measure(Rule(), (0.0, 1.0), ("reward",), slope=1.0)


def described(batch, measure=TOTAL, **given):
    return metrics_of(batch, measure, np.zeros(len(batch)), None, **given)


@given(rounds_with_hints)
def test_the_shares_of_groups_are_those_of_their_rollouts_without_a_hint(rounds):
    policy = ba.knapsack()
    policy.observe(["a", "a", 7], [1, 0, 1])
    rows = [(name, reward, hinted) for rows, hinted in rounds for name, reward in rows]
    ids_R, rewards_R, hinted_R = zip(*rows, strict=True)
    batch = rollouts_of(rewards_R, ids_R, belief_R=policy.belief(ids_R))
    batch = replace(batch, hinted_R=np.array(hinted_R))
    metrics = described(batch)
    groups = {}
    for name, reward, hinted in zip(batch.ids_R, batch.rewards_R.tolist(), batch.hinted_R.tolist(), strict=True):
        groups.setdefault(name, [])
        if not hinted:
            groups[name].append(reward)
    met = {name: rewards for name, rewards in groups.items() if rewards}
    scored = {name: [x for x in rewards if not np.isnan(x)] for name, rewards in met.items()}
    scored = {name: rewards for name, rewards in scored.items() if rewards}
    assert batch.first_G.tolist() == [batch.ids_R.index(name) for name in groups]
    if not scored:
        assert not set(KEYS) & set(metrics)
        return
    chances = [mixed_group(policy.belief([name]), [len(x)])[0, 0] * len(x) for name, x in scored.items()]
    several = [rewards for rewards in scored.values() if len(rewards) > 1]
    rollouts = sum(map(len, scored.values()))
    expected = {
        "frac_mixed": sum(len(x) for x in several if len(set(x)) > 1) / rollouts,
        "frac_all_pass": sum(len(x) for x in several if min(x) == 1) / rollouts,
        "frac_all_fail": sum(len(x) for x in several if max(x) == 0) / rollouts,
        "frac_single": sum(len(x) == 1 for x in scored.values()) / rollouts,
        "frac_tied": 0.0,
        "frac_mixed_predicted": sum(chances) / rollouts,
        "prompts": len(groups),
    }
    sizes = list(map(len, met.values()))
    counts = {"count/min": min(sizes), "count/mean": np.mean(sizes), "count/max": max(sizes)}
    if max(sizes) == 1:
        assert not set(counts) & set(metrics)
    else:
        expected |= counts
    assert {key: metrics[key] for key in expected} == pytest.approx(expected)


two_rewards = st.tuples(st.sampled_from("abcd"), st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 0.25, np.nan]))


@settings(max_examples=20, deadline=None)
@given(st.lists(two_rewards, min_size=1, max_size=12).filter(lambda rows: any(x == x for _, _, x in rows)))
def test_metrics_ledger_watch_and_both_reports_tell_one_story(rows):
    """Shares by kind of one step with two reward functions, right and tidy, through everything that shows them."""
    ids, right, tidy = zip(*rows, strict=True)
    scores_RF = np.array([right, tidy]).T
    scores_RF[np.isnan(scores_RF[:, 1])] = np.nan  # neither function scored the rollout
    rewards_R = scores_RF.sum(axis=1)
    success_R = np.where(np.isnan(rewards_R), np.nan, scores_RF[:, 0])
    batch = replace(rollouts_of(rewards_R, ids, success_R=success_R), scores_RF=scores_RF)
    metrics = described(batch, Measure(Rule((0,)), (0.0, 1.0), ("right", "tidy")))
    assert sum(metrics[f"frac_{kind}"] for kind in KINDS) == pytest.approx(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        append(ba.LedgerWriter(path), batch)
        run = report(path, policies=())
    flat = json.loads(as_json(run))
    side = comparison_of(Side(run, Progress()), Side(run, Progress()))["runs"][0]
    for kind in KINDS:
        shares = metrics[f"frac_{kind}"], flat[f"share_{kind}"], side[kind]
        assert shares == pytest.approx([shares[0]] * 3), kind
    without = share_without_spread(batch), flat["share_wasted"], side["wasted"]
    assert without == pytest.approx([sum(metrics[f"frac_{kind}"] for kind in ("all_fail", "all_pass", "tied"))] * 3)


def test_single_rollouts_are_not_without_gradient():
    batch = rollouts_of([1.0, 0.0], ["a", "b"])
    assert share_without_spread(batch) == 0.0
    metrics = described(batch)
    assert [metrics[f"frac_{kind}"] for kind in KINDS] == [0, 0, 0, 0, 1]


def test_explained_is_the_share_of_the_variance_of_rewards_that_was_predicted():
    belief_R = ba.Beta([1.0, 1.0, 3.0, 3.0], [3.0, 3.0, 1.0, 1.0])
    assert described(rollouts_of([0, 0, 1, 1], "abcd", belief_R=belief_R))["explained"] == 0.75
    assert "explained" not in described(rollouts_of([1, 1, 1, 1], "abcd", belief_R=belief_R))


def test_the_main_metrics_are_some_of_all_and_equal_them():
    batch = rollouts_of([1.0, 0.0, 0.0, 1.0], ["a", "a", "b", "c"])
    every, main = described(batch, pool_seen=0.5), described(batch, pool_seen=0.5, every=False)
    assert main.items() <= every.items()
    assert set(main) == MAIN - {"lost"}
    assert len(main) <= 10  # and `fallback` and `seconds`
