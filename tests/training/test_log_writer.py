"""The files that a step is written to."""

from dataclasses import replace

import numpy as np

import budgetalloc as ba
from budgetalloc.logs.progress import read_progress
from budgetalloc.training.log_writer import LogWriter, append


def recorded():
    session = ba.Session("thompson", ["reward"], pool=["a", "b"], quiet=True, floor=2)
    session.begin([], 4, 2)
    session.request()
    session.observe(["a", "b", "a"], [0.0, 3.0, 3.0], [5, 6, 7])
    return session.record(trainer_step=3)


def test_written_is_each_rollout_the_text_of_each_prompt_once_and_the_time(tmp_path):
    batch = recorded()
    asked = []

    def texts_of(names):
        asked.extend(names)
        return {name: f"text of {name}" for name in names}

    written = LogWriter(tmp_path / "ledger.jsonl", 3, texts_of)
    written(batch)
    written.texts.add(batch.ids_R, texts_of)
    assert asked == ["a", "b"]
    assert list(read_progress(tmp_path / "ledger.jsonl").seconds) == [0]  # the policy's step
    ledger = ba.Ledger.read(tmp_path / "ledger.jsonl")
    assert '"step": 3' in (tmp_path / "ledger.jsonl").read_text()  # and the policy's step, which `read` shows
    assert (ledger.frame.prompt.tolist(), ledger.frame.step.tolist(), ledger.frame.reward.tolist()) == (
        ["a", "b", "a"],
        [0] * 3,
        [0, 3, 3],
    )
    LogWriter(tmp_path / "ledger.jsonl", 3, texts_of)(batch)  # resumed at this step: its first lines are void
    assert len(ba.Ledger.read(tmp_path / "ledger.jsonl")) == 3


def test_rollouts_with_a_hint_are_named_apart_and_nothing_is_predicted_of_them(tmp_path):
    batch = replace(recorded(), hinted_R=np.array([False, False, True]))
    append(ba.LedgerWriter(tmp_path / "ledger.jsonl"), batch)
    log = ba.Ledger.read(tmp_path / "ledger.jsonl")
    assert log.frame.prompt.tolist() == ["a", "b", "a (hinted)"]
    np.testing.assert_array_equal(log.frame.predicted.to_numpy(), [0.5, 0.5, np.nan])
