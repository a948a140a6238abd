"""Logs of other tools, in files of the shape that each of them writes. The docs list them with their versions."""

import json
import random

import pytest

from budgetalloc.beliefs.ids import text_id
from budgetalloc.errors import InputError
from budgetalloc.logs.ledger import read_log

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
STEPLESS = "no column of steps: all rows of a prompt are taken as one group. If there is one, name it with step="


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sizes(log):
    return log.frame.groupby(["step", "prompt"], sort=False).size().tolist()


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_letters_of_inspect_ai_are_scores(tmp_path, form):
    """The rows of `samples_df`: a sample for each epoch. `id` names the prompt, `sample_id` the row."""
    letters = ["C", "I", "P", "N"] * 3
    table = {"sample_id": [f"r{k}" for k in range(12)], "id": [f"00{k // 4}" for k in range(12)]}
    table |= {"epoch": [k % 4 + 1 for k in range(12)], "input": [f"user: {k // 4}" for k in range(12)]}
    frame = pa.table(table | {"score_match": letters, "total_tokens": [8] * 12}).to_pandas()
    path = tmp_path / f"samples.{form}"
    if form == "parquet":
        frame.to_parquet(path)
    elif form == "csv":
        frame.to_csv(path, index=False)
    else:
        lines(path, frame.to_dict("records"))
    log = read_log(path, prompt="id", reward="score_match")
    assert log.frame.reward.tolist() == [1.0, 0.0, 0.5, 0.0] * 3
    assert (sizes(log), log.frame.prompt[0]) == ([4] * 3, "000")
    assert [count for text, count in log.notes.items() if text.startswith("verdicts of 'score_match'")] == [12]
    assert log.notes.doubts == [STEPLESS]
    frame["score_match"] = ["C", "good"] * 6
    frame.to_parquet(tmp_path / "odd.parquet")
    with pytest.raises(InputError, match="the column holds no numbers, but 'C'"):
        read_log(tmp_path / "odd.parquet", prompt="id", reward="score_match")


def samples(filters, filtered, repeats):
    """The lines of lm-eval's `--log_samples`: one for each document and filter."""
    for p in range(5):
        for name in filters:
            texts = [f"is {p} {k}" for k in range(repeats)]
            row = {"doc_id": p, "doc": {"question": f"q{p}"}, "resps": [texts], "filtered_resps": filtered(texts)}
            yield row | {"filter": name, "metrics": ["exact_match"], "exact_match": p % 2 / repeats}


def test_lines_of_lm_eval_are_found_below_the_folder_of_the_model(tmp_path):
    path = lines(tmp_path / "model" / "samples_gsm8k_2026.jsonl", samples(["none"], lambda x: x[:1], 1))
    (tmp_path / "model" / "results_2026.json").write_text("{}")
    log = read_log(tmp_path, prompt="doc_id", reward="exact_match")
    assert (log.path, log.frame.reward.tolist(), log.notes.doubts) == (path, [0.0, 1.0, 0.0, 1.0, 0.0], [STEPLESS])
    with pytest.raises(InputError, match=r"samples_gsm8k_2026.jsonl has the columns \['doc_id', 'doc', 'resps'"):
        read_log(tmp_path)


@pytest.mark.parametrize(
    ("filters", "filtered"),
    [(["none"], lambda x: x[:1]), (["first_k"], lambda x: [x]), (["strict", "flex"], lambda x: x[:1])],
)
def test_several_responses_in_a_line_of_lm_eval_are_not_one_rollout(tmp_path, filters, filtered):
    path = lines(tmp_path / "samples.jsonl", samples(filters, filtered, 4))
    said = read_log(path, prompt="doc_id", reward="exact_match").notes.doubts
    assert any(text.startswith("column 'resps' says 4 rollouts of a group, of which the log has") for text in said)
    assert any("'filter' (flex, strict) has several values" in text for text in said) == (len(filters) > 1)


def test_scores_of_tokens_are_one_rollout(tmp_path):
    """SkyRL writes a folder for each evaluation, with its sums in another file."""
    draw, right = random.Random(0), [float(k % 3 == 0) for k in range(24)]
    rows = [
        {"input_prompt": f"q{k // 4}", "output_response": f"a{k}", "score": [0.0] * draw.randint(1, 9) + [right[k]]}
        for k in range(24)
    ]
    lines(tmp_path / "global_step_5_evals" / "gsm8k.jsonl", rows)
    lines(tmp_path / "global_step_5_evals" / "aggregated_results.jsonl", [{"eval/all/avg_score": 0.3}])
    for path in (tmp_path, tmp_path / "global_step_5_evals"):
        log = read_log(path, prompt="input_prompt", reward="score")
        assert (log.frame.reward.tolist(), sizes(log)) == (right, [4] * 6)
        assert log.notes.doubts[0].startswith("column 'score' holds lists that are 0 up to their last number")
    rows = [row | {"right": k} for row, k in zip(rows, right, strict=True)]
    log = read_log(lines(path / "gsm8k.jsonl", rows), prompt="input_prompt", reward="score", success="right")
    assert log.frame.success.tolist() == right
    for k, row in enumerate(rows):
        row["score"] = [1.0, 0.0, float(k % 2)] + [0.0] * (k % 2)  # of the rollouts of a group
    assert len(read_log(lines(tmp_path / "groups.jsonl", rows), prompt="input_prompt", reward="score")) == 24 * 3 + 12


def test_trajectories_of_art_have_the_step_of_their_file(tmp_path):
    turn = pa.struct({"role": pa.string(), "content": pa.string(), "trainable": pa.bool_()})
    for step in (0, 2, 10):
        rows = [
            {"group_index": k // 4, "reward": float((k + step) % 3 == 0), "metrics": None, "messages": [
                {"role": "user", "content": f"q{k // 4 + step}", "trainable": False},
                {"role": "assistant", "content": f"a{step} {k}", "trainable": True},
                {"role": "user", "content": f"again {k}", "trainable": False},
            ]}
            for k in range(8)
        ]  # fmt: skip
        table = {name: [row[name] for row in rows] for name in ("group_index", "reward", "metrics")}
        table["messages"] = pa.array([row["messages"] for row in rows], pa.list_(turn))
        (tmp_path / "trajectories" / "train").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(table), tmp_path / "trajectories" / "train" / f"{step:04d}.parquet")
    log = read_log(tmp_path)
    assert (log.kind, log.frame.step.tolist()) == ("art", [0] * 8 + [2] * 8 + [10] * 8)
    assert log.frame.prompt[8] == text_id([{"role": "user", "content": "q2"}])
    assert (sizes(log), log.frame.prompt.nunique(), log.notes.doubts) == ([4] * 6, 6, [])
    assert read_log(tmp_path / "trajectories" / "train" / "0002.parquet").frame.step.tolist() == [2] * 8


def test_broken_trajectories_of_art_are_counted(tmp_path):
    broken = [None, [], ["x"], [{"role": "user"}], 5, [{"role": "assistant", "content": "a"}]]
    rows = [{"group_index": 0, "reward": 1.0, "messages": x} for x in [[{"role": "user", "content": "q"}], *broken]]
    log = read_log(lines(tmp_path / "0001.jsonl", rows))
    assert (log.kind, len(log), log.notes["row without a prompt"]) == ("art", 1, len(broken))


def test_the_id_of_a_rollout_of_verl_is_not_needed(tmp_path):
    """The trainer V1 writes `uid`: sample, rollout and output."""
    for step in (1, 2, 10):
        rows = [{"input": f"q{k // 4}", "output": f"{k}", "score": k % 2, "uid": f"{step}_{k}_0"} for k in range(8)]
        lines(tmp_path / f"{step}.jsonl", rows)
    log = read_log(tmp_path)
    assert (log.kind, sizes(log), log.frame.prompt.nunique()) == ("verl", [4] * 6, 2)


def test_a_line_of_verl_without_its_step_has_that_of_its_file(tmp_path):
    rows = [{"input": "q", "output": "a", "score": "1.0", "step": "7"}, {"input": "q", "output": "b", "score": "0.0"}]
    log = read_log(lines(tmp_path / "7.jsonl", rows))  # some versions write every value as text
    assert (log.frame.step.tolist(), log.frame.reward.tolist()) == ([7, 7], [1.0, 0.0])


def test_ids_that_mlflow_changed_in_earlier_rows_are_doubted(tmp_path):
    rows = [[0, 7, 1.0], [0, 8, 0.0], [1, "007", 1.0], [1, "008", 0.0]]
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"columns": ["step", "prompt_id", "reward"], "data": rows}))
    assert read_log(path).notes.doubts[0].startswith("ids of prompts are numbers in some rows and digits as text")
    path.write_text(json.dumps({"columns": ["step", "prompt_id", "reward"], "data": [*rows[2:], [0, "a", 1]]}))
    assert read_log(path).notes.doubts == []


def test_columns_are_only_asked_for_where_they_help(tmp_path):
    """lighteval writes a row of records for each document."""
    rows = [{"doc": {"query": f"q{k}"}, "model_response": {"text": ["a"]}, "metric": {"em": 1.0}} for k in range(4)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "details_gsm8k_2026.parquet")
    with pytest.raises(InputError, match=r"has records in its columns \['doc', 'model_response', 'metric'\]: write a"):
        read_log(tmp_path)


def test_a_reference_answer_is_no_response(tmp_path):
    rows = [{"step": 0, "prompt": f"q{k // 4}", "answer": "7", "completion": f"{k}", "reward": k % 2} for k in range(8)]
    assert read_log(lines(tmp_path / "a.jsonl", rows)).notes.doubts == []
