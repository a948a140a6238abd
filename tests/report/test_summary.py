"""What the rollouts of a run were spent on: by brute force, by hand, and on a logged run of a real model."""

import gzip
import json
import math
from collections import defaultdict
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import InputError, Ledger, LedgerWriter
from budgetalloc.beliefs.rewards import KINDS
from budgetalloc.cli.__main__ import main
from budgetalloc.report import Report, as_json, report
from budgetalloc.report.replays import unit_rewards

NAN = float("nan")


def log(rows, reward_range=None, **columns):
    """From (step, id, reward) rows."""
    steps, ids, rewards = zip(*rows, strict=True) if rows else ((), (), ())
    frame = pd.DataFrame({"step": steps, "prompt": pd.Series(ids, dtype=object), "reward": rewards}, dtype=object)
    return Ledger.of_frame(frame.assign(**columns), reward_range=reward_range)


def of(rows, reward_range=None, **columns):
    return report(log(rows, reward_range, **columns), policies=())


def of_groups(rewards, **more):
    """Groups of four of the prompt "a", one in each step."""
    return of([(k // 4, "a", reward) for k, reward in enumerate(rewards)], **more)


def brute(rows):
    """Rollouts by kind, from the definition."""
    groups = defaultdict(list)
    for step, name, reward in rows:
        if reward == reward:
            groups[step, name].append(reward)
    counted = dict.fromkeys(KINDS, 0)
    for rewards in groups.values():
        kind = "mixed" if len(set(rewards)) > 1 else {0.0: "all_fail", 1.0: "all_pass"}.get(rewards[0], "tied")
        counted["single" if len(rewards) == 1 else kind] += len(rewards)
    return counted


ROWS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["a", "b", 7]), st.sampled_from([0.0, 1.0, 0.5, NAN])), min_size=1
)


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_every_rollout_is_counted_once_under_its_kind(rows):
    if all(np.isnan(reward) for _, _, reward in rows):
        rows = [*rows, (0, "a", 1.0)]
    run, expected = of(rows), brute(rows)
    assert {kind: round(getattr(run, f"share_{kind}") * run.rollouts) for kind in KINDS} == expected
    assert run.by_step[list(KINDS)].sum().to_dict() == expected
    wasted = expected["all_fail"] + expected["all_pass"] + expected["tied"]
    assert round(run.share_wasted * run.rollouts) == run.by_prompt["wasted"].sum() == wasted
    assert run.share_as_predicted <= run.share_single
    assert run.rollouts + run.unscored == len(rows)
    assert run.by_prompt["rollouts"].sum() == run.rollouts == sum(row["rollouts"] for row in run.over_time(3))
    never = {x for x in {r[1] for r in rows} if {r[2] for r in rows if r[1] == x and r[2] == r[2]} == {0.0}}
    assert run.never_solved == len(never)
    assert set(run.by_prompt.index[run.by_prompt["success"] == 0]) == never


def test_tokens_are_counted_where_lengths_are_known():
    rows = [(0, "a", 0.0), (0, "a", 0.0), (0, "b", 0.0), (0, "b", 1.0)]
    run = of(rows, length=[5, -1, 7, 8])
    assert (run.tokens, run.wasted_tokens, run.unmeasured, run.tokens_per_success) == (20, 5, 1, 20.0)
    assert (of(rows).tokens, of(rows).wasted_tokens) == (None, None)


@pytest.mark.parametrize(
    ("ledger", "options", "said"),
    [
        (log([(0, "a", -1.0)]), {"reward_range": (0, 1)}, "reward of -1, outside reward_range"),
        (log([(0, "a", NAN)]), {}, "no rollout with a reward"),
        (log([]), {}, "no row that could be read"),
        (log([(0, "a", 1.0)]), {"reward_range": (1, 0)}, "reward_range"),
        ("no such file", {"policies": ["adaptiv"]}, r"'adaptiv' is unknown, did you mean adaptive\?"),
    ],
)
def test_refusals(ledger, options, said):
    with pytest.raises(InputError, match=said):
        report(ledger, **{"policies": ()} | options)


def test_a_last_step_with_few_rollouts_is_no_run_of_its_own():
    rows = [(s, x, float(s == 9)) for s in range(10) for x in range(1 if s == 9 else 50) for _ in range(2)]
    runs = of(rows).over_time(9)
    assert [(row["first"], row["last"]) for row in runs] == [*((s, s) for s in range(8)), (8, 9)]
    assert len(of(rows).over_time(1)) == 1


# Success, rewards and their range


@pytest.mark.parametrize(
    ("rewards", "success", "kind", "never"),
    [
        ([1.0] * 4, [0] * 4, "all_fail", 1),  # a prompt that always earns the format's 1 of 2
        ([1, 0, 1, 1], [0] * 4, "mixed", 1),  # rewards decide whether there is a gradient
        ([1.0] * 4, [0, 1, 0, 1], "tied", 0),
    ],
)
def test_solved_is_of_success_and_mixed_is_of_rewards(rewards, success, kind, never):
    run = of_groups(rewards, success=success, reward_range=(0, 2))
    assert (run.kinds, run.never_solved, run.always_solved) == ({kind: 1.0}, never, 0)
    assert (run.reward, run.success) == (np.mean(rewards), np.mean(success))


def test_the_range_of_the_ledger_is_used_and_one_is_found_with_a_note():
    own = of_groups([-1] * 4 + [3] * 4, reward_range=(-1, 3))
    assert (own.kinds, own.reward_low, own.reward_high, own.notes) == ({"all_fail": 0.5, "all_pass": 0.5}, -1, 3, {})
    found = of_groups([-1] * 4 + [2] * 4 + [0.5] * 4)
    assert (found.reward_low, found.reward_high, found.graded, found.success) == (-1, 2, True, 0.5)
    assert found.notes == {"rewards from -1 to 2 taken as the range from failure to success": 12}
    judged = of_groups([2] * 4 + [5] * 4)  # the lowest score is failure, not 0
    assert (judged.reward_low, judged.success) == (2, 0.5)
    given = report(log([(0, "a", -1.0), (0, "a", 1.0)]), policies=(), reward_range=(-1, 3))
    assert (given.success, given.graded) == (0.25, True)


def test_a_replay_plays_success_and_the_callers_log_stays_as_it_was():
    one = log([(0, "a", x) for x in (1, 2, 1, 2)], reward_range=(0, 2), success=[0, 1, 0, 1])
    assert unit_rewards(one, (0.0, 2.0)).frame.reward.tolist() == [0, 1, 0, 1]
    assert one.frame.reward.tolist() == [1, 2, 1, 2]


def test_a_reward_that_became_constant_is_a_doubt(tmp_path):
    rng, writer = np.random.default_rng(0), LedgerWriter(tmp_path / "ledger.jsonl")
    for step in range(30):
        rewards = rng.integers(0, 2, 8) if step < 15 else [0] * 8
        writer.append(step, [f"p{at // 4}" for at in range(8)], rewards, [4] * 8, [0.5] * 8, [4] * 8)
    (doubt,) = report(tmp_path / "ledger.jsonl", policies=()).doubts
    assert doubt.startswith("The reward function of the log varied, and is 0 for every rollout since step 15")


# Predictions


def singles(predicted=None, steps=12, rates=(0.0, 1.0, 0.5, 0.5)):
    """One rollout of each prompt in each step; the policy predicts `predicted` of each prompt, or nothing."""
    rng = np.random.default_rng(0)
    rewards_R = (rng.random(steps * len(rates)) < np.tile(rates, steps)) * 1.0
    rows = [(k // len(rates), f"p{k % len(rates)}", reward) for k, reward in enumerate(rewards_R)]
    return log(rows, predicted=NAN if predicted is None else np.tile(predicted, steps))


def test_single_rollouts_that_were_as_predicted_are_a_part_of_the_single_rollouts():
    """By hand: predicted 0.05, 0.95, 0.5, 0.5 of success rates 0, 1, 1/2, 1/2: the first two were as predicted."""
    run = report(singles([0.05, 0.95, 0.5, 0.5]), policies=())
    assert (run.kinds, run.share_wasted, run.share_as_predicted) == ({"single": 1}, 0, 0.5)
    assert run.surprise == pytest.approx(0.275)
    assert run.success_brier == pytest.approx((0.05**2 + 0.5**2) / 2)
    assert run.success_logged == 48
    assert run.explained == pytest.approx(1 - run.success_brier / run.success_brier_constant)
    assert run.success_brier_constant == pytest.approx(singles().frame.reward.var(ddof=0))
    assert [(row["rollouts"], row["predicted"]) for row in run.success_deciles] == [
        (12, pytest.approx(0.05)), (24, pytest.approx(0.5)), (12, pytest.approx(0.95)),
    ]  # fmt: skip
    assert math.isnan(report(singles([0.5] * 4, rates=[1.0] * 4), policies=()).explained)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abcd"), st.floats(0, 1)), min_size=1, max_size=60))
def test_without_a_logged_prediction_the_reports_own_belief_predicts(rows):
    """A step at a time, as in training; also of prompts that come several times in a step."""
    run, belief, expected = of(rows, (0.0, 1.0)), ba.BetaEstimator(discount=0.9), []
    for _, here in pd.DataFrame(rows, columns=["step", "prompt", "reward"]).groupby("step"):
        expected += np.abs(
            here.reward
            - belief.belief(sorted(set(here.prompt))).mean[np.searchsorted(sorted(set(here.prompt)), here.prompt)]
        ).tolist()
        belief.observe(here.prompt.tolist(), here.reward)
        belief.tick()
    assert run.success_logged == 0
    assert run.surprise == pytest.approx(np.mean(expected))
    assert run.success_brier == pytest.approx(np.mean(np.square(expected)))
    assert run.share_as_predicted <= np.mean(np.array(expected) <= 0.1 + 1e-9)


def test_single_rollouts_near_the_reports_own_prediction_are_as_predicted():
    frame = singles().frame
    run, belief, expected = report(singles(), policies=()), ba.BetaEstimator(discount=0.9), []
    for _, rows in frame.groupby("step"):
        expected += np.abs(rows.reward - belief.belief(rows.prompt.tolist()).mean).tolist()
        belief.observe(rows.prompt.tolist(), rows.reward)
        belief.tick()
    assert run.share_as_predicted == np.mean(np.array(expected) <= 0.1) > 0.2


def test_a_bad_prediction_is_a_concern_only_once_prompts_return():
    once = [(step, f"p{step}-{at}", 1.0 if at < 7 else 0.0) for step in range(4) for at in range(8)]
    assert of(once, predicted=0.2).explained < 0
    assert of(once, predicted=0.2).verdict == "Healthy."
    twice = [(step, name.partition("-")[2], reward) for step, name, reward in once]
    assert "predicted worse than by a constant" in of(twice, predicted=0.2).verdict


def test_forecasts_of_prompts_with_fixed_rates_are_calibrated():
    rng = np.random.default_rng(0)
    rate_P = rng.beta(0.5, 0.5, 400)
    steps, ids = np.repeat(np.arange(30), 400 * 4), np.tile(np.repeat(np.arange(400), 4), 30)
    run = of(list(zip(steps, ids.tolist(), (rng.random(len(ids)) < rate_P[ids]) * 1.0, strict=True)))
    for row in run.success_deciles:
        assert row["success"] == pytest.approx(row["predicted"], abs=0.08)
    assert run.explained > 0.3


# Costs


def costly(path, costs=True, steps=20):
    """A ledger whose rollouts cost 100 at first and 60 at the end, and of which every second one is a success."""
    writer = LedgerWriter(path)
    for step in range(steps):
        cost = 100.0 - 40 * step / (steps - 1)
        ids, rewards = [f"p{at}" for at in range(8)], [0, 1] * 4
        more = {"costs_R": [cost] * 8} if costs else {}
        writer.append(step, ids, rewards, [10] * 8, [0.5] * 8, [1] * 8, success_R=rewards, **more)
    return path


def test_the_cost_of_a_success_over_time(tmp_path):
    run = report(costly(tmp_path / "ledger.jsonl"), policies=())
    assert (run.tokens_per_success, run.cost_per_success) == (20.0, pytest.approx(160.0))
    time = run.over_time(20)
    assert [time[0]["cost_per_success"], time[-1]["cost_per_success"]] == pytest.approx([200.0, 120.0])
    plain = report(costly(tmp_path / "plain.jsonl", costs=False), policies=())
    assert math.isnan(plain.cost_per_success)
    assert plain.tokens_per_success == 20.0


# The verdict

HALF = {"a": [0, 1, 1, 1], "b": [0, 1, 0, 0]}
WASTED = {"a": [0, 0, 0, 0], "b": [0, 1, 0, 0], "c": [1, 1, 1, 1]}


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([HALF] * 20, "Healthy."),
        ([WASTED] * 20, "Look at 66.7 % of the rollouts without a gradient."),
        ([{"a": [1, 1, 1, 0]}] * 10 + [{"a": [0, 0, 0, 1]}] * 10, "success, which fell from 0.75 to 0.25."),
    ],
)
def test_the_verdict(groups, said):
    rows = [(step, name, x) for step, of in enumerate(groups) for name, rewards in of.items() for x in rewards]
    assert of(rows).verdict.endswith(said)


def test_what_the_log_leaves_open_comes_first(tmp_path):
    rows = "".join(f"{k // 8},{k},{k % 4 == 0:d}\n" for k in range(32))
    (tmp_path / "c.csv").write_text("step,id,reward\n" + rows)
    verdict = report(tmp_path / "c.csv", policies=()).verdict
    assert verdict.startswith("Look at what the log leaves open (CAREFUL)")


# JSON


def test_the_json_has_the_fields_of_the_report_and_null_for_unknown_numbers(tmp_path):
    path = costly(tmp_path / "ledger.jsonl", costs=False)
    text = as_json(report(path, policies=()))
    flat = json.loads(text)
    more = {"version", "verdict", "success_belief", "over_time", "limits"}
    assert set(flat) == {field.name for field in fields(Report)} - {"by_step", "by_prompt"} | more
    assert sum(flat[f"share_{kind}"] for kind in KINDS) == pytest.approx(1)
    assert "NaN" not in text
    assert (flat["cost_per_success"], flat["policies"], flat["why_not"]) == (None, None, "no policy was named")
    assert as_json(report(Ledger.read(path), policies=())) == text


def test_the_most_wasted_prompts_come_first():
    run = of([(0, "a", 0), (0, "a", 0), *[(0, "b", 0)] * 5, (0, "c", 0), (0, "c", 1)])
    assert [(row["id"], row["wasted"], row["success"]) for row in run.most_wasted] == [("b", 5, 0.0), ("a", 2, 0.0)]


def test_decisions_are_counted_beside_the_trainers_steps():
    """Two generation batches in one optimizer step are two decisions."""
    run = of_groups([0, 1] * 8, trainer_step=np.repeat([0, 1], 8))
    assert (run.steps, run.trainer_steps) == (4, 2)


def test_a_resolution_counts_near_ties_as_equal():
    rewards = [1.0, 0.999, 1.0, 1.0] + [0.2, 0.9, 0.5, 0.2] + [0.0] * 4 + [0.3, 0.301, 0.3, 0.302]
    rows = [(at // 4, "a", reward) for at, reward in enumerate(rewards)]
    exact, near = (report(log(rows), policies=(), resolution=resolution) for resolution in (0.0, 0.01))
    assert exact.kinds == {"mixed": 0.75, "all_fail": 0.25}
    assert near.kinds == {"mixed": 0.25, "all_fail": 0.25, "tied": 0.5}
    assert (exact.share_wasted, near.share_wasted) == (0.25, 0.75)
    assert near.reward == exact.reward
    assert any("0.01" in text for text in near.notes)
    with pytest.raises(InputError, match="resolution"):
        report(log(rows), policies=(), resolution=-1)


@pytest.mark.parametrize(
    "torn", ["[1", '{"step": 0, "prompt_id": "a", "reward": "x"}', '{"step": 0, "reward": 1}', None]
)
def test_half_a_log_is_not_healthy(tmp_path, torn, capsys):
    path = tmp_path / "log.jsonl"
    rows = [{"step": k // 4, "prompt_id": "a", "reward": k % 2} for k in range(40)]
    if torn is None:
        torn = '{"step": 0, "prompt_id": "a", "reward": null}'
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert report(path, policies=()).verdict == "Healthy."
    path.write_text("".join(f"{json.dumps(row)}\n{torn}\n" for row in rows))
    verdict = report(path, policies=()).verdict
    assert verdict.startswith("Look at 40 of 80 rows, which are lost (")
    for command in (["replay", str(path), "--seeds", "1"], ["report", str(path), str(path)]):
        main(command)
        assert "Look at 40 of 80 rows, which are lost (" in capsys.readouterr().out
    path.write_bytes(gzip.compress(path.read_bytes())[:-40])
    assert "the file that ends early" in report(path.rename(f"{path}.gz"), policies=()).verdict
