"""Columns that contradict that the rows of a log are all rollouts of its groups are said first."""

import json

import pandas as pd
import pytest

from budgetalloc.logs.ledger import read_log
from budgetalloc.report import as_text, report


def rollouts(groups=8, size=4):
    return [
        {"step": g // 2, "prompt_id": f"p{g}", "reward": float((g + k) % 3 == 0), "response": f"answer {g} {k}"}
        for g in range(groups)
        for k in range(size)
    ]


def with_facts(rows):
    """The rows as a trainer writes them, with facts about their groups."""
    frame = pd.DataFrame(rows)
    groups = frame.groupby("prompt_id")["reward"]
    frame["advantage"] = (frame["reward"] - groups.transform("mean")).round(3)
    frame["num_generations"] = groups.transform("size")
    of = groups.agg(list)
    frame["group_rewards"] = frame["prompt_id"].map(of)
    return frame


def doubts(folder, frame):
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")))
    return read_log(path).notes.doubts


def test_a_whole_log_of_groups_has_no_doubt(tmp_path):
    assert doubts(tmp_path, with_facts(rollouts()).assign(filter="none", finish_reason="stop")) == []


@pytest.mark.parametrize("fact", ["advantage", "num_generations", "group_rewards"])
@pytest.mark.parametrize("kept", [1, 3])
def test_missing_rollouts_are_told_by_facts_about_their_group(tmp_path, fact, kept):
    frame = with_facts(rollouts())[["step", "prompt_id", "reward", fact]]
    frame = frame[frame.groupby("prompt_id").cumcount() < kept]
    (said,) = doubts(tmp_path, frame)
    assert "rollouts are missing" in said
    run = report(tmp_path / "log.jsonl", policies=())
    assert run.verdict.startswith("Look at what the log leaves open (CAREFUL)")
    assert "as adaptive() requests" not in " ".join(as_text(run).split())


def test_columns_that_select_or_repeat_rows_are_named_with_their_values(tmp_path):
    frame = pd.DataFrame(rollouts())
    (said,) = doubts(tmp_path, frame.assign(capture_reason=["extreme", "random"] * 16))
    assert "column 'capture_reason' (extreme, random) says why rows were kept" in said
    two = pd.concat([frame.assign(filter=name) for name in ("strict", "flexible")])
    assert "column 'filter' (flexible, strict) has several values in a group" in doubts(tmp_path, two)[0]


def test_equal_responses_come_before_what_was_assumed(tmp_path):
    frame = pd.DataFrame(rollouts()).drop(columns="step")
    said = doubts(tmp_path, frame.assign(response="a"))
    assert said[0].startswith("response that has several rewards in its group")
    assert said[1].startswith("group whose responses are all equal")
    assert said[2].startswith("no column of steps")
