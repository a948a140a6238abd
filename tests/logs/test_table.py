"""Tables in CSV and JSON lines: groups or rollouts, with the usual names, in any order, whole or damaged."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

import budgetalloc as ba
from budgetalloc.errors import InputError
from budgetalloc.logs.ledger import read_log
from budgetalloc.report import as_text, report

STEPLESS = "no column of steps: all rows of a prompt are taken as one group. If there is one, name it with step="


def read(path, text=None, **asked):
    if text is not None:
        path.write_text(text)
    log = read_log(path, **asked)
    assert log.kind == "table"
    return log, {k: v for k, v in log.notes.items() if k != "length unknown"}


def test_a_row_is_a_group(tmp_path):
    ledger, notes = read(tmp_path / "c.csv", "step,prompt_id,successes,rollouts\n0,a,1,3\n0,b,2,2\n1,a,0,1\n")
    assert ledger.frame.step.tolist() == [0] * 5 + [1]
    assert ledger.frame.prompt.tolist() == ["a"] * 3 + ["b"] * 2 + ["a"]
    assert ledger.frame.reward.tolist() == [1, 0, 0, 1, 1, 0]
    assert notes == {}


@pytest.mark.parametrize("cell", ["011", '"[0, 1.0, 1]"', "0;1;1", "0 1 1", '"0,1,1"'])
def test_several_rewards_in_one_cell(tmp_path, cell):
    ledger, _ = read(tmp_path / "c.csv", f"step,id,rewards\n0,x,{cell}\n")
    assert ledger.frame.reward.tolist() == [0, 1, 1]


def test_rewards_in_columns_beside_each_other_and_a_name_in_two(tmp_path):
    text = "env,idx,step,reward_0,reward_1\na,1,0,0.5,1\nb,1,0,0,\n"
    ledger, notes = read(tmp_path / "c.csv", text, prompt="env,idx")
    assert ledger.frame.prompt.tolist() == ["a/1", "a/1", "b/1"]
    assert ledger.frame.reward.tolist() == [0.5, 1, 0]
    assert notes == {}
    ledger, notes = read(tmp_path / "c.csv", text.replace("idx", "prompt_idx"))
    assert ledger.frame.prompt.tolist() == [1, 1, 1]  # two prompts with one id, which is noted
    assert notes["second row of a prompt in one step: do several columns together name a prompt?"] == 1
    assert notes["unknown column 'env'"] == 2


def test_columns_can_be_named_and_weighed(tmp_path):
    text = "step;task;accuracy;format\n0;a;1;0.5\n1;a;0;\n2;a;;\n"
    ledger, _ = read(tmp_path / "c.csv", text, prompt="task", reward={"accuracy": 1, "format": 0.2})
    np.testing.assert_allclose(ledger.frame.reward, [1.1, 0, np.nan])
    ledger, notes = read(tmp_path / "c.csv", text, prompt="task", reward="accuracy")
    np.testing.assert_array_equal(ledger.frame.reward, [1, 0, np.nan])
    assert notes == {"unknown column 'format'": 3, "row without a reward": 1}
    with pytest.raises(InputError, match="prompt='tsk': the log has no such column"):
        read(tmp_path / "c.csv", prompt="tsk")
    with pytest.raises(InputError, match="reward='acc': the log has no such column"):
        read(tmp_path / "c.csv", prompt="task", reward="acc")
    with pytest.raises(InputError, match=r"has the columns \['step', 'task', 'accuracy', 'format'\]"):
        read(tmp_path / "c.csv")


def test_without_steps_the_rows_of_a_prompt_are_its_visits(tmp_path):
    ledger, notes = read(tmp_path / "c.csv", "id,correct,n\na,1,1\nb,1,1\na,0,1\nb,0,1\na,0,1\n")
    assert ledger.frame.step.tolist() == [0, 0, 1, 1, 2]
    assert ledger.frame.prompt.tolist() == ["a", "b", "a", "b", "a"]
    assert notes["no column of steps: the rows of a prompt are taken as its visits"] == 1
    ledger, notes = read(tmp_path / "c.csv", "id,reward\na,1\nb,1\na,0\n")
    assert ledger.frame.step.tolist() == [0, 0, 0]
    assert ledger.notes.doubts == [STEPLESS]


def test_rows_that_cannot_be_are_counted(tmp_path):
    odd = ["1,a,5,4", "1,a,-1,4", "1,a,1.5,4", "1,a,x,4", "x,a,1,4", "1.5,a,1,4", "1,a,1,1e12", "1,a,1", "1,a,1,4,9"]
    text = "step,id,successes,rollouts\n0,a,1,4\n" + "\n".join(odd) + "\n1,,1,4\n1,b,0,0\n\n2,a,4,4\n"
    ledger, notes = read(tmp_path / "c.csv", text)
    assert ledger.frame.step.tolist() == [0] * 4 + [2] * 4
    assert notes == {"broken row": len(odd), "row without a prompt": 1, "row of no rollouts": 1}
    assert ledger.notes["broken row"] == len(odd)


def test_packed_files_and_other_separators_and_texts_with_commas(tmp_path):
    text = '\ufeffstep\tprompt\treward\tlength\n3\t"1, 2,\n3?"\t1\t7\n3\tno\t0\t\n'
    (tmp_path / "c.tsv.gz").write_bytes(gzip.compress(text.encode()))
    ledger = read_log(tmp_path / "c.tsv.gz")
    assert ledger.frame.step.tolist() == [3, 3]  # Excel's byte order mark is no part of the first name
    assert ledger.frame.reward.tolist() == [1, 0]
    np.testing.assert_array_equal(ledger.frame.length, [7, np.nan])
    assert len(set(ledger.frame.prompt.tolist())) == 2


def doubts(path, text, **asked):
    path.write_text(text)
    log = read_log(path, **asked)
    return log, log.notes.doubts


def sizes(ledger):
    return set(ledger.frame.groupby(["step", "prompt"]).size())


def test_a_number_of_rows_beside_the_texts_of_prompts_is_no_prompt(tmp_path):
    rows = "".join(f"{k // 8},{k},what is {k // 4}?,{k % 4 == 0:d}\n" for k in range(32))
    ledger, said = doubts(tmp_path / "c.csv", "step,id,question,reward\n" + rows)
    assert sizes(ledger) == {4}
    assert said == ["prompts are named by column 'question'; prompt='id' names them by column 'id'"]
    ledger, said = doubts(tmp_path / "c.csv", "step,id,question,reward\n" + rows, prompt="id")
    assert sizes(ledger) == {1}


def test_a_column_that_seems_to_number_rows_is_said(tmp_path):
    rows = "".join(f"{k // 8},{k},1\n" for k in range(32))
    _, said = doubts(tmp_path / "c.csv", "step,id,reward\n" + rows)
    assert len(said) == 1
    assert "no value of the column 'id' comes twice: does it number rows?" in said[0]
    _, said = doubts(tmp_path / "c.csv", "step,id,reward\n" + rows.replace(",31,", ",30,"))
    assert said == []


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("step", ["", "0,"])
def test_a_column_n_that_numbers_the_rollouts_of_a_prompt_is_no_count(tmp_path, start, step):
    rows = "".join(f"{step}p{k // 8},{k % 8 + start},{k % 3 == 0:d}\n" for k in range(64))
    head = "step,problem_id,n,correct\n" if step else "problem_id,n,correct\n"
    ledger, said = doubts(tmp_path / "c.csv", head + rows)
    assert len(ledger) == 64
    assert sizes(ledger) == {8}
    assert ledger.frame.reward.sum() == 22
    numbered = "column 'n' numbers the rollouts of a prompt: a row is read as one rollout with the reward 'correct'"
    assert said == ([numbered] if step else [numbered, STEPLESS])


def test_a_column_n_of_groups_stays_a_count_and_is_said_where_it_could_be_otherwise(tmp_path):
    groups = "".join(f"{k // 4},p{k % 4},8,{k % 2}\n" for k in range(16))
    ledger, (said,) = doubts(tmp_path / "c.csv", "step,problem_id,n,correct\n" + groups)
    assert len(ledger) == 128
    assert "read as successes of so many rollouts; if a row is one rollout, pass reward='correct'" in said
    ledger, said = doubts(tmp_path / "c.csv", "step,problem_id,n,correct\n" + groups.replace(",1\n", ",3\n"))
    assert len(ledger) == 128
    assert said == []


def test_the_texts_of_prompts_are_found_by_their_ids(tmp_path):
    """A column of texts names the prompts. Reading the texts changes no note of the log."""
    path = tmp_path / "c.csv"
    ledger, notes = read(path, 'step,prompt,reward\n0,"2 + 2, is?",1\n0,3 + 3?,0\n1,broken\n1,3 + 3?,1\n')
    one, other = ledger.frame.prompt[:2]
    assert ledger.texts == {one: "2 + 2, is?", other: "3 + 3?"}
    assert notes == {"broken row": 1}
    path.write_text("step,prompt_id,prompt,reward\n0,a,3 + 3?,1\n")
    assert read_log(path).texts == {"a": "3 + 3?"}


ROWS = [(0, "a", 1.0), (0, "a", 0.0), (0, "b", 0.0), (1, "b", 0.5), (1, "a", None), (2, 7, 1.0)]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("folder", [False, True])
def test_json_lines_are_read_as_the_csv_with_the_same_columns(tmp_path, packed, folder):
    table, lines = tmp_path / "one" / "log.csv", tmp_path / "other" / f"log.jsonl{'.gz' if packed else ''}"
    for path in (table, lines):
        path.parent.mkdir()
    cells = [",".join("" if x is None else str(x) for x in row) for row in ROWS]
    table.write_text("\n".join(["step,prompt_id,reward,note", *(f"{x},n" for x in cells)]) + "\n")
    names = ("step", "prompt_id", "reward", "note")
    text = "".join(json.dumps(dict(zip(names, (*row, "n"), strict=True))) + "\n" for row in ROWS).encode()
    lines.write_bytes(gzip.compress(text) if packed else text)
    one, other = read_log(table), read_log(lines.parent if folder else lines)
    assert (one.kind, dict(one.notes)) == (other.kind, dict(other.notes))
    assert one.frame.prompt.tolist() == other.frame.prompt.tolist()
    pd.testing.assert_frame_equal(one.frame, other.frame)


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_table_in_which_a_person_can_point_at_the_columns_is_read(tmp_path):
    rows = [{"update": k // 4, "task": f"t{k // 2 % 2}", "scalar": k / 8, "tokens": 50 + k} for k in range(8)]
    path = lines(tmp_path / "train_rollouts.jsonl", rows)
    with pytest.raises(InputError, match=r"has the columns \['update', 'task', 'scalar', 'tokens'\]: name those of"):
        read_log(path)
    for place in (path, tmp_path):
        log = read_log(place, step="update", prompt="task", reward="scalar", length="tokens")
        assert log.frame.step.tolist() == [0] * 4 + [1] * 4
        assert log.frame.prompt.tolist() == ["t0", "t0", "t1", "t1"] * 2
        assert log.frame.reward.tolist() == [k / 8 for k in range(8)]
        assert log.frame.length.tolist() == [50 + k for k in range(8)]
    with pytest.raises(InputError, match=r"step='epoch': the log has no such column\. It has \['update', 'task'"):
        read_log(path, step="epoch", prompt="task", reward="scalar")


def test_a_line_of_lists_is_a_row_for_each_entry(tmp_path):
    """ms-swift writes a line for each logging step."""
    rows = [
        {"step": [str(s)] * 4, "prompt": ["q1", "q1", "q2", "q2"], "Accuracy": [1.0, 0.0, 1.0, 1.0]} for s in (1, 2)
    ]
    log = read_log(lines(tmp_path / "completions.jsonl", rows), prompt="prompt", reward="Accuracy")
    assert log.frame.step.tolist() == [1] * 4 + [2] * 4
    assert log.frame.prompt.tolist() == ["q1", "q1", "q2", "q2"] * 2
    assert log.frame.reward.tolist() == [1.0, 0.0, 1.0, 1.0] * 2


def test_a_line_of_lists_may_have_several_rewards_and_facts_about_them(tmp_path):
    row = {"step": ["5"] * 4, "prompt": ["p", "p", "q", "q"], "completion": list("abcd")}
    row |= {"MathAccuracy": [1.0, 0.0, 1.0, 1.0], "Format": [1.0, 1.0, 0.0, None]}
    weights = {"MathAccuracy": 1.0, "Format": 0.5}
    for advantages, doubted in (([0.5, -0.5, 0.0, 0.0], 0), ([0.5, 0.5, 0.0, 0.0], 1)):
        path = lines(tmp_path / "completions.jsonl", [row | {"advantages": advantages}])
        log = read_log(path, prompt="prompt", reward=weights)
        assert log.frame.reward.tolist() == [1.5, 0.5, 1.0, 1.0]
        assert log.frame.step.tolist() == [5] * 4
        assert len(log.notes.doubts) == doubted


def test_a_column_of_rewards_with_a_number_in_each_row_is_one_rollout_a_row(tmp_path):
    """NeMo RL writes the messages of a rollout, and its reward in a column called rewards."""
    rows = [{"content": [f"user: q{k // 2}"], "rewards": float(k % 2), "idx": k} for k in range(4)]
    log = read_log(lines(tmp_path / "train_data_step1.jsonl", rows), prompt="content", reward="rewards")
    assert log.frame.reward.tolist() == [0.0, 1.0, 0.0, 1.0]
    assert log.frame.prompt.nunique() == 2


def test_a_json_list_is_a_table_and_lists_of_lengths_belong_to_lists_of_rewards(tmp_path):
    rows = [
        {"step": step, "prompt_id": name, "reward": [1, 0], "length": lengths}
        for step, name, lengths in ((0, "a", [5, 7]), (1, "b", [9]), (1, "a", [2, -1]))
    ]
    (tmp_path / "list.json").write_text(json.dumps(rows, indent=1))
    frame = ba.Ledger.read(tmp_path / "list.json").frame
    assert frame[["prompt", "reward"]].to_numpy().tolist() == [[x, r] for x in "aba" for r in (1.0, 0.0)]
    assert frame["length"].fillna(-1).tolist() == [5, 7, -1, -1, 2, -1]


@pytest.mark.parametrize("name", ["a.parquet", "a.table.json", "a.csv", "a.jsonl", "a.json"])
@pytest.mark.parametrize("folder", [False, True])
def test_a_pointer_of_git_lfs_is_named(tmp_path, name, folder):
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    if folder and name == "a.json":
        pytest.skip("is not looked for in a folder")
    with pytest.raises(ba.InputError, match="is a pointer of Git LFS"):
        ba.Ledger.read(tmp_path if folder else tmp_path / name)


def test_a_report_without_steps_claims_nothing_that_needs_them(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"prompt": "ab"[at % 2], "reward": at % 3 % 2}) + "\n" for at in range(12)))
    run = report(log, policies=())
    assert run.verdict == "Look at what the log leaves open (CAREFUL)."
    text = " ".join(as_text(run).split())
    assert "The log names no steps, so its groups are not known, nor what was wasted." in text
    assert "no rollout was wasted" not in text


def test_an_empty_log_is_said_to_be_empty(tmp_path):
    (tmp_path / "log.csv").write_text("step,prompt,reward\n")
    with pytest.raises(ba.InputError, match="The log holds no row that could be read"):
        report(tmp_path / "log.csv", policies=())


@pytest.mark.parametrize(
    "listed", [[{"text": "t", "correct": True}] * 8, ["t"] * 8, '[{"text": "t"}]', "see file 3", {"0": "t"}, [1, 0]]
)
@pytest.mark.parametrize("name", ["rollouts", "samples", "num_rollouts"])
def test_counts_are_told_from_a_column_of_the_rollouts_themselves(tmp_path, listed, name):
    rows = [{"question_id": p, "n_correct": p, "n_rollouts": 8, name: listed} for p in range(6)]
    ledger = read_log(lines(tmp_path / "raw.jsonl", rows))
    assert (len(ledger), sizes(ledger)) == (48, {8})
    assert ledger.frame.reward.sum() == 15


def test_counts_under_other_names_are_doubted_and_the_errors_say_how_to_name_them(tmp_path):
    text = "qid,c_rl,k\n" + "".join(f"{p},{p % 9},8\n" for p in range(18))
    rename = "Columns of counts have to be renamed: 'successes' and 'rollouts'."
    with pytest.raises(InputError, match=rename):
        read(tmp_path / "c.csv", text)
    ledger, said = doubts(tmp_path / "c.csv", text, prompt="qid", reward="c_rl")
    counted = f"column 'c_rl' holds whole numbers up to 8, one for each prompt: does it count successes? {rename}"
    assert said == [STEPLESS, counted]
    ledger, _ = read(tmp_path / "c.csv", text.replace("c_rl,k", "successes,rollouts"), prompt="qid")
    assert len(ledger) == 144
    graded = "step,id,reward\n" + "".join(f"0,{p // 2},{p % 9}\n" for p in range(18))
    assert doubts(tmp_path / "c.csv", graded)[1] == []


@pytest.mark.parametrize("indent", [None, 1])
def test_one_json_document_is_told_from_rows(tmp_path, indent):
    path, rows = tmp_path / "results.json", [[0, "007", 1.0], [0, "007", 0.0], [1, "1e5", None]]
    path.write_text(json.dumps({"columns": ["step", "prompt_id", "reward"], "data": rows}, indent=indent))  # mlflow
    assert read_log(path).frame.prompt.tolist() == ["007", "007", "1e5"]
    evalplus = {"date": "d", "eval": {f"HumanEval/{p}": [{"base_status": "pass"}] * 4 for p in range(3)}}
    for text in (evalplus, {"results": [{"score": 1.0, "x": 2}] * 3}):
        path.write_text(json.dumps(text, indent=indent))
        with pytest.raises(InputError, match=rf"is one JSON document with the keys \['{next(iter(text))}'.*a line of"):
            read_log(path)
    for first in ("{", '{"step": 0, "pro'):  # a line that ends early
        path.write_text(first + '\n{"step": 0, "prompt_id": "a", "reward": 1}\n')
        log, notes = read(path)
        assert (len(log), notes) == (1, {"broken row": 1})
