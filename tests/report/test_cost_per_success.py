"""What a success costs: from the ledger's costs, or from tokens, over the whole run and over time."""

import math

import pandas as pd
import pytest

import budgetalloc as ba
from budgetalloc.report import as_json, as_text, report
from budgetalloc.report.findings import cost_sentence


def written(path, costs=True, steps=20):
    """A ledger whose rollouts cost 100 at first and 60 at the end, and of which every second one is a success."""
    writer = ba.LedgerWriter(path)
    for step in range(steps):
        cost = 100.0 - 40 * step / (steps - 1)
        ids, rewards = [f"p{at}" for at in range(8)], [0, 1] * 4
        more = {"costs_R": [cost] * 8} if costs else {}
        writer.append(step, ids, rewards, [10] * 8, [0.5] * 8, [1] * 8, success_R=rewards, **more)
    return path


@pytest.mark.parametrize("decision", [None, 7])
def test_costs_are_read_as_they_were_written(tmp_path, decision):
    """With a decision of its own the row takes the reader's slow way."""
    writer, nan = ba.LedgerWriter(tmp_path / "a.jsonl"), float("nan")
    given = {"success_R": [1.0, 0.0], "decision": decision}
    writer.append(0, ["a", "b"], [1.0, 0.0], [5, 6], [0.5, 0.5], [1, 1], costs_R=[12.5, nan], **given)
    ledger = ba.Ledger.read(tmp_path / "a.jsonl")
    assert ledger.frame.cost.tolist() == pytest.approx([12.5, nan], nan_ok=True)
    writer.append(8, ["a"], [1.0], [5], [0.5], [1], success_R=[1.0])  # the run went on without cost=
    assert ba.Ledger.read(tmp_path / "a.jsonl").frame.cost.tolist() == pytest.approx([12.5, nan, nan], nan_ok=True)
    with pytest.raises(ba.InputError, match="costs_R has 1 entries, and there are 2 rollouts"):
        writer.append(9, ["a", "b"], [1.0, 0.0], [5, 6], [0.5, 0.5], [1, 1], costs_R=[1.0])


def test_a_report_shows_the_cost_of_a_success_over_time(tmp_path):
    found = report(written(tmp_path / "ledger.jsonl"), policies=())
    assert found.waste.per_success() == {"tokens_per_success": 20.0, "cost_per_success": pytest.approx(160.0)}
    time = found.waste.over_time(20)
    assert [time[0]["cost_per_success"], time[-1]["cost_per_success"]] == pytest.approx([200.0, 120.0])
    text = as_text(found)
    assert "Cost a success, in the unit of the run's cost=: 160 over the run, 197.9 at first and 122.1 at the" in text
    assert "cost a success" in text.split("OVER TIME")[1].split("PROMPTS")[0]
    assert '"cost_per_success": 160.0' in as_json(found)


def test_without_costs_it_is_tokens_and_without_lengths_nothing(tmp_path):
    found = report(written(tmp_path / "ledger.jsonl", costs=False), policies=())
    assert math.isnan(found.waste.per_success()["cost_per_success"])
    assert cost_sentence(found.waste) == "Tokens a success: 20 over the run, 20 at first and 20 at the end."
    assert "cost a success" not in as_text(found)
    nothing = ba.Ledger.of_frame(pd.DataFrame({"step": 0, "prompt": ["a", "b"], "reward": [0, 1]}))
    assert cost_sentence(report(nothing, policies=()).waste) == ""
    failed = ba.Ledger.of_frame(pd.DataFrame({"step": 0, "prompt": ["a", "b"], "reward": 0, "length": 9}))
    assert cost_sentence(report(failed, policies=()).waste) == ""
