"""Runs of W&B, written here record by record. Metrics and tables that wandb does not write are counted or named."""

import json

import pytest

from budgetalloc.errors import InputError
from budgetalloc.logs.reader import open_log, read_all

pb = pytest.importorskip("wandb.proto.wandb_internal_pb2")
TABLE = {"columns": ["step", "prompt", "completion", "f", "advantage"], "data": [[1, "a", "x", 1.0, 0.0]]}


@pytest.fixture
def run(tmp_path, framed):
    """`run(metrics, table, config)` writes a run with one good table at step 1, then these metrics, and reads it."""

    def make(more=(), table=TABLE, config=None, **asked):
        folder = tmp_path / "run-x"
        (folder / "files" / "media").mkdir(parents=True)
        (folder / "files" / "media" / "t.json").write_text(table if isinstance(table, str) else json.dumps(table))
        good = {"train/global_step": "1", "train/rewards/f/mean": "1", "completions/path": '"media/t.json"'}
        records = [pb.Record() for _ in range(2 + len(more))]
        for key, text in (config or {}).items():
            records[0].config.update.add(key=key, value_json=text)
        for record, metrics in zip(records[1:], [good | {"completions/nrows": "1"}, *more], strict=True):
            for key, text in metrics.items():
                record.history.item.add(key=key, value_json=text)
        (folder / "run-x.wandb").write_bytes(framed([x.SerializeToString() for x in records]))
        log = open_log(folder, **asked)
        return read_all(log), log.notes

    return make


def test_a_whole_run_is_read(run):
    ledger, notes = run()
    assert (ledger.step_R.tolist(), ledger.rewards_R.tolist()) == ([1], [1.0])
    assert set(notes) == {"length unknown", "run without an end: it was killed, or is still running"}


@pytest.mark.parametrize(
    "metrics",
    [
        {"train/global_step": "null"},
        {"train/global_step": "NaN"},
        {"train/global_step": "1e400"},
        {"train/global_step": "{"},
        {"train/global_step": "[" * 100_000},
        {"completions/path": '"media/t.json"', "completions/nrows": "null"},
        {"completions/path": '"media/t.json"'},
        {"completions/path": "5", "completions/nrows": "1"},
    ],
)
def test_metrics_that_cannot_be_read_cost_their_record(run, metrics):
    ledger, notes = run([metrics])
    assert ledger.step_R.tolist() == [1]
    assert notes["broken record of the .wandb file"] == 1


@pytest.mark.parametrize("weights", ["5", '"x"', '["x"]', "[1, 2]", '{"f": 1}', "[1e400, {}]"])
def test_weights_that_are_none_are_named(run, weights):
    with pytest.raises(InputError, match=r"reward_weights=.* do not fit its reward functions \['f'\]"):
        run(config={"reward_weights": weights})


@pytest.mark.parametrize("path", ["../run-x.wandb", "/dev/zero", "media", "../../secret.json", "x\0y", "y" * 5000])
def test_a_table_outside_the_run_is_not_opened(run, tmp_path, path):
    (tmp_path / "secret.json").write_text(json.dumps(TABLE))
    ledger, notes = run([{"completions/path": json.dumps(path), "completions/nrows": "1"}])
    assert ledger.step_R.tolist() == [1]
    assert notes["completions table whose file is missing"] + notes["completions table whose file is broken"] == 1


@pytest.mark.parametrize(
    "table",
    ["[" * 100_000, "5", '{"columns": 5}', TABLE | {"columns": [1, 2, 3, 4, {}]}, TABLE | {"data": 5}],
)
def test_a_table_of_another_shape_is_counted(run, table):
    with pytest.raises(InputError, match=r"whose file is broken"):
        run(table=table)


def test_a_table_has_a_bound(run):
    with pytest.raises(InputError, match=r"more than 16 \* max_line=160 bytes, skipped"):
        run(table=TABLE | {"more": "x" * 200}, max_line=10)


def test_a_reward_function_is_success_by_its_name(run):
    ledger, _ = run(success="f", reward={"f": 3.0})
    assert (ledger.rewards_R.tolist(), ledger.success_R.tolist()) == ([3.0], [1.0])
