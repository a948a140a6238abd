"""A reward function that became constant is named in the report."""

import json

import numpy as np

import budgetalloc as ba
from budgetalloc.logs.completions import constant_scores
from budgetalloc.report import as_text, report


def test_a_reward_function_that_became_constant_is_named_and_no_other():
    rng, step_R = np.random.default_rng(0), np.repeat(np.arange(40), 8)
    coin_R = rng.integers(0, 2, 320).astype(float)
    dead_R = np.where(step_R < 25, coin_R, 0.0)
    scores = {
        "dead": dead_R,
        "silent at last": np.where(step_R < 38, dead_R, np.nan),
        "varies": coin_R,
        "never varied": np.ones(320),
        "rare": np.where(np.isin(step_R, (3, 9)), -1.0, 0.0),
        "just now": np.where(step_R < 31, coin_R, 0.0),
        "never scored": np.full(320, np.nan),
    }
    order_R = rng.permutation(320)
    lines = constant_scores(step_R[order_R], {name: scores_R[order_R] for name, scores_R in scores.items()})
    assert [line.split(" varied")[0] for line in lines] == [
        f"The reward function {x}" for x in ("dead", "silent at last")
    ]
    assert "is 0 for every rollout since step 25" in lines[0]
    assert constant_scores([], {"accuracy": []}) == []


def test_a_report_on_completions_and_on_a_ledger_says_so(tmp_path):
    """TRL's completions with two functions, one of which dies; and a ledger whose reward does."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "completions"
    folder.mkdir()
    for step in range(30):
        rows = [
            {"step": step, "prompt": f"p{at // 4}", "completion": "x", "accuracy": int(rng.integers(2)), "format": dead}
            for at in range(8)
            for dead in [int(rng.integers(2)) if step < 15 else 0]
        ]
        lines = "".join(json.dumps(row | {"advantage": 0.0}) + "\n" for row in rows)
        (folder / f"completions_{step:05d}.jsonl").write_text(lines)
        ids, rewards = [f"p{at // 4}" for at in range(8)], [row["format"] for row in rows]
        ba.LedgerWriter(tmp_path / "ledger.jsonl").append(step, ids, rewards, [4] * 8, [0.5] * 8, [4] * 8)
    text = " ".join(as_text(report(folder, policies=())).split())
    assert "The reward function format varied, and is 0 for every rollout since step 15" in text
    assert "The reward function accuracy varied" not in text
    assert "The reward function of the log varied" in " ".join(
        as_text(report(tmp_path / "ledger.jsonl", policies=())).split()
    )
