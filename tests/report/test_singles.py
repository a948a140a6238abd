"""The report on a run in single rollouts, as adaptive() makes it, says as much as that on a run in groups."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import budgetalloc as ba
from budgetalloc import Ledger
from budgetalloc.report import as_html, as_json, as_text, report
from budgetalloc.report.findings import headline, singles_sentence
from budgetalloc.report.log_scan import measure

NAN = float("nan")


def singles(predicted=None, steps=12, rates=(0.0, 1.0, 0.5, 0.5)):
    """One rollout of each prompt in each step; the policy predicts `predicted` of each prompt, or nothing."""
    rng = np.random.default_rng(0)
    ids_R = [f"p{k}" for k in range(len(rates))] * steps
    rewards_R = (rng.random(len(ids_R)) < np.tile(rates, steps)) * 1.0
    predicted_R = np.full(len(ids_R), NAN) if predicted is None else np.tile(predicted, steps)
    step_R = np.repeat(np.arange(steps), len(rates))
    columns = {"step": step_R, "prompt": ids_R, "reward": rewards_R, "length": 10, "predicted": predicted_R}
    return Ledger.of_frame(pd.DataFrame(columns))


@pytest.fixture(scope="module")
def adaptive():
    """A ledger as adaptive() in a trainer writes it: 40 prompts, of which half are never solved."""
    rates_P = np.concatenate([np.zeros(20), np.linspace(0.1, 1, 20)])
    policy, rng = ba.adaptive(), np.random.default_rng(0)
    columns = [[] for _ in range(5)]
    for step in range(60):
        counts_P = policy.allocate(range(40), ba.Budget(20, floor=0, cap=8, min_group=1))
        ids_R = np.repeat(np.arange(40), counts_P)
        predicted_R = policy.belief(ids_R).mean
        rewards_R = (rng.random(20) < rates_P[ids_R]) * 1.0
        policy.observe(ids_R, rewards_R)
        for column, values in zip(
            columns, (np.full(20, step), ids_R, rewards_R, np.full(20, 9), predicted_R), strict=True
        ):
            column.extend(np.asarray(values).tolist())
    names = ("step", "prompt", "reward", "length", "predicted")
    return Ledger.of_frame(pd.DataFrame(dict(zip(names, columns, strict=True))))


def test_single_rollouts_that_were_as_predicted_are_a_part_of_the_single_rollouts():
    """By hand: predicted 0.05, 0.95, 0.5, 0.5 of success rates 0, 1, 1/2, 1/2: the first two were as predicted."""
    waste = measure(singles([0.05, 0.95, 0.5, 0.5]))
    assert waste.shares() == {"mixed": 0, "all_fail": 0, "all_pass": 0, "tied": 0, "single": 1}
    assert (waste.wasted, waste.wasted_tokens, waste.as_predicted) == (0, 0, 24)
    assert waste.wasted_P.tolist() == [0, 0, 0, 0]
    assert waste.forecast.surprise == pytest.approx(0.275)
    assert waste.forecast.brier == pytest.approx((0.05**2 + 0.5**2) / 2)
    assert waste.forecast.logged == 48
    assert headline(waste) == "Every rollout was a single rollout: there is no group whose rewards could be equal."
    assert singles_sentence(waste).startswith("100.0 % of the rollouts were single rollouts")
    assert singles_sentence(waste).endswith("In 50.0 % of all rollouts it was at most 0.1, so their gradient is small.")


def test_without_a_logged_prediction_the_reports_own_belief_predicts():
    log = singles()
    waste, belief, expected = measure(log), ba.BetaEstimator(discount=0.9), []
    for step in range(12):
        rows = np.flatnonzero(log.frame.step.to_numpy() == step)
        ids = [log.frame.prompt.tolist()[at] for at in rows.tolist()]
        expected += np.abs(log.frame.reward.to_numpy()[rows] - belief.belief(ids).mean).tolist()
        belief.observe(ids, log.frame.reward.to_numpy()[rows])
        belief.tick()
    assert waste.forecast.logged == 0
    assert waste.forecast.surprise == pytest.approx(np.mean(expected))
    assert waste.forecast.brier == pytest.approx(np.mean(np.square(expected)))
    assert waste.as_predicted == np.sum(np.array(expected) <= 0.1) > 0.2 * waste.rollouts


def test_what_is_explained_is_the_share_of_the_variance():
    waste = measure(singles([0.0, 1.0, 0.5, 0.5]))
    rewards_R = singles().frame.reward.to_numpy()
    assert waste.forecast.explained == pytest.approx(1 - 0.5 * 0.25 / rewards_R.var())
    constant = measure(singles([0.5] * 4)).forecast
    assert constant.explained == pytest.approx(1 - 0.25 / rewards_R.var())
    assert np.isnan(measure(singles([0.5] * 4, rates=[1.0] * 4)).forecast.explained)


def test_groups_of_any_size_are_forecast():
    """Twelve rollouts of a prompt whose success the policy predicted as 1/4, in groups of three."""
    ids_R, rewards_R = ["a"] * 12, np.array([0, 0, 1.0] * 4)
    frame = pd.DataFrame({"step": np.repeat(np.arange(4), 3), "prompt": ids_R, "reward": rewards_R, "predicted": 0.25})
    waste = measure(Ledger.of_frame(frame))
    assert waste.forecast.surprise == pytest.approx((2 * 0.25 + 0.75) / 3)
    assert waste.shares()["mixed"] == 1


def test_the_report_of_an_adaptive_run_names_signal_prediction_and_prompts(adaptive):
    run = report(adaptive, policies=["uniform", "adaptive"], seeds=[0], workers=1)
    text = " ".join(as_text(run, 100).split())
    flat = json.loads(as_json(run))
    assert (
        flat["share_single"]
        == np.mean(adaptive.frame.groupby(["step", "prompt"]).prompt.transform("size").to_numpy() == 1)
        > 0.7
    )  # as the ledger counts them
    assert 0.1 < flat["share_as_predicted"] < flat["share_single"]
    assert 0 < flat["explained"] < 1
    assert f"The prediction explained {100 * flat['explained']:.1f} % of the variance of success" in text
    assert f"Mean surprise {flat['surprise']:.2f}" in text
    assert "predicted by the policy of the run" in text
    assert "could not predict anything" not in text
    assert "Never solved: 20 of 40 prompts" in text
    assert "Sometimes solved:" in text
    assert flat["most_wasted"][0]["wasted"] > 0
    assert len(flat["success_deciles"]) > 3
    assert "surprise" in text.split("OVER TIME")[1].split("PROMPTS")[0]
    assert "were single rollouts, the only one of their prompt" in as_html(run)


def test_a_policy_of_single_rollouts_is_not_judged_by_mixed_groups(adaptive):
    run = report(adaptive, policies=["uniform", "adaptive"], seeds=[0, 1], workers=1)
    text = as_text(run, 120)
    row = next(line for line in text.splitlines() if line.startswith("  adaptive"))
    assert row.split()[:3] == ["adaptive", "-", "-"]
    assert row.split()[3] != "-"  # the signal
    page = as_html(run)
    assert '<td class="name">adaptive</td><td>-</td><td>-</td><td>' in page
    assert page.count("<h3>Rollouts in mixed groups</h3>") == page.count("<h3>Signal") == 1


def test_no_policy_is_compared_with_the_mixed_groups_of_single_rollouts(adaptive):
    run = report(adaptive, policies=["adaptive", "uniform"], seeds=[0], workers=1)
    row = next(line for line in as_text(run, 120).splitlines() if line.startswith("  uniform"))
    assert row.split()[3] == "-"
    alone = as_html(report(adaptive, policies=["adaptive"], seeds=[0], workers=1))
    assert "<h3>Rollouts in mixed groups</h3>" not in alone
    assert "<h3>Signal" in alone


def test_the_page_of_a_run_in_singles_shows_its_prediction(adaptive):
    page = as_html(report(adaptive, policies=()))
    assert "Predicted and observed success" in page
    assert not re.search(r"\bnan\b", re.sub(r'base64,[^"]*', "", page.split("</style>")[1]))


def test_a_log_with_each_prompt_once_is_not_judged_by_a_prior():
    """Every prediction would be 1/2, that of the prior: it says nothing about the run."""
    run = report(singles(steps=1), policies=())
    text = " ".join(as_text(run, 100).split())
    assert "No prompt came twice, and the log has no predictions: nothing could be predicted." in text
    assert "Brier" not in text
    assert "Predicted and observed success" not in as_html(run)
    assert "Brier" in " ".join(as_text(report(singles([0.5] * 4, steps=1), policies=()), 100).split())
