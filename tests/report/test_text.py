"""The sentences of a report say what the numbers say, whatever the log."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from budgetalloc import Ledger, LedgerWriter
from budgetalloc.beliefs.ids import text_id
from budgetalloc.report import as_html, as_text, report
from budgetalloc.report.text import (
    cost_sentences,
    forecast_sentences,
    headline,
    notes_sentences,
    prompts_sentences,
    shortened,
    size_sentence,
    sparkline,
)

NAN = float("nan")
NEVER_AND_SOMETIMES = "1 2 50.0 66.7 4 1 2 50.0 33.3 2 0 2 0.0 0.0"


def of(groups, **columns):
    """The report on (step, id, rewards) groups."""
    rows = [(step, name, reward) for step, name, rewards in groups for reward in rewards]
    frame = pd.DataFrame(rows, columns=["step", "prompt", "reward"])
    return report(Ledger.of_frame(frame.assign(**columns)), policies=())


STEPS = range(20)
FALLING = {"cost": np.repeat(np.linspace(100, 60, 20), 2)}


@pytest.mark.parametrize(
    ("sentences", "groups", "columns", "figures"),
    [
        (
            headline,
            [(0, "a", [0, 0]), (0, "b", [1, 1]), (0, "c", [0, 1]), (0, "d", [0.5, 0.5])],
            {},
            "75.0 25.0 25.0 25.0",
        ),
        (headline, [(0, "a", [0, 1])], {}, ""),
        (headline, [(0, "a", [0])], {}, ""),
        (headline, [(0, "a", [0]), (0, "b", [0, 0]), (0, "c", [0, 1, 1, 1, 1])], {}, "12.5 25.0"),  # as of adaptive()
        (cost_sentences, [(0, "a", [0, 0])], {}, ""),
        (cost_sentences, [(0, "a", [0, 0]), (0, "b", [0, 1])], {"length": 10}, "20 40 50.0 40"),
        (cost_sentences, [(step, "b", [0, 1]) for step in STEPS], FALLING, "160 197.9 122.1"),
        (prompts_sentences, [(0, "a", [0, 0]), (1, "a", [0, 0]), (0, "b", [0, 1])], {}, NEVER_AND_SOMETIMES),
        (notes_sentences, [(0, "a", [0, NAN])], {}, "1"),
        (notes_sentences, [(0, "a", [0])], {}, ""),
        (size_sentence, [(step, "a", [0, 1]) for step in range(4)], {"trainer_step": [0] * 4 + [1] * 4}, "8 4 1 4 2"),
    ],
)
def test_sentences_hold_the_figures_of_the_report(sentences, groups, columns, figures):
    said = sentences(of(groups, **columns))
    assert re.findall(r"\d+(?:\.\d+)?", said if isinstance(said, str) else " ".join(said)) == figures.split()


def test_the_length_of_single_and_unmeasured_rollouts_is_said():
    assert "50.0 %" in cost_sentences(of([(0, "b", [0, 1])], length=[3, NAN]))[0]
    single = cost_sentences(of([(step, name, [0]) for step in range(9) for name in "ab"]))[-1]
    assert single.startswith("100.0 %")


@pytest.mark.parametrize(
    ("groups", "word"),
    [
        ([(step, "a", [step % 2] * 4) for step in range(12)], "worse"),
        ([(step, "a", [0.5, 0]) for step in range(3)], "graded"),
        ([(step, "a", [1, 1]) for step in range(3)], "same success"),
        ([(0, "a", [1, 0])], "twice"),
    ],
)
def test_what_cannot_be_predicted_is_said(groups, word):
    assert word in forecast_sentences(of(groups))[-1]


@pytest.mark.parametrize(("name", "text"), [("a\x1b[31m\nb", "a [31m b"), ("x" * 50, "x" * 17 + "..."), (7, "7")])
def test_ids_are_short_and_harmless_in_a_terminal(name, text):
    assert shortened(name, 20) == text


def test_a_sparkline_spans_its_own_range():
    assert (sparkline([]), sparkline([3, 3]), sparkline([NAN, 0.2, 0.9])) == ("", "▁▁", " ▁█")


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    """A run of 12 prompts of 4 rollouts: two never solved, two always, the others now and then."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("run") / "ledger.jsonl"
    writer, rate_P = LedgerWriter(path), np.array([0, 0, 1, 1, *np.linspace(0.2, 0.8, 8)])
    for step in range(8):
        passed_R = rng.random(48) < np.repeat(rate_P, 4)
        ids = [f"prompt {p}" for p in range(12) for _ in range(4)]
        writer.append(step, ids, passed_R, rng.integers(5, 50, 48), np.full(48, NAN), np.full(48, 4))
    return report(path, seeds=range(2), workers=1)


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("unicode", [True, False])
def test_the_text_fits_the_terminal(summary, width, unicode):
    text = as_text(summary, width, unicode=unicode)
    assert max(map(len, text.splitlines())) <= width
    assert unicode or text.isascii()
    assert not any(line.startswith("%") for line in text.splitlines())


def test_the_text_begins_with_the_verdict_and_has_all_sections(summary, monkeypatch):
    text = as_text(summary, 100, unicode=True)
    assert text.startswith(summary.verdict)
    for heading in ("WHERE THE ROLLOUTS WENT", "OVER TIME", "PROMPTS", "PREDICTED?", "OTHER POLICIES", "LEFT OUT"):
        assert heading in text
    flat = " ".join(text.split())
    assert "learning does not react to the allocation" in flat
    assert re.search(r"mixed +[\d.]+ % +█+ ", text)
    assert "Never solved: 2 of 12 prompts (16.7 %)" in text
    monkeypatch.setattr("sys.stdout", SimpleNamespace(encoding="ascii"))
    assert as_text(summary).isascii()


def test_doubts_about_the_log_come_first(tmp_path):
    """Prompts may be named by the wrong column, such as a row number."""
    rows = "".join(f"{k // 8},{k},{k % 4 == 0:d},\n" for k in range(32))
    (tmp_path / "c.csv").write_text("step,id,reward,x\n" + rows)
    run = report(tmp_path / "c.csv", policies=())
    text = as_text(run, 100)
    assert "CAREFUL: no value of the column 'id' comes twice" in text.split("\n\n")[0]
    assert text.count("comes twice") == 1
    assert "unknown column 'x': 32" in text.split("LEFT OUT")[1]
    page = as_html(run)
    assert page.index("comes twice") < page.index("<h2>")


def test_prompts_that_are_named_by_hashes_are_shown_with_their_text(tmp_path):
    """TRL's completions have the text: its first characters are shown next to the hash, without control characters."""
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    prompts = ["What is 2 + 2? \x1b[31m" + "x" * 200, "<b>bold</b>"]
    for step in (1, 2):
        columns = {"step": [step] * 4, "prompt": [prompts[0]] * 2 + [prompts[1]] * 2, "completion": ["x"] * 4}
        columns |= {"exact": [0.0, 0.0, 1.0, 1.0], "advantage": [0.0] * 4}
        pq.write_table(pa.table(columns), tmp_path / f"completions_{step:05}.parquet")
    run = report(tmp_path, policies=())
    text = as_text(run, 100)
    assert f"{text_id(prompts[0])}  What is 2 + 2?" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100
    assert run.most_wasted[0]["text"] == prompts[0][:200]
    page = as_html(run)
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "<b>bold" not in page
