"""Results of verifiers, as versions 0.4 and 0.1 wrote them: three tasks with four rollouts each."""

import gzip
import json
from pathlib import Path

import numpy as np

from budgetalloc.logs.ledger import read_log

FILES = Path(__file__).parent / "files" / "verifiers"


def records(name):
    return [json.loads(line) for line in gzip.decompress((FILES / name).read_bytes()).splitlines()]


def read(path, **asked):
    log = read_log(path, **asked)
    assert log.kind == "verifiers"
    return log, dict(log.notes)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_an_episode_is_a_rollout_of_its_task_with_the_weighted_sum_of_its_rewards():
    ledger, notes = read(FILES / "traces.jsonl.gz")
    episodes = records("traces.jsonl.gz")
    assert ledger.frame.prompt.tolist() == [x["task"]["key"] for x in episodes]
    assert ledger.frame.step.tolist() == [0] * 12
    sums = [x["traces"][0]["rewards"] for x in episodes]
    expected = [x["low"]["score"] + 0.5 * x["short"]["score"] if x else np.nan for x in sums]
    np.testing.assert_array_equal(ledger.frame.reward, expected)
    np.testing.assert_array_equal(ledger.frame.length, [x["num_output_tokens"] or np.nan for x in episodes])
    assert notes == {"row without a reward": 1, "length unknown": 1, "reward outside [0, 1]": 1}  # one call failed


def test_a_flat_row_is_a_rollout_of_its_example():
    ledger, notes = read(FILES / "results.jsonl.gz")
    rows = records("results.jsonl.gz")
    assert ledger.frame.prompt.tolist() == [row["example_id"] for row in rows] == [0] * 4 + [1] * 4 + [2] * 4
    assert ledger.frame.reward.tolist() == [row["reward"] for row in rows]
    assert ledger.frame.length.tolist() == [row["token_usage"]["output_tokens"] for row in rows]
    assert notes == {"reward outside [0, 1]": 1}


def test_a_rollout_that_failed_has_no_reward_rather_than_zero(tmp_path):
    rows = records("results.jsonl.gz")
    rows[0] |= {"error": {"error_chain_repr": "ModelError"}, "reward": 0.0}
    ledger, notes = read(write(tmp_path / "results.jsonl", rows))
    assert np.isnan(ledger.frame.reward[0])
    assert notes["row without a reward"] == 1


def test_what_is_unknown_or_broken_is_counted(tmp_path):
    episodes = records("traces.jsonl.gz")[:3]
    judge = json.loads(json.dumps(episodes[0]["traces"][0]))
    judge["agent"]["trainable"] = False
    episodes[0]["traces"].append(judge)
    episodes[2]["traces"] = []
    odd = [{"task": {}, "traces": [{}]}, {"task": {"key": "x"}, "traces": 3}, {"hello": 1}]
    ledger, notes = read(write(tmp_path / "traces.jsonl", [*episodes, *odd]))
    assert len(ledger) == 3
    assert notes["trace of a model that is not trained"] == 1
    assert notes["broken row"] == 3
    assert notes["row without a reward"] == 1  # the episode that has no trace was spent all the same


def test_a_column_of_the_task_can_name_the_prompt(tmp_path):
    ledger, _ = read(FILES / "traces.jsonl.gz", prompt="limit")
    assert ledger.frame.prompt.tolist() == [0] * 4 + [5] * 4 + [10] * 4
    _, notes = read(FILES / "traces.jsonl.gz", prompt="absent")
    assert notes == {"broken row": 12}
