"""Metrics, histograms and the table of the most expensive prompts reach real trackers.

The expected values come from the ledger of the same run.
"""

import json
import logging
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import attach, rows, trained
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers.integrations import TensorBoardCallback

import budgetalloc as ba
from budgetalloc.logs.ledger import read_log
from budgetalloc.trl.trackers import COLUMNS, PANEL, Trackers, histogram_of_counts

EXPECTED = [
    *("success", "brier", "brier_pool_mean", "prompts", "pool_seen", "rewards_clipped", "all_equal", "seconds"),
    *("advantage/frac_nonzero", "advantage/mean_abs"),
]
COUNTS, PREDICTED, TABLE = (f"budgetalloc/{name}" for name in ("counts", "predicted", "most_expensive_prompts"))


def train(build, report_to, resume=None, **config):
    trainer = build(rows(40), **{"max_steps": 3, "report_to": report_to, **config})
    callback = trained(trainer, ba.adaptive(), ledger=f"{trainer.args.output_dir}/ledger.jsonl", resume=resume)
    return trainer, callback


def rows_of(ledger, steps, *names):
    """The rollouts of these steps of the ledger, as tuples of these columns."""
    frame = ledger.frame.assign(count=ledger.frame.groupby(["step", "prompt"]).prompt.transform("size"))
    columns = [frame[name].tolist() for name in ("step", *names)]
    return [row for step, *row in zip(*columns, strict=True) if step in steps]


def groups(ledger, steps):
    """The count and the predicted rate of each prompt in these steps of the ledger, sorted."""
    of_prompt = {(s, x): (int(n), p) for s, x, n, p in rows_of(ledger, steps, "step", "prompt", "count", "predicted")}
    return tuple(map(list, zip(*sorted(of_prompt.values()), strict=True)))


def spent(ledger, steps):
    """Rollouts, tokens and success of each prompt over these steps of the ledger."""
    sums = {}
    for name, reward, length in rows_of(ledger, steps, "prompt", "reward", "length"):
        sums.setdefault(str(name), []).append((length, reward))
    return {name: (len(x), sum(n for n, _ in x), np.mean([r for _, r in x])) for name, x in sums.items()}


def check_histograms(ledger, step, counts, predicted):
    """Checks (values, edges) of both histograms at a logged step against the ledger, whose steps begin at 0."""
    n_G, p_G = groups(ledger, {step - 1})
    for shown, expected in zip(counts, histogram_of_counts(np.array(n_G)), strict=True):
        np.testing.assert_array_equal(shown, expected)
    values, edges = predicted
    np.testing.assert_allclose(edges, np.arange(21) / 20, atol=1e-12)
    below = np.array([0, *np.cumsum(values)])[:-1]  # the last edge, 1, belongs to the last bin
    near = 1e-5  # the ledger rounds
    for edge, count in zip(edges[:-1], below, strict=True):
        assert sum(p < edge - near for p in p_G) <= count <= sum(p < edge + near for p in p_G)
    assert sum(values) == len(p_G)


def check_table(ledger, step, table, policy=None):
    """Checks the table at a logged step: the prompts with most tokens until then, and their costs."""
    known = spent(ledger, set(range(step)))
    assert [row[2] for row in table] == sorted((tokens for _, tokens, _ in known.values()), reverse=True)[:20]
    for name, rollouts, tokens, success, believed, text in table:
        assert text == f"{int(name):03d}="  # the prompt itself, not only its id
        assert (rollouts, tokens) == known[name][:2]
        assert success == pytest.approx(known[name][2])
        if policy is not None:
            assert believed == pytest.approx(policy.estimator.belief([int(name)]).mean[0])
        assert 0 < believed < 1


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """A folder for offline runs of W&B, which end with the test."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "staged"))
    monkeypatch.setenv("WANDB_SILENT", "true")
    import wandb

    wandb.teardown()  # it read the environment once, at the first run of this process
    yield tmp_path
    wandb.teardown()


def test_wandb_offline(build, offline):
    import wandb

    trainer, callback = train(build, "wandb")
    summary = dict(wandb.run.summary)
    wandb.finish()
    last = [entry for entry in trainer.state.log_history if "loss" in entry][-1]
    for key in EXPECTED:
        assert summary[f"train/budgetalloc/{key}"] == last[f"budgetalloc/{key}"]
    panel = {key: last[key] for name in PANEL if (key := f"budgetalloc/{name}") in last}
    assert len(panel) >= 8  # "explained" and "frac_mixed" are not known in every step
    assert panel.items() <= summary.items()
    assert {key for key in summary if key.startswith("budgetalloc/")} == {*panel, COUNTS, PREDICTED, TABLE}
    ledger = ba.Ledger.read(callback.ledger_path)
    check_histograms(ledger, 3, *((summary[key]["values"], summary[key]["bins"]) for key in (COUNTS, PREDICTED)))
    (folder,) = offline.glob("wandb/offline-run-*")
    tables = [json.loads(path.read_text()) for path in (folder / "files" / "media").rglob("most_expensive*.json")]
    assert [table["columns"] for table in tables] == [list(COLUMNS)] * 3
    last_table = max((x["data"] for x in tables), key=lambda data: sum(row[1] for row in data))
    check_table(ledger, 3, last_table, callback.policy)
    assert summary[TABLE]["nrows"] == min(20, len(set(ledger.frame.prompt.tolist())))
    assert summary["train/global_step"] == 3
    assert list(folder.glob("*.wandb"))


def events(trainer, tmp_path):
    (file,) = tmp_path.rglob("events.out.tfevents.*")
    recorded = EventAccumulator(str(file), size_guidance={"histograms": 0, "tensors": 0, "scalars": 0})
    recorded.Reload()
    return recorded


def texts(recorded):
    """The rows of the table at each step, from TensorBoard's text."""
    tables = {x.step: x.tensor_proto.string_val[0].decode() for x in recorded.Tensors(f"{TABLE}/text_summary")}
    cells = {step: [line.strip("| ").split(" | ") for line in text.splitlines()] for step, text in tables.items()}
    assert all(tuple(lines[0]) == COLUMNS for lines in cells.values())
    return {
        step: [(name, int(n), int(tokens), float(rate), float(p), text) for name, n, tokens, rate, p, text in lines[2:]]
        for step, lines in cells.items()
    }


def test_tensorboard(build, tmp_path):
    trainer, callback = train(build, "tensorboard")
    recorded, ledger = events(trainer, tmp_path), ba.Ledger.read(callback.ledger_path)
    for key in EXPECTED:
        assert [x.step for x in recorded.Scalars(f"train/budgetalloc/{key}")] == [1, 2, 3]
    for key in {*EXPECTED} & {*PANEL}:
        shown, logged = (recorded.Scalars(f"{group}budgetalloc/{key}") for group in ("", "train/"))
        assert [(x.step, x.value) for x in shown] == [(x.step, x.value) for x in logged]
    for counts, predicted in zip(recorded.Histograms(COUNTS), recorded.Histograms(PREDICTED), strict=True):
        assert counts.step == predicted.step
        n_G, p_G = groups(ledger, {counts.step - 1})
        shown = counts.histogram_value
        assert (shown.min, shown.max, shown.num, shown.sum) == (min(n_G), max(n_G), len(n_G), sum(n_G))
        filled = {round(edge - 0.5): n for edge, n in zip(shown.bucket_limit, shown.bucket, strict=True) if n}
        assert filled == {n: n_G.count(n) for n in set(n_G)}
        assert predicted.histogram_value.sum == pytest.approx(sum(p_G), abs=1e-4)
    assert [x.step for x in recorded.Histograms(COUNTS)] == [1, 2, 3]
    for step, table in texts(recorded).items():
        known = spent(ledger, set(range(step)))
        assert [row[2] for row in table] == sorted((tokens for _, tokens, _ in known.values()), reverse=True)[:20]
        assert all(row[3] == pytest.approx(known[row[0]][2], abs=1e-3) for row in table)


def test_trackio(tmp_path):
    """In a separate process, because trackio reads TRACKIO_DIR when it is imported."""
    code = """
import numpy as np, trackio
from budgetalloc.trl import trackers
counts, rates, row = np.array([2, 2, 5]), np.array([0.1, 0.5, 1.0]), ("7", 4, 30, 0.5, 0.25, "007=")
trackio.init(project="p")
trackers.TRACKERS["trackio"](None, trackers._Shown(3, {"brier": 0.25}, counts, rates, [row]))
trackio.finish()
"""
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": root, "TRACKIO_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, "-c", code], timeout=900, check=True, env=env)
    (database,) = tmp_path.glob("*.db")
    with sqlite3.connect(database) as connection:
        ((text,),) = connection.execute("SELECT metrics FROM metrics")
    entry = json.loads(text)
    assert entry["train/global_step"] == 3
    assert entry["budgetalloc/brier"] == 0.25
    assert entry[COUNTS]["values"] == [2, 0, 0, 1]
    assert sum(entry[PREDICTED]["values"]) == 3
    assert entry[TABLE]["_value"] == [dict(zip(COLUMNS, ("7", 4, 30, 0.5, 0.25, "007="), strict=True))]


def test_a_log_covers_all_steps_since_the_last(build, tmp_path):
    trainer, callback = train(build, "tensorboard", max_steps=4, logging_steps=2)
    ledger = ba.Ledger.read(callback.ledger_path)
    shown = {x.step: x.histogram_value for x in events(trainer, tmp_path).Histograms(COUNTS)}
    assert {step: x.num for step, x in shown.items()} == {s: len(groups(ledger, {s - 2, s - 1})[0]) for s in (2, 4)}
    assert all(x.sum == 2 * 16 for x in shown.values())


def test_a_ledger_knows_the_texts_of_its_prompts(build):
    """A report can then show a prompt that is named by an id or a hash."""
    _, callback = train(build, "none", max_steps=2)
    ids = set(ba.Ledger.read(callback.ledger_path).frame.prompt.tolist())
    assert read_log(callback.ledger_path).texts == {name: f"{name:03d}=" for name in ids}


def test_a_missing_tracker_causes_one_warning(build, caplog):
    trainer = build(rows(40), max_steps=3, report_to="tensorboard")
    trainer.remove_callback(TensorBoardCallback)
    attach(trainer, ba.adaptive())
    with caplog.at_level(logging.WARNING, logger="budgetalloc"):
        trainer.train()
    assert trainer.state.global_step == 3
    (warning,) = [record for record in caplog.records if record.name == "budgetalloc.trl.trackers"]
    assert "tensorboard" in warning.getMessage()


def test_nothing_is_collected_that_is_never_logged(build):
    _, callback = train(build, "tensorboard", max_steps=1, logging_strategy="no")
    assert callback.trackers is None


def test_a_prompt_without_any_reward_has_no_success_and_a_state_restores_all_sums():
    one, again = (Trackers(None, None, [], None) for _ in range(2))
    session = ba.Session("uniform", ["reward"], parts=[one], quiet=True)

    def step(rewards, tokens):
        session.begin(list(rewards), 2 * len(rewards), 2)
        ids_R = session.request()
        session.observe(ids_R, [rewards[x] for x in ids_R], lengths_R=[tokens[x] for x in ids_R])
        session.end()

    step({"a": np.nan, 1: 0.5}, {"a": 3, 1: 4})
    again.load_state_dict(one.state_dict())
    session.parts.append(again)
    step({1: 1.0}, {1: 7})
    assert one.most_expensive() == again.most_expensive() == [(1, 4, 22, 0.75), ("a", 2, 6, None)]
