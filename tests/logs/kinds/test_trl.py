"""TRL's completions, in files that TRL wrote. tests/trl/test_completions.py reads a run of the trainer itself."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc.beliefs.ids import text_id
from budgetalloc.beliefs.rewards import RewardHistory
from budgetalloc.errors import InputError
from budgetalloc.logs.completions import chosen_success
from budgetalloc.logs.ledger import read_log
from budgetalloc.logs.records import Notes

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
FILES = Path(__file__).parent / "files" / "trl"
CHOSEN = "success taken as {}=1, the reward function that gave both 0 and 1"


def read(path, **asked):
    log = read_log(path, **asked)
    return log, dict(log.notes)


def rows_of_two():
    files = [FILES / "two" / f"completions_0000{step}.parquet" for step in (1, 2)]
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_a_row_is_a_rollout_of_the_prompt_at_the_step_of_its_file():
    ledger, notes = read(FILES / "two", reward="low_digit")
    rows = rows_of_two()
    assert ledger.frame.step.tolist() == [row["step"] for row in rows] == [1] * 8 + [2] * 8
    assert ledger.frame.prompt.tolist() == [text_id(row["prompt"]) for row in rows]
    assert ledger.frame.reward.tolist() == [row["low_digit"] for row in rows]
    assert ledger.frame.length.isna().all()
    assert notes == {"length unknown": 16, "unknown column 'short'": 5, "unknown column 'note'": 16}


def test_several_reward_functions_are_summed_and_it_is_said():
    ledger, notes = read(FILES / "two")
    rows = rows_of_two()
    assert any(row["short"] is None for row in rows)  # a function that did not score adds nothing, as in TRL
    assert ledger.frame.reward.tolist() == [row["low_digit"] + (row["short"] or 0) for row in rows]
    assert notes["reward taken as the sum of low_digit, short, each with weight 1"] == 1
    weighted, notes = read(FILES / "two", reward={"low_digit": 1, "short": 0.25})
    assert weighted.frame.reward.tolist() == [row["low_digit"] + 0.25 * (row["short"] or 0) for row in rows]
    assert set(notes) == {"length unknown", "unknown column 'note'", CHOSEN.format("low_digit")}


def test_weights_that_do_not_explain_the_advantages_are_told(tmp_path):
    table = pq.read_table(FILES / "two" / "completions_00001.parquet").to_pandas()
    table["low_digit"], table["short"] = [0.0, 1, 1, 0] * 2, [1.0, 0, 0, 1] * 2
    for name, weight in (("ones", 1.0), ("others", 0.25)):
        total = table["low_digit"] + weight * table["short"]
        table["advantage"] = total - total.mean()
        (tmp_path / name).mkdir()
        table.to_parquet(tmp_path / name / "completions_00001.parquet")
    said = {name: [note for note in read(tmp_path / name)[1] if "follow" in note] for name in ("ones", "others")}
    assert said["ones"] == []
    assert said["others"][0].startswith("reward taken as low_digit, whose order the advantages follow, and not short")
    table["advantage"] = [0.0, 1.0, 2.0, 3.0] * 2
    table.to_parquet(tmp_path / "others" / "completions_00001.parquet")
    assert any("do not follow that sum" in note for note in read(tmp_path / "others")[1])
    assert not any("follow" in x for x in read(tmp_path / "others", reward={"low_digit": 1, "short": 0.25})[1])


def test_numbers_beside_the_completions_are_no_rewards(tmp_path):
    """TRL writes what a reward function logs with `log_extra` between the rewards. The advantages tell them apart."""
    right = [0.0, 1.0, 1.0, 1.0]
    columns = {"step": [1] * 4, "prompt": list("aabb"), "completion": list("wxyz"), "confidence": [0.25] * 4}
    columns |= {"right": right, "judge_seconds": [1.5, 2.5, 3.5, 4.5], "advantage": [-0.7, 0.7, 0.0, 0.0]}
    pq.write_table(pa.table(columns), tmp_path / "completions_00001.parquet")
    ledger, _ = read(tmp_path)
    assert ledger.frame.reward.tolist() == ledger.frame.success.tolist() == right
    assert ledger.notes.doubts[0].startswith("reward taken as right, whose order the advantages follow")


def test_tables_that_wandb_keeps_of_the_completions_are_read(tmp_path):
    """The last table is logged twice, as at the end of a run."""
    names = ["step", "prompt", "completion", "right", "advantage"]
    for at, step in enumerate((1, 2, 2)):
        rows = [[step, "ab"[k // 2], f"{step} {k}", float(k == 0), 0.5] for k in range(4)]
        (tmp_path / f"completions_{at}_0a1b2c.table.json").write_text(json.dumps({"columns": names, "data": rows}))
    ledger, notes = read(tmp_path)
    assert (ledger.kind, ledger.frame.step.tolist()) == ("trl", [1] * 4 + [2] * 4)
    assert ledger.frame.reward.tolist() == [1.0, 0.0, 0.0, 0.0] * 2
    assert notes["row logged again at a step that generated nothing"] == 4


def test_a_batch_that_serves_two_steps_is_taken_once():
    ledger, notes = read(FILES / "reuse", reward="low_digit")
    assert ledger.frame.step.tolist() == [1] * 16
    assert notes["row logged again at a step that generated nothing"] == 16


def test_chat_messages_are_hashed_as_they_are():
    ledger, _ = read(FILES / "chat")
    prompts = [row["prompt"] for row in pq.read_table(FILES / "chat" / "completions_00003.parquet").to_pylist()]
    assert ledger.frame.prompt.tolist() == [text_id(prompt) for prompt in prompts]
    assert len(set(ledger.frame.prompt.tolist())) == 2


def test_the_folder_of_the_trainer_is_enough_and_steps_sort_as_numbers(tmp_path):
    folder = tmp_path / "completions"
    folder.mkdir()
    for step, of in ((99_999, 1), (100_000, 2)):
        shutil.copy(FILES / "two" / f"completions_0000{of}.parquet", folder / f"completions_{step:05d}.parquet")
    (folder / "completions_00002.parquet.tmp").write_text("of another program")
    ledger, _ = read(tmp_path)
    assert ledger.frame.step.tolist() == [99_999] * 8 + [100_000] * 8


def test_files_that_differ_or_cannot_be_read_are_counted(tmp_path):
    folder = shutil.copytree(FILES / "two", tmp_path / "c")
    other = pq.read_table(folder / "completions_00001.parquet").drop_columns(["short", "note"])
    pq.write_table(other, folder / "completions_00005.parquet")
    (folder / "completions_00003.parquet").write_bytes((folder / "completions_00001.parquet").read_bytes()[:2000])
    ledger, notes = read(folder)
    assert ledger.frame.step.tolist() == [1] * 8 + [2] * 8 + [5] * 8
    assert notes["file that cannot be read to its end"] == 1
    assert notes["step without a file (logging_steps=1 logs every step)"] == 1
    with pytest.raises(InputError, match=r"reward='short': the log has no such column"):
        read(folder, reward={"low_digit": 1, "short": 1})


def test_a_reward_that_no_function_gave_is_none(tmp_path):
    table = pq.read_table(FILES / "two" / "completions_00001.parquet").drop_columns(["low_digit"])
    pq.write_table(table, tmp_path / "completions_00001.parquet")
    ledger, notes = read(tmp_path)
    assert np.isnan(ledger.frame.reward).tolist() == [x is None for x in table.column("short").to_pylist()]
    assert notes["row without a reward"] == int(np.isnan(ledger.frame.reward).sum()) > 0
    pq.write_table(table.drop_columns(["short"]), tmp_path / "completions_00001.parquet")
    with pytest.raises(
        InputError,
        match=r"has the columns \['step', 'prompt', 'note'\]: one must name prompts, and one must hold rewards",
    ):
        read(tmp_path)


def logged(folder, steps, every, evaluated=4, size=16):
    """Completions as TRL writes them. At an evaluation, the last rows of that step's file are the evaluation's."""
    folder.mkdir(parents=True)
    for step in range(1, steps + 1):
        prompts = [f"train {step} {k // 4}" for k in range(size)]
        if step % every == 0:
            prompts = prompts[evaluated * 4 :] + [f"eval {k // 4}" for k in range(evaluated * 4)]
        columns = {"step": [step] * size, "prompt": prompts, "completion": [f"{step} {k}" for k in range(size)]}
        columns |= {"reward_func": [float(k % 3 == 0) for k in range(size)], "advantage": [0.0] * size}
        pq.write_table(pa.table(columns), folder / f"completions_{step:05d}.parquet")


def test_steps_that_evaluated_are_left_out_where_a_checkpoint_tells(tmp_path):
    logged(tmp_path / "completions", 6, every=2, evaluated=1)
    (tmp_path / "checkpoint-6").mkdir()
    history = [{"step": step, "loss": 1.0} for step in range(1, 7)] + [{"step": s, "eval_loss": 1.0} for s in (2, 4, 6)]
    (tmp_path / "checkpoint-6" / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    log = read_log(tmp_path)
    assert set(log.frame.step.tolist()) == {1, 3, 5}
    said = "row of a step with an evaluation, left out: TRL overwrites the training's completions there"
    assert log.notes[said] == 48
    assert log.notes.doubts == [said]
    for broken in ("{", "[]", '{"log_history": 5}', '{"log_history": [{"eval_loss": 1, "step": 1e400}]}'):
        (tmp_path / "checkpoint-6" / "trainer_state.json").write_text(broken)
        assert len(set(read_log(tmp_path).frame.step.tolist())) == 6


def test_without_a_checkpoint_prompts_that_come_at_regular_steps_are_said(tmp_path):
    logged(tmp_path / "completions", 9, every=2, evaluated=2)
    log = read_log(tmp_path)
    assert len(log) == 9 * 16
    assert log.notes.doubts == ["row of a prompt that occurs at regular steps only: is it from evaluations?"]
    assert log.notes[log.notes.doubts[0]] == 4 * 8


@pytest.mark.parametrize("pool", [4, 8, 20])
def test_epochs_in_a_fixed_or_random_order_are_no_evaluations(tmp_path, pool):
    rng = np.random.default_rng(pool)
    for name, order in (("fixed", np.arange(pool)), ("random", None)):
        folder = tmp_path / name / "completions"
        folder.mkdir(parents=True)
        drawn = np.concatenate([rng.permutation(pool) if order is None else order for _ in range(12)]).reshape(-1, 4)
        for step, prompts in enumerate(drawn.tolist(), start=1):
            texts = [f"{x}" for x in prompts for _ in range(4)]
            rewards = [float(k % 3 == 0) for k in range(16)]
            table = {"prompt": texts, "completion": [f"{step} {k}" for k in range(16)], "f": rewards}
            pq.write_table(pa.table(table), folder / f"completions_{step:05d}.parquet")
        log = read_log(tmp_path / name)
        assert log.notes.doubts == []


def test_the_texts_of_prompts_are_found_by_their_ids(tmp_path):
    """Prompts are text, chat messages, or named by a column of ids. A damaged file is left out."""
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 3 + 3?"}]
    shared = {"step": [1, 1], "completion": ["x", "y"], "low_digit": [0.0, 1.0], "advantage": [0.0, 0.0]}
    pq.write_table(pa.table({**shared, "prompt": ["What is 2 + 2?"] * 2}), tmp_path / "completions_00001.parquet")
    (tmp_path / "completions_00002.parquet").write_bytes(b"PAR1 damaged PAR1")
    pq.write_table(pa.table({**shared, "prompt": [chat, chat]}), tmp_path / "completions_00003.parquet")
    wanted = [text_id("What is 2 + 2?"), text_id(chat)]
    texts = {wanted[0]: "What is 2 + 2?", wanted[1]: "What is 3 + 3?"}
    assert read_log(tmp_path).texts == texts
    named = tmp_path / "named"
    named.mkdir()
    table = pa.table({**shared, "prompt": ["a text", "another"], "prompt_id": [7, 8]})
    pq.write_table(table, named / "completions_00001.parquet")
    assert read_log(named).texts == {7: "a text", 8: "another"}


def completions(folder, steps, **functions):
    """Files of two prompts with four rollouts each. Every function has the same eight rewards at each step."""
    folder.mkdir()
    for step in steps:
        table = {"prompt": ["x"] * 4 + ["y"] * 4, "completion": [f"{step} {k}" for k in range(8)], **functions}
        pq.write_table(pa.table(table), folder / f"completions_{step:05d}.parquet")
    return folder


RIGHT, TIDY, STYLE = [0.0] * 4 + [0.0, 1.0, 1.0, 0.0], [1.0, 0.0] * 4, [0.25, 0.5, 0.25, 0.75] * 2


CELLS = st.sampled_from([0.0, 1.0, 1.0, 0.5, 2.0, np.nan])


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=3), min_size=1, max_size=13),
    st.sampled_from([(1.0, 1.0), (1.0, 0.2), (0.5, 3.0), (1.0, 0.0)]),
)
def test_success_is_chosen_as_the_callback_chooses_it(steps, weights):
    returned = RewardHistory.none(2)
    for at, rows in enumerate(steps):
        returned = returned.plus(np.array(rows))
        if (functions := returned.success(weights, 10 if at == len(steps) - 1 else at)) is not None:
            break
    scores_RF = np.array([row for rows in steps for row in rows])
    step_R = [at for at, rows in enumerate(steps) for _ in rows]
    frame = pd.DataFrame(scores_RF, columns=["f", "g"])
    success_R = chosen_success(frame, dict(zip("fg", weights, strict=True)), step_R, Notes(), known=True)
    if not functions:
        assert success_R is None
    else:
        np.testing.assert_array_equal(success_R, np.fmin.reduce(scores_RF[:, functions], axis=1))


def test_a_log_that_cannot_tell_success_asks_for_it(tmp_path):
    none = read_log(completions(tmp_path / "none", [1], style=STYLE, length_penalty=[-x for x in STYLE]))
    assert any("success is not known" in x and "--success" in x for x in none.notes.doubts)
    both = read_log(completions(tmp_path / "both", [1], right=RIGHT, tidy=TIDY))
    assert any("does not have their weights" in x and "--success" in x for x in both.notes.doubts)
    for asked in ({"success": "right"}, {"reward": {"right": 1.0, "tidy": 0.2}}, {"reward": "right"}):
        log = read_log(tmp_path / "both", **asked)
        assert log.frame.success.tolist() == RIGHT
        assert not any("--success" in x for x in log.notes.doubts)


def test_a_function_that_leaves_the_range_later_is_asked_about(tmp_path):
    folder = completions(tmp_path / "c", [1], right=RIGHT, style=STYLE)
    table = pa.table({"prompt": ["x"] * 8, "completion": ["z"] * 8, "right": [2.0, *RIGHT[1:]], "style": STYLE})
    pq.write_table(table, folder / "completions_00002.parquet")
    log = read_log(folder)
    assert any(x.startswith("reward of right=1 outside [0, 1]") and "--success" in x for x in log.notes.doubts)


@pytest.mark.parametrize(
    ("prompts", "rewards", "size", "right"),
    [
        ("aaaabbbbccccdddd", "1001000011110110", 4, [4, 4, 4, 4]),  # pairs sum to 0 by chance
        ("aaaabbbbccccdddd", "1001000101010111", 4, [4, 4, 4, 4]),
        ("aaaaaaaa", "10011101", 4, [4, 4]),  # rows with equal prompts
        ("aaaa", "0011", 2, [2, 2]),
        ("aaaaaabbb", "011100011", 3, [3, 3, 3]),
    ],
)
@pytest.mark.parametrize("scaled", [True, False])
def test_groups_of_a_short_log_are_those_that_nothing_contradicts(tmp_path, prompts, rewards, size, right, scaled):
    group = np.array([*map(float, rewards)]).reshape(-1, size)
    advantages = group - group.mean(axis=1, keepdims=True)
    advantages /= group.std(axis=1, keepdims=True, ddof=1) + 1e-4 if scaled else 1
    table = {"prompt": [*prompts], "completion": [str(k) for k in range(len(prompts))], "f": group.ravel()}
    pq.write_table(pa.table(table | {"advantage": advantages.ravel()}), tmp_path / "completions_00001.parquet")
    frame = read_log(tmp_path).frame
    assert frame.groupby([frame.prompt, frame.get("group", 0 * frame.step)], sort=False).size().tolist() == right


def test_missing_steps_are_in_the_headline(tmp_path, capsys):
    """`logging_steps=5` logs one batch in five."""
    from budgetalloc.cli.__main__ import main

    folder = completions(tmp_path / "c", [5, 10, 15], right=RIGHT)
    assert main(["report", str(folder), "--no-replay"]) == 0
    first = " ".join(capsys.readouterr().out.split("WHERE")[0].split())
    assert "The log has 3 of the run's 15 steps: 12 are missing." in first
    assert main(["report", str(folder), "--json", "--no-replay"]) == 0
    assert json.loads(capsys.readouterr().out)["missing_steps"] == 12
    assert main(["report", str(folder), str(folder)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The log of A lacks 12 of the run's 15 steps" in said
    whole = completions(tmp_path / "whole", [1, 2], right=RIGHT)
    assert read_log(whole).notes.missing == (0, 0)
