"""Policies on a log with its own budget: what is held back for them, and figures known by hand."""

import numpy as np
import pandas as pd
import pytest

from budgetalloc import Ledger
from budgetalloc.cli.__main__ import main
from budgetalloc.offline.comparison import FIGURES, compare
from budgetalloc.offline.replay import NO_HISTORY
from budgetalloc.report import as_html, as_text, replays, report


def log(passed_SP, n=4):
    """Step s rolls every prompt out n times, of which `passed_SP[s][p]` pass."""
    cells = [(s, p, passed) for s, row in enumerate(passed_SP) for p, passed in enumerate(row)]
    rows = [(step, p, float(k < passed)) for step, p, passed in cells for k in range(n)]
    return Ledger.of_frame(pd.DataFrame(rows, columns=["step", "prompt", "reward"]))


HALF = log([[0, 4, 2, 2]] * 6)


def run(policies, of=HALF, **options):
    return report(of, policies=policies, workers=1, **options)


def test_uniform_draws_the_log_itself():
    replayed = run(["uniform"], seeds=[0, 1])
    row = replayed.policies[0]
    sizes = replayed.replay_steps, replayed.replay_rollouts, replayed.replay_prompts, replayed.replay_seeds
    assert sizes == (6, 16, 4, 2)
    assert (row["mixed_rollouts"], row["mixed"], row["reward"], row["modelled"]) == (0.5, 2, 0.5, 0)
    assert row["mixed_rollouts_low"] == row["mixed_rollouts_high"] == 0.5
    assert all(np.isnan(run(["uniform"], seeds=[3]).policies[0][f"{figure}_low"]) for figure in FIGURES)


def test_the_signal_is_that_of_the_prompts_that_got_rollouts():
    """Two of four prompts pass half of the time, the others always or never: 4 p (1-p) is 1, 1, 0 and 0."""
    uniform, sampled = run(["uniform", "sampled"], seeds=[0, 1, 2]).policies
    assert uniform["signal"] == pytest.approx(0.5)
    assert sampled["signal"] > 0.6
    assert sampled["signal_diff"] == pytest.approx(sampled["signal"] - 0.5)


def test_informative_prompts_are_the_different_ones_with_a_gradient():
    """Uniform: two of four prompts are mixed in steps of 16. Single rollouts have a gradient from earlier steps."""
    found = run(["uniform", "adaptive"], seeds=[0, 1])
    uniform, adaptive = found.policies
    assert uniform["informative_prompts"] == 2 / 16
    assert 2 / 16 < adaptive["informative_prompts"] <= 4 / 16
    for row in (line for line in as_text(found, 120).splitlines() if line.startswith("  uniform")):
        assert row.split()[1:] == ["12.5", "%", "(12.5", "to", "12.5)", "50.0", "%", "50.0", "%", "0.0", "%"]
    assert '<td class="name">uniform</td><td>12.5' in as_html(found)


def test_groups_of_two_fit_where_rollouts_are_few():
    few = log([[(step + p) % 2 for p in range(60)] for step in range(4)], n=1)
    found = run(["adaptive", "dapo"], few, seeds=[0])
    assert (found.replay_narrowed, found.replay_prompts) == (True, 30)
    assert "fewer prompts than in the log, so that groups of two fit" in " ".join(as_text(found).split())


def test_progress_counts_all_runs():
    seen = []
    run(["uniform", "knapsack"], seeds=[0, 1], steps=1, progress=lambda *args: seen.append(args))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_failed_replay_leaves_the_rest_of_the_report():
    found = run(["uniform"], seeds=[0], steps=7)
    assert (found.policies, found.rollouts) == (None, 96)
    assert "Not replayed: steps=7" in as_text(found)


def test_the_first_whole_steps_of_a_long_log_are_replayed(monkeypatch):
    monkeypatch.setattr(replays, "_KEPT", 44)  # of 16 rollouts a step
    found = run(["uniform"], seeds=[0])
    assert (found.replay_steps, found.replay_logged) == (2, 6)
    assert "The first 2 of about 6 steps" in as_text(found)


def test_where_no_prompt_returns_it_is_said_that_there_is_no_history(tmp_path, capsys, caplog):
    rows = [(step, 4 * step + p, float(k < p)) for step in range(4) for p in range(4) for k in range(4)]
    once = pd.DataFrame(rows, columns=["step", "prompt", "reward"])
    for frame, said in ((once, True), (once.assign(prompt=once["prompt"] % 4), False)):
        caplog.clear()
        ledger = Ledger.of_frame(frame)
        compare({"uniform": "uniform", "adaptive": "adaptive"}, ledger, 16, seeds=[0], workers=1)
        assert (NO_HISTORY in caplog.text) is said
        assert (NO_HISTORY[1:] in " ".join(as_text(run(["uniform", "adaptive"], ledger, seeds=[0])).split())) is said
        frame.to_csv(tmp_path / "log.csv", index=False)
        assert main(["replay", str(tmp_path / "log.csv"), "--prompt", "prompt", "--seeds", "1", "--workers", "1"]) == 0
        assert (f"CAREFUL: {NO_HISTORY}" in " ".join(capsys.readouterr().out.split())) is said
