"""The report from a log on disk to the terminal and to machines."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from budgetalloc import InputError, Ledger, LedgerWriter
from budgetalloc.beliefs.group_kinds import KINDS
from budgetalloc.beliefs.ids import text_id
from budgetalloc.report import as_html, as_json, as_text, report
from budgetalloc.report.text import sparkline

NAN = float("nan")


def write(path, steps=8, low=0.0, high=1.0, lengths=True):
    """A run of 12 prompts of 4 rollouts: two never solved, two always, the others now and then."""
    rng = np.random.default_rng(0)
    writer = LedgerWriter(path)
    rate_P = np.array([0, 0, 1, 1, *np.linspace(0.2, 0.8, 8)])
    names = [f"prompt {p}" for p in range(11)] + ["<script>document.title='broken'</script>"]
    for step in range(steps):
        passed_R = rng.random(48) < np.repeat(rate_P, 4)
        length_R = rng.integers(5, 50, 48) if lengths else np.full(48, -1)
        ids = [name for name in names for _ in range(4)]
        writer.append(step, ids, np.where(passed_R, high, low), length_R, np.full(48, NAN), np.full(48, 4))
    return path


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    path = write(tmp_path_factory.mktemp("run") / "ledger.jsonl")
    return report(path, seeds=range(2), workers=1)


def test_a_file_becomes_a_report(summary):
    assert summary.kind == "ledger"
    assert summary.name.endswith("ledger.jsonl")
    assert len(summary.waste.never()) == len(summary.waste.always()) == 2
    assert summary.waste.tokens > summary.waste.wasted_tokens > 0
    assert [row["policy"] for row in summary.replayed.rows] == ["uniform", "knapsack", "thompson", "adaptive"]
    assert (summary.replayed.steps, summary.replayed.rollouts, summary.replayed.prompts) == (8, 48, 12)
    uniform = summary.replayed.rows[0]
    assert uniform["mixed_rollouts"] == pytest.approx(summary.waste.shares()["mixed"])


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("unicode", [True, False])
def test_the_text_fits_the_terminal(summary, width, unicode):
    text = as_text(summary, width, unicode=unicode)
    assert max(map(len, text.splitlines())) <= width
    assert unicode or text.isascii()
    assert not any(line.startswith("%") for line in text.splitlines())


def test_the_text_has_all_sections(summary):
    text = as_text(summary, 100, unicode=True)
    for heading in ("WHERE THE ROLLOUTS WENT", "OVER TIME", "PROMPTS", "PREDICTED?", "OTHER POLICIES", "LEFT OUT"):
        assert heading in text
    flat = " ".join(text.split())
    assert "learning does not react to the allocation" in flat
    assert "adaptive may request groups of one" in flat
    assert re.search(r"mixed +[\d.]+ % +█+ ", text)
    assert "Never solved: 2 of 12 prompts (16.7 %)" in text


def test_a_terminal_without_block_characters_gets_ascii(summary, monkeypatch):
    monkeypatch.setattr("sys.stdout", SimpleNamespace(encoding="ascii"))
    assert as_text(summary).isascii()


def test_a_sparkline_spans_its_own_range():
    assert sparkline([]) == ""
    assert sparkline([3, 3]) == "▁▁"
    assert sparkline([NAN, 0.2, 0.9]) == " ▁█"


def test_the_json_is_flat_and_documented(summary):
    flat = json.loads(as_json(summary))
    assert flat["version"] == 2
    named = set(re.findall(r"`(\w+)`", as_json.__doc__))
    named |= {name.replace("share_", "group_share_") for name in named if name.startswith("share_")}
    assert set(flat) <= named
    assert sum(flat[f"share_{kind}"] for kind in KINDS) == pytest.approx(1)
    assert flat["share_wasted"] == pytest.approx(flat["share_all_fail"] + flat["share_all_pass"])
    assert flat["never_solved"] == 2
    assert flat["most_wasted"][0]["text"] is None  # prompts are named by their ids
    assert len(flat["policies"]) == 4
    assert all(not isinstance(value, dict) for value in flat.values() if value is not flat["notes"])


def test_unknown_numbers_are_null_in_the_json(tmp_path):
    one = report(write(tmp_path / "ledger.jsonl", steps=1, lengths=False), policies=())
    text = as_json(one)
    flat = json.loads(text)
    assert "NaN" not in text
    assert (flat["tokens"], flat["wasted_tokens"], flat["policies"]) == (None, None, None)
    assert flat["why_not"] == "no policy was named"


def test_the_range_of_rewards_is_found_with_a_note(tmp_path):
    path = write(tmp_path / "ledger.jsonl", low=-1.0, high=2.0)
    summary = report(path, policies=["uniform"], seeds=[0], workers=1)
    assert summary.waste.reward_range == (-1, 2)
    assert "rewards from -1 to 2 taken as the range from failure to success" in summary.notes
    assert 0 < summary.replayed.rows[0]["reward"] < 1
    assert report(path, policies=(), reward_range=(-1, 3)).waste.graded


def test_a_range_that_does_not_hold_is_refused(tmp_path):
    with pytest.raises(InputError, match="outside reward_range"):
        report(write(tmp_path / "ledger.jsonl", low=-1.0), policies=(), reward_range=(0.0, 1.0))


def test_a_failed_replay_leaves_the_rest_of_the_report(tmp_path):
    summary = report(write(tmp_path / "ledger.jsonl"), seeds=[0], steps=1000, workers=1)
    assert summary.replayed is None
    assert "Not replayed: steps=1000" in as_text(summary)
    assert summary.waste.rollouts == 8 * 48


def test_an_unknown_policy_is_refused_before_anything_is_read():
    with pytest.raises(InputError, match=r"'adaptiv' is unknown, did you mean adaptive\?"):
        report("no such file", policies=["adaptiv"])


def test_a_ledger_in_memory_is_read_as_its_file(tmp_path):
    path = write(tmp_path / "ledger.jsonl")
    assert as_json(report(Ledger.read(path), policies=())) == as_json(report(path, policies=()))


def test_doubts_about_the_log_come_first(tmp_path):
    """Prompts may be named by the wrong column, such as a row number."""
    rows = "".join(f"{k // 8},{k},{k % 4 == 0:d},\n" for k in range(32))
    (tmp_path / "c.csv").write_text("step,id,reward,x\n" + rows)
    run = report(tmp_path / "c.csv", policies=())
    text = as_text(run, 100)
    assert "CAREFUL: no value of the column 'id' comes twice" in text.split("\n\n")[0]
    assert text.count("comes twice") == 1
    assert "unknown column 'x': 32" in text.split("LEFT OUT")[1]
    assert len(json.loads(as_json(run))["doubts"]) == 1
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
    ids = [text_id(text) for text in prompts]
    assert set(run.texts) == set(ids)
    text = as_text(run, 100)
    assert f"{ids[0]}  What is 2 + 2?" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100
    assert json.loads(as_json(run))["most_wasted"][0]["text"] == prompts[0][:200]
    page = as_html(run)
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "<b>bold" not in page
