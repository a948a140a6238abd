"""The file of seconds and evaluations, after resumes, kills and damage."""

import pytest

from budgetalloc.logs.ledger import read_log
from budgetalloc.logs.ledger_writer import LedgerWriter
from budgetalloc.logs.progress import Progress, ProgressWriter, read_progress
from budgetalloc.logs.prompt_texts import path_next_to


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_resume_voids_the_steps_that_run_again_and_keeps_the_evaluation_before_them(tmp_path):
    ledger, clock = tmp_path / "ledger.jsonl", Clock()
    writer = ProgressWriter(ledger, 0, clock=clock)
    for step in range(4):
        writer.held_out(step, 2 * step, step / 10)
        for decision in (2 * step, 2 * step + 1):  # two decisions in one step of the trainer
            clock.now += 1.0 + decision
            writer.step(step, decision)
    ProgressWriter(ledger, 2, clock=clock)  # a resume from the checkpoint after step 2, which evaluated before it
    assert read_progress(ledger) == Progress({0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}, {"": [(0, 0.0), (2, 0.1), (4, 0.2)]})
    again = ProgressWriter(ledger, 2, clock=clock)
    clock.now += 0.5
    again.step(2, 4)
    again.held_out(3, 6, 0.9)
    assert read_progress(ledger).seconds[4] == 0.5
    assert read_progress(ledger).held_out[""][-1] == (6, 0.9)


def test_a_torn_line_and_foreign_ones_are_left_out(tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    assert read_progress(ledger) == Progress()
    torn = b'{"step": 0, "decision": 0, "seconds": 1.5}\n[]\n\xff\n{"step": "x"}\n{"step": 1, "decision": 1, "sec'
    path_next_to(ledger, ".progress").write_bytes(torn)
    clock = Clock()
    writer = ProgressWriter(ledger, 1, clock=clock)
    clock.now += 2.0
    writer.step(1, 1)
    assert read_progress(ledger).seconds == {0: 1.5, 1: 2.0}


def test_the_file_is_no_second_log_of_the_folder(tmp_path):
    LedgerWriter(tmp_path / "ledger.jsonl").append(0, ["a"], [0.0], [1], [0.5], [1])
    ProgressWriter(tmp_path / "ledger.jsonl", 0).step(0, 0)
    assert read_log(tmp_path).kind == "ledger"


@pytest.mark.parametrize("took", [0.0, 5.0])
def test_an_evaluation_is_no_part_of_a_step(tmp_path, took):
    clock = Clock()
    writer = ProgressWriter(tmp_path / "ledger.jsonl", 0, clock=clock)
    clock.now += took
    writer.held_out(0, 0, 0.5, took)
    clock.now += 3.0
    writer.step(0, 0)
    assert read_progress(tmp_path / "ledger.jsonl").seconds == {0: 3.0}
