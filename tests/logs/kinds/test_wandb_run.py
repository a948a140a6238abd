"""Offline runs of W&B that wandb itself wrote. One is a run of TRL's trainer, which is compared with its ledger."""

import json
import shutil
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conftest import fresh_model, low_digit, make_tokenizer
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import budgetalloc as ba
from budgetalloc.errors import InputError
from budgetalloc.logs.chunk import Notes
from budgetalloc.logs.formats.wandb_file import read_run, records
from budgetalloc.logs.kinds.wandb_run import find
from budgetalloc.logs.reader import open_log
from budgetalloc.trl import AdaptiveGRPOCallback

STEPS, BATCH = 4, 16


def written(folder):
    """A run's folder, once wandb's service has written all of it, a little after `finish` returns."""
    (file,) = find(folder)
    for _ in range(3000):
        if file.stat().st_size > 7 and read_run(file, Notes()).ended:
            return folder
        time.sleep(0.02)
    raise TimeoutError(folder)


def longer(completions, log_extra, **_):
    """A reward that only some rollouts get, and a column in TRL's table."""
    texts = [message[0]["content"] for message in completions]
    log_extra("note", ["x"] * len(texts))
    return [None if "=" in text else len(text) / 10 for text in texts]


def first_low(completions, **_):
    return low_digit([message[0]["content"] for message in completions])


@pytest.fixture(scope="module")
def run_by_trl(tmp_path_factory):
    """The folder of a run with evaluations and two weighted reward functions, and its ledger."""
    import wandb

    folder = tmp_path_factory.mktemp("trl")
    prompts = [{"prompt": [{"role": "user", "content": f"{n:03d}="}]} for n in range(24)]
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    settings = {"num_generations": 4, "max_completion_length": 4, "max_steps": STEPS, "logging_steps": 1, "seed": 7}
    settings |= {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 8, "save_strategy": "no"}
    settings |= {"use_cpu": True, "bf16": False, "disable_tqdm": True, "log_completions": True}
    settings |= {"reward_weights": [0.75, 0.25], "report_to": ["wandb"], "per_device_train_batch_size": BATCH}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"MODE": "offline", "DIR": folder, "DATA_DIR": folder / "staged", "SILENT": "true"}.items():
            patch.setenv(f"WANDB_{name}", str(value))
        wandb.teardown()  # it read the environment once, at the first run of this process
        args = GRPOConfig(str(folder / "out"), **settings)
        data = [Dataset.from_list(prompts), Dataset.from_list(prompts[:2])]
        trainer = GRPOTrainer(fresh_model(), [first_low, longer], args, *data, processing_class=tokenizer)
        trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.thompson(), floor=0, ledger=folder / "ledger.jsonl"))
        trainer.train()
        wandb.teardown()
    (run,) = folder.glob("wandb/offline-run-*")
    return written(run), ba.Ledger.read(folder / "ledger.jsonl")


@pytest.fixture
def run(run_by_trl, tmp_path):
    """A copy of the run, to damage."""
    return shutil.copytree(run_by_trl[0], tmp_path / "wandb" / run_by_trl[0].name)


@pytest.fixture
def by_hand(tmp_path, monkeypatch):
    """`by_hand(tables, **config)` logs (step, rows of TRL's columns) with wandb and returns the run's folder."""
    import wandb

    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "staged"))

    def make(tables, metrics=("train/rewards/f/mean",), **config):
        with wandb.init(mode="offline", dir=str(tmp_path), config=config, settings=wandb.Settings(silent=True)) as run:
            for step, data in tables:
                run.log({"train/global_step": step, "train/epoch": 0.1, **dict.fromkeys(metrics, 0.5)})
                if data is not None:
                    columns = ["step", "prompt", "completion", "f", "advantage"]
                    rows = [[step, prompt, "text", reward, 0.0] for prompt, reward in data]
                    run.log({"completions": wandb.Table(columns=columns, data=rows)})
        return written(Path(run.dir).parent)

    return make


def read(folder, **options):
    (file,) = find(folder)
    reading = open_log(file, kind="wandb", **options)
    return list(reading), reading


def rollouts(chunks):
    """The rollouts as (step, prompt, reward, count), without their order."""
    every = Counter()
    for x in chunks:
        rewards_R = np.round(x.rewards_R, 5).tolist()
        every.update(zip(x.step_R.tolist(), x.ids_R, rewards_R, x.counts_R.tolist(), strict=True))
    return every


def logged(ledger, steps=range(1, STEPS + 1)):
    """The rollouts of the ledger, whose steps are one less than TRL's."""
    every = rollouts([ledger])
    return Counter({(s + 1, *rest): n for (s, *rest), n in every.items() if s + 1 in steps})


def test_a_run_of_trl_is_read_back_as_its_ledger(run_by_trl):
    folder, ledger = run_by_trl
    chunks, reading = read(folder)
    assert rollouts(chunks) == logged(ledger)
    assert reading.notes == {
        "row of an evaluation": 2 * BATCH,
        "success taken as first_low=1, the reward function whose values were 0 and 1 only": 1,
        "row logged again": BATCH,  # TRL's last log, which has no steps
        "length unknown": STEPS * BATCH,
        "unknown column 'note'": STEPS * BATCH,
    }
    assert reading.done == reading.total
    assert rollouts(list(reading)) == rollouts(chunks)
    chunks, _ = read(folder, chunk=BATCH)
    assert [sorted(set(x.step_R.tolist())) for x in chunks] == [[1], [2], [3], [4]]
    assert rollouts(chunks) == logged(ledger)


def test_a_reward_column_or_weights_may_be_asked_for(run_by_trl):
    (one,), _ = read(run_by_trl[0], reward="first_low")
    assert set(one.rewards_R.tolist()) == {0.0, 1.0}
    (both,), _ = read(run_by_trl[0], reward={"first_low": 3.0, "longer": 1.0})
    (own,), _ = read(run_by_trl[0])
    np.testing.assert_allclose(both.rewards_R, 4 * own.rewards_R, rtol=1e-6)
    with pytest.raises(InputError, match="no column 'reward'"):
        read(run_by_trl[0], reward="reward")


def metrics(record):
    """The metrics of a record by their names, empty for a record of another type."""
    from wandb.proto.wandb_internal_pb2 import Record

    return {x.key or "/".join(x.nested_key): x.value_json for x in Record.FromString(record).history.item}


@pytest.mark.parametrize("tables", [1, 2, 3, STEPS])
@pytest.mark.parametrize("left", [1, 9, -1])
def test_a_torn_file_is_read_as_far_as_it_goes(run, run_by_trl, framed, tables, left):
    """The file holds all records until a step's table, and a part of the next record."""
    (file,) = find(run)
    every = list(records(file, Notes()))
    at = -1
    for step in range(1, tables + 1):  # a table's record comes after that of the metrics of its step
        at = next(k for k in range(at + 1, len(every)) if metrics(every[k]).get("train/global_step") == str(step))
        at = next(k for k in range(at, len(every)) if "completions/path" in metrics(every[k]))
    whole = framed(every[: at + 1])
    file.write_bytes(whole + framed(every[: at + 2])[len(whole) :][:left])
    chunks, reading = read(run)
    assert rollouts(chunks) == logged(run_by_trl[1], range(1, tables + 1))
    assert reading.notes["run without an end: it was killed, or is still running"] == 1
    assert reading.notes["torn end of the .wandb file"] == 1


def test_a_file_torn_before_its_first_table_has_metrics_only(run, framed):
    (file,) = find(run)
    every = list(records(file, Notes()))
    file.write_bytes(framed(every[: next(k for k, x in enumerate(every) if "completions/path" in metrics(x))]))
    with pytest.raises(InputError, match="no completions table"):
        read(run)


def test_tables_that_are_missing_or_broken_are_counted(run, run_by_trl):
    first, second, *_ = sorted(run.rglob("completions_*.json"), key=lambda x: int(x.name.split("_")[1]))
    first.unlink()
    second.write_text(second.read_text()[:200])
    chunks, reading = read(run)
    assert reading.notes["completions table whose file is missing"] == 1
    assert reading.notes["completions table whose file is broken"] == 1
    assert rollouts(chunks) == logged(run_by_trl[1], {3, 4})
    shutil.rmtree(run / "files")
    with pytest.raises(InputError, match="keep the run's folder complete"):
        read(run)


def test_a_broken_cell_costs_its_row(run):
    table = min(run.rglob("completions_*.json"), key=lambda x: int(x.name.split("_")[1]))
    content = json.loads(table.read_text())
    at = content["columns"].index("first_low")
    content["data"][0][at] = "?"
    del content["data"][1][at]
    table.write_text(json.dumps(content))
    chunks, reading = read(run)
    assert reading.notes["broken row"] == 2
    assert sum(len(x.ids_R) for x in chunks) == STEPS * BATCH - 2
    assert sum(x.broken for x in chunks) == 2


def test_a_run_of_metrics_only_says_what_to_set(by_hand):
    with pytest.raises(InputError, match=r"2 rows of metrics.*log_completions=True.*ledger="):
        read(by_hand([(1, None), (2, None)]))


def test_a_run_with_one_row_a_prompt_is_refused(by_hand):
    with pytest.raises(InputError, match="log_unique_prompts=True"):
        read(by_hand([(1, [("a", 1.0)])], log_unique_prompts=True))


def test_steps_that_ran_again_are_taken_from_the_last_time(by_hand):
    tables = [(1, [("a", 0.0)]), (2, [("b", 0.0)]), (3, [("c", 0.0)]), (2, [("b", 1.0)]), (3, [("c", 0.5)])]
    chunks, reading = read(by_hand(tables))
    kept = [x for c in chunks for x in zip(c.step_R.tolist(), c.rewards_R.tolist(), strict=True)]
    assert kept == [(1, 0), (2, 1), (3, 0.5)]
    assert reading.notes["row of a step that ran again"] == 2


def test_a_batch_that_is_trained_on_twice_counts_once(by_hand):
    """With GRPOConfig(num_iterations=2) the second step logs the rollouts of the first."""
    chunks, reading = read(by_hand([(1, [("a", 0.0), ("a", 1.0)]), (2, [("a", 0.0), ("a", 1.0)]), (3, [("a", 1.0)])]))
    assert [c.step_R.tolist() for c in chunks] == [[1, 1, 3]]
    assert reading.notes["row logged again"] == 2
    assert not any("without a completions table" in note for note in reading.notes)


def test_steps_without_a_table_are_counted(by_hand):
    _, reading = read(by_hand([(10, [("a", 0.0)]), (20, [("a", 1.0)])]))
    assert reading.notes["step without a completions table (GRPOConfig(logging_steps=1) shows every step)"] == 18
    assert reading.notes.missing == (18, 20)


def test_rows_that_wandb_cuts_off_are_counted(by_hand, monkeypatch):
    import wandb

    monkeypatch.setattr(wandb.Table, "MAX_ARTIFACT_ROWS", 3)
    monkeypatch.setattr(wandb.Table, "MAX_ROWS", 3)
    chunks, reading = read(by_hand([(1, [(name, 1.0) for name in "abcde"])]))
    assert [len(x.ids_R) for x in chunks] == [3]
    assert reading.notes["row that W&B cut off"] == 2


def test_weights_that_do_not_fit_ask_for_others(by_hand):
    folder = by_hand([(1, [("a", 1.0)])], reward_weights=[1.0, 2.0])
    with pytest.raises(InputError, match=r"reward=\{name: weight\}"):
        read(folder)
    assert read(folder, reward="f")[0][0].rewards_R.tolist() == [1.0]


def test_a_table_of_unknown_rewards_asks_for_the_column(by_hand):
    with pytest.raises(InputError, match="reward="):
        read(by_hand([(1, [("a", 1.0)])], metrics=()))


def test_runs_are_found_in_folders(run_by_trl, tmp_path):
    folder = run_by_trl[0]
    (file,) = find(folder)
    assert find(file) == find(folder.parent) == find(folder.parent.parent) == [file]
    assert find(folder / "files") == find(tmp_path) == []
    assert find(next(folder.rglob("*.json"))) == []
