"""Columns that contradict that the rows of a log are all rollouts of its groups are said first."""

import json

import numpy as np
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


@pytest.mark.parametrize(("column", "runs"), [("run_id", "ab"), ("seed", (1, 2)), (None, "ab"), (None, "abc")])
def test_two_runs_in_one_log_are_doubted(tmp_path, column, runs):
    """By a column that names them, or by steps that begin anew."""
    for in_order in (True, False):
        parts = [pd.DataFrame(rollouts()).assign(**{column or "other": run}) for run in runs]
        frame = pd.concat(parts).sort_values("step", kind="stable") if in_order else pd.concat(parts)
        said = doubts(tmp_path, frame.assign(response=range(len(frame))))
        assert all("several runs? Read each on its own" in text for text in said)
        assert len(said) == (column is not None) + (not in_order)


def test_one_run_in_another_order_or_with_numbered_rollouts_is_not_two(tmp_path):
    frame = pd.DataFrame(rollouts()).drop(columns="response").assign(run=[*range(4)] * 8)
    assert doubts(tmp_path, frame) == []
    frame = pd.concat([frame.assign(step=s, reward=(frame.reward + s) % 2) for s in range(8)])
    assert doubts(tmp_path, frame.sort_values(["prompt_id", "step"])) == []
    assert doubts(tmp_path, frame.sample(frac=1, random_state=0)) == []
    late = frame.reset_index(drop=True)
    late.index = late.index + (late.index % 32 == 0) * 50  # stragglers, as asynchronous trainers have
    assert doubts(tmp_path, late.sort_index(kind="stable")) == []


def test_a_count_of_each_prompts_visits_is_not_several_runs(tmp_path):
    """In the order of the run, epoch after epoch, in which a step of 32 prompts may reach into the next epoch."""
    rng = np.random.default_rng(0)
    drawn = np.concatenate([rng.permutation(40) for _ in range(16)]).reshape(-1, 32)
    rows = [(prompt, float(rng.random() < 0.5)) for step in drawn for prompt in sorted(set(step)) for _ in range(4)]
    frame = pd.DataFrame(rows, columns=["prompt_id", "reward"])
    visits = frame.assign(step=frame.groupby("prompt_id").cumcount() // 4)
    assert (visits["step"].diff() < 0).any()
    assert doubts(tmp_path, visits) == []
    assert "several runs?" in doubts(tmp_path, pd.concat([visits, visits]))[0]


def test_equal_responses_come_before_what_was_assumed(tmp_path):
    frame = pd.DataFrame(rollouts()).drop(columns="step")
    said = doubts(tmp_path, frame.assign(response="a"))
    assert said[0].startswith("response that has several rewards in its group")
    assert said[1].startswith("group whose responses are all equal")
    assert said[2].startswith("no column of steps")


@pytest.mark.parametrize("column", ["reward_name", "rubric", None])
def test_a_response_in_several_rows_is_one_rollout(tmp_path, column):
    frame = pd.concat([pd.DataFrame(rollouts()).assign(**{column or "other": x}) for x in "ab"])
    said = doubts(tmp_path, frame.sort_values(["step", "prompt_id"], kind="stable"))
    assert said[-1].startswith("response that comes 2 times in its group, as all do: was one rollout scored")
    assert len(said) == 1 + (column is not None)
    short = frame.assign(response=[k // 5 % 3 for k in range(len(frame))]).drop(columns=column or "other")
    assert not any("as all do" in text for text in doubts(tmp_path, short))


@pytest.mark.parametrize("column", ["num_return_sequences", "rollouts_per_prompt", "group_size", "sample_count"])
def test_a_size_of_groups_by_any_name_contradicts_missing_rows(tmp_path, column):
    assert doubts(tmp_path, pd.DataFrame(rollouts()).assign(**{column: 4})) == []
    assert doubts(tmp_path, pd.DataFrame(rollouts()).assign(**{column: [*range(4)] * 8})) == []
    (said,) = doubts(tmp_path, pd.DataFrame(rollouts()).assign(**{column: 16}))
    assert said.startswith(f"column '{column}' says 16 rollouts of a group, of which the log has 4")


def numbered(name, start=0, **columns):
    """Eight steps of 4 new prompts, numbered from `start` in each step."""
    return pd.DataFrame(
        {"step": t, name: p + start, "reward": float((t + p + k) % 2)} | {key: of(t, p) for key, of in columns.items()}
        for t in range(8)
        for p in range(4)
        for k in range(2)
    )


@pytest.mark.parametrize(
    ("column", "of"),
    [
        ("prompt_tokens", lambda t, p: [1, 10 * t + p]),
        ("prompt", "{} + {}".format),
        ("messages", lambda t, p: [[t, p]]),
    ],
)
@pytest.mark.parametrize("start", [0, 1])
def test_prompts_numbered_in_each_step_are_named_by_their_contents(tmp_path, column, of, start):
    said = doubts(tmp_path, numbered("prompt_idx", start, **{column: of}))
    what = f"column 'prompt_idx' numbers prompts from {start} on in each step, with another '{column}': "
    assert said == [f"{what}prompts are named by '{column}'"]
    assert read_log(tmp_path / "log.jsonl").frame.prompt.nunique() == 32
    named = read_log(tmp_path / "log.jsonl", prompt="prompt_idx")
    assert named.frame.prompt.nunique() == 4
    assert named.notes.doubts == [f"{what}pass prompt='{column}'"]


def test_ids_with_gaps_or_as_text_that_name_other_prompts_in_each_step_are_told(tmp_path):
    frame = numbered("group_index", prompt=lambda t, p: f"{t} {p}")
    said = doubts(tmp_path, frame[frame.group_index != frame.step % 4].rename(columns={"group_index": "task_id"}))
    assert said == ["column 'task_id' has the same ids in several steps, with another 'prompt': pass prompt='prompt'"]
    said = doubts(tmp_path, numbered("task_id", prompt=lambda t, p: f"{t} {p}").astype({"task_id": str}))
    assert said[0].startswith("column 'task_id' numbers prompts from 0 on in each step, with another 'prompt': prompts")
    turns = numbered("task_id", start=10, prompt="{} {}".format).assign(prompt=range(64))  # a conversation that grows
    assert doubts(tmp_path, turns.astype({"prompt": str})) == []


def test_prompts_numbered_in_each_step_without_their_contents_are_doubted(tmp_path):
    (said,) = doubts(tmp_path, numbered("task_id"))
    assert said.startswith("column 'task_id' numbers prompts from 0 on in each step: are these the same prompts?")
    assert doubts(tmp_path, numbered("prompt_idx", prompt=lambda t, p: f"prompt {p}")) == []
    assert doubts(tmp_path, numbered("prompt_id")) == []
