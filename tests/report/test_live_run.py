"""The figures of a run that is going on are those of its report at the end."""

import math

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.logs.tail import Tail
from budgetalloc.report import measure
from budgetalloc.report.live_run import Live


def live_of(path):
    live = Live()
    for news in Tail(path).news():
        live.add(news)
    return live


def test_the_figures_are_those_of_the_report(tmp_path):
    rng = np.random.default_rng(0)
    writer = ba.LedgerWriter(tmp_path / "ledger.jsonl")
    for step in range(5):
        ids = [f"p{at}" for at in rng.integers(0, 6, 20).tolist()]
        rewards = rng.choice([0.0, 1.0, np.nan], 20, p=[0.5, 0.4, 0.1])
        writer.append(step, ids, rewards, [4] * 20, rng.random(20), [1] * 20)
    live = live_of(tmp_path / "ledger.jsonl")
    log = ba.Ledger.read(tmp_path / "ledger.jsonl")
    waste = measure([log])
    steps = list(live.steps.values())
    assert sum(step.scored for step in steps) == waste.rollouts
    assert np.isclose(sum(step.reward for step in steps), waste.reward_S.sum())
    assert np.isclose(sum(step.squared for step in steps) / waste.rollouts, waste.forecast.brier)
    assert sum(step.tokens for step in steps) == 5 * 20 * 4
    assert np.sum([step.kinds for step in steps], axis=0).tolist() == waste.rollouts_SK.sum(axis=0).tolist()
    assert sum(step.figures()["wasted"] * step.scored for step in steps) == pytest.approx(waste.wasted)
    assert all(step.rollouts == 20 for step in steps)
    assert len(live.seen_ids) == len(set(log.ids_R))


def test_unknown_figures_are_nan(tmp_path):
    nothing = float("nan")
    ba.LedgerWriter(tmp_path / "ledger.jsonl").append(0, ["a", "b"], [nothing] * 2, [-1] * 2, [nothing] * 2, [1, 1])
    figures = live_of(tmp_path / "ledger.jsonl").steps[0].figures()
    assert all(math.isnan(figures[name]) for name in ("reward", "success", "brier", "length"))
    assert math.isnan(figures["single"])  # a rollout without a reward is of no kind
