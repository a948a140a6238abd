"""Two runs side by side: known curves, and words that say what the figures do not mean."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.logs.progress import Progress, ProgressWriter, read_progress
from budgetalloc.report import comparison as pages
from budgetalloc.report import report
from budgetalloc.report.comparison import Side, levels


def run(path, rates, *, held_out=None, seconds=2.0, size=40):
    """A ledger whose steps have these shares of rewards of 1, 5 tokens a rollout, and evaluations before the steps."""
    writer, now = ba.LedgerWriter(path), [0.0]
    progress = ProgressWriter(path, 0, clock=lambda: now[0])
    for step, rate in enumerate(rates):
        if held_out is not None:
            progress.held_out(step, step, held_out[step])
        rewards = (np.arange(size) < rate * size).astype(float)
        ids = [f"p{at % 4}" for at in range(size)]
        writer.append(step, ids, rewards, [5] * size, [0.5] * size, [size // 4] * size)
        now[0] += seconds
        progress.step(step, step)
    return path


def side(path, with_progress=True):
    return Side(report(path, policies=()), read_progress(path) if with_progress else Progress())


SLOW, FAST = [step / 20 for step in range(20)], [min(step / 10, 1.0) for step in range(20)]


def test_held_out_reward_decides_where_both_have_it(tmp_path):
    one = side(run(tmp_path / "a.jsonl", FAST, held_out=SLOW, seconds=2.0))
    other = side(run(tmp_path / "b.jsonl", SLOW, held_out=FAST, seconds=3.0))  # the batches say the opposite
    comparison = pages.comparison_of(one, other)
    (measured,) = comparison["measured"]
    assert measured["name"] == "held-out reward"
    last = measured["levels"][-1]
    assert last["reward"] == pytest.approx(0.95)
    assert last["rollouts"] == pytest.approx([19 * 40, 9.5 * 40])
    assert last["tokens"] == pytest.approx([5 * 19 * 40, 5 * 9.5 * 40])
    assert last["seconds"] == pytest.approx([2 * 19, 3 * 9.5])
    text = pages.as_text(comparison)
    assert "THE SAME HELD-OUT REWARD" in text
    assert "Between evaluations (20 and 20 of them)" in " ".join(text.split())
    assert "does NOT say" not in text


def test_evaluation_sets_are_compared_each_with_itself(tmp_path):
    paths = [run(tmp_path / f"{name}.jsonl", SLOW) for name in "ab"]
    for path, sign in zip(paths, (1, -1), strict=True):
        progress = ProgressWriter(path, 20)
        for step in (0, 10, 20):
            progress.held_out(step, step, 0.5 + sign * step / 100, name="easy")
            progress.held_out(step, step, step / 100, name="hard")
            progress.held_out(step, step, 0.9, name=f"only {path.stem}")
    comparison = pages.comparison_of(*map(side, paths))
    assert [each["name"] for each in comparison["measured"]] == ["held-out reward of easy", "held-out reward of hard"]
    assert comparison["runs"][1]["held_out"] == {"easy": [0.5, 0.3], "hard": [0.0, 0.2], "only b": [0.9, 0.9]}
    hard = comparison["measured"][1]
    assert hard["curves"] == [[[0.0, 0.0], [400.0, 0.1], [800.0, 0.2]]] * 2
    assert [level["rollouts"] for level in hard["levels"]] == [[400.0] * 2, [600.0] * 2, [800.0] * 2]
    assert "held-out reward of easy, last" in pages.as_text(comparison)
    assert pages.as_html(comparison).count("<img") == 2
    assert json.loads(pages.as_json(comparison))["measured"][1]["curves"] == hard["curves"]


@pytest.mark.parametrize("held_out", [None, SLOW])
def test_without_held_out_rewards_the_text_warns_about_chosen_prompts(tmp_path, held_out):
    one = side(run(tmp_path / "a.jsonl", SLOW, held_out=held_out))
    comparison = pages.comparison_of(one, side(run(tmp_path / "b.jsonl", FAST)))
    (measured,) = comparison["measured"]
    assert measured["name"] == "reward of the batches"
    assert pages.CHOSEN in comparison["careful"]
    assert "does NOT say which run learned more" in " ".join(pages.as_text(comparison).split())
    assert measured["levels"][0]["rollouts"][0] > measured["levels"][0]["rollouts"][1]


def test_unknown_seconds_are_null_and_named(tmp_path):
    path = run(tmp_path / "a.jsonl", SLOW)
    comparison = pages.comparison_of(side(path, with_progress=False), side(path))
    assert math.isnan(comparison["runs"][0]["seconds"])
    assert ">-<" in pages.as_html(comparison)
    assert pages.UNTIMED in comparison["careful"]
    answer = json.loads(pages.as_json(comparison))
    assert answer["runs"][0]["seconds"] is None
    assert answer["measured"][0]["levels"][0]["seconds"][1] is not None


def test_levels_are_shares_of_the_way_to_the_reward_that_both_reached(tmp_path):
    one = side(run(tmp_path / "a.jsonl", [0.5] * 6))
    curves = [[(0.0, 0.25), (8.0, 0.75)], [(0.0, 0.5), (8.0, 1.0)]]
    made = levels([one, one], curves)
    assert [level["reward"] for level in made] == [0.5, 0.625, 0.75]
    assert [level["rollouts"] for level in made] == [[4.0, 0.0], [6.0, 2.0], [8.0, 4.0]]


def test_a_run_that_never_rises_has_no_level(tmp_path):
    flat = side(run(tmp_path / "a.jsonl", [0.5] * 6))
    assert levels([flat, flat], [flat.batches()] * 2) == []
    assert "No reward above the start was reached by both." in pages.as_text(pages.comparison_of(flat, flat))


def test_different_reward_ranges_are_named(tmp_path):
    for name, high in (("a", 1.0), ("b", 5.0)):
        writer = ba.LedgerWriter(tmp_path / f"{name}.jsonl")
        for step in range(3):
            writer.append(step, ["x"] * 2, [0.0, high], [1, 1], [0.5] * 2, [2, 2], reward_range=(0.0, high))
    comparison = pages.comparison_of(side(tmp_path / "a.jsonl"), side(tmp_path / "b.jsonl"))
    assert any("ranges of the rewards differ" in text for text in comparison["careful"])


def test_the_page_is_plain_and_escapes_what_a_log_holds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a short path: long ones are cut
    path = run(Path("<img src=x>.jsonl"), SLOW, held_out=FAST)
    page = pages.as_html(pages.comparison_of(side(path), side(path)))
    assert page.count("<img") == page.count("data:image/png;base64,") == 1
    assert "&lt;img src=x&gt;" in page
    assert "<script" not in page
    assert page.count("<table>") == 1 + len(pages.comparison_of(side(path), side(path))["measured"][0]["levels"])


def test_steps_without_a_reward_are_no_points_of_the_curve(tmp_path):
    path = tmp_path / "ledger.jsonl"
    writer = ba.LedgerWriter(path)
    for step, reward in enumerate([math.nan, 0.0, 1.0]):
        writer.append(step, ["a"], [reward], [1], [0.5], [1])
    assert [reward for _, reward in side(path).batches()] == [0.0, 1.0]
    assert "nan" not in pages.as_text(pages.comparison_of(side(path), side(path))).replace(str(path), "")
