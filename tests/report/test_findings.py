"""The sentences of a report say what the numbers say, whatever the log."""

import pandas as pd
import pytest

from budgetalloc import Ledger
from budgetalloc.report.findings import (
    forecast_sentences,
    headline,
    notes_sentences,
    prompts_sentences,
    shortened,
    singles_sentence,
    tokens_sentence,
    worst,
)
from budgetalloc.report.log_scan import measure


def waste(groups, lengths=False):
    """From (step, id, rewards) groups."""
    rows = [(step, name, reward) for step, name, rewards in groups for reward in rewards]
    steps, ids, rewards = zip(*rows, strict=True)
    columns = {"step": steps, "prompt": ids, "reward": rewards, "length": 10 if lengths else -1, "predicted": 0.0}
    return measure(Ledger.of_frame(pd.DataFrame(columns)))


def test_the_headline_names_each_kind_of_waste():
    wasted = waste([(0, "a", [0, 0]), (0, "b", [1, 1]), (0, "c", [0, 1]), (0, "d", [0.5, 0.5])])
    assert headline(wasted) == (
        "75.0 % of the rollouts gave no gradient under a group baseline: 25.0 % in groups that all failed, 25.0 % in "
        "groups that all passed, 25.0 % in groups that had equal rewards in between."
    )


def test_headline_of_a_run_without_waste():
    assert "no rollout was wasted" in headline(waste([(0, "a", [0, 1])]))


def test_tokens_are_unknown_or_counted():
    assert "no lengths" in tokens_sentence(waste([(0, "a", [0, 0])]))
    assert "20 of 40 (50.0 %)" in tokens_sentence(waste([(0, "a", [0, 0]), (0, "b", [0, 1])], lengths=True))


def test_single_rollouts_have_their_own_sentence():
    wasted = waste([(0, "a", [0]), (0, "b", [0, 1])])
    assert singles_sentence(wasted).startswith("33.3 % of the rollouts were single rollouts")
    assert singles_sentence(waste([(0, "b", [0, 1])])) == ""


def test_prompts_never_and_always_solved_are_counted():
    never, sometimes, always = prompts_sentences(waste([(0, "a", [0, 0]), (1, "a", [0, 0]), (0, "b", [0, 1])]))
    assert never == "Never solved: 1 of 2 prompts (50.0 %), with 66.7 % of the rollouts (median 4 each)."
    assert sometimes == "Sometimes solved: 1 of 2 prompts (50.0 %), with 33.3 % of the rollouts (median 2 each)."
    assert always == "Always solved: 0 of 2 prompts (0.0 %), with 0.0 % of the rollouts."


def test_the_report_does_not_predict_the_gain_of_a_policy():
    """On twelve logged runs of the learning benchmark the predicted waste did not rank the gains of its page."""
    fooled = waste([(step, "a", [step % 2] * 4) for step in range(12)])
    assert fooled.forecast.explained < 0
    lines = forecast_sentences(fooled)
    assert "The prediction is worse than the constant." in lines
    assert not any("suits" in line or "wasted" in line for line in lines)
    assert "graded" in forecast_sentences(waste([(step, "a", [0.5, 0]) for step in range(3)]))[-1]


def test_the_worst_prompts_come_first():
    wasted = waste([(0, "a", [0, 0]), (0, "b", [0] * 5), (0, "c", [0, 1])])
    assert [(row["id"], row["wasted"]) for row in worst(wasted, {})] == [("b", 5), ("a", 2)]


def test_notes_have_their_counts():
    wasted = waste([(0, "a", [0, float("nan")])])
    assert notes_sentences(wasted, {"unknown column 'x'": 3}) == [
        "unknown column 'x': 3",
        "rollouts without a reward, left out: 1",
    ]
    assert notes_sentences(waste([(0, "a", [0])]), {}) == ["Nothing."]


@pytest.mark.parametrize(("name", "text"), [("a\x1b[31m\nb", "a [31m b"), ("x" * 50, "x" * 17 + "..."), (7, "7")])
def test_ids_are_short_and_harmless_in_a_terminal(name, text):
    assert shortened(name, 20) == text
