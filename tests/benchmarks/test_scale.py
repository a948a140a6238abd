"""The runs of SmolLM2: questions with right answers, runs in pieces that equal whole ones, and three real steps."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pieces  # these are in benchmarks/scale
import pytest
import results
import torch
from pieces import Job, finished, train
from questions import PER_KIND, TASKS

from budgetalloc.cli.testbed import skills

FOLDER = Path(pieces.__file__).parent
SMALL = {"steps": 4, "rollouts_a_step": 32, "longest": skills.ANSWER_LENGTH + 1, "held_out": 24, "model": "tiny"}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class After:
    """A deadline that passes after so many steps, by no clock."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def start(self) -> None:
        pass

    def passed(self) -> bool:
        self.left -= 1
        return self.left <= 0


@pytest.fixture
def piece(tiny_task):
    def piece(job: Job, folder: Path, deadline: Any = None) -> bool:
        return train(job, skills.WEIGHTS, folder, folder / "out.jsonl", deadline, every=2, batch=16, task=tiny_task)

    return piece


def curve(path: Path) -> list[dict[str, Any]]:
    """The points of the only run, without what no two runs share."""
    [points] = results.read(path).values()
    return [{name: value for name, value in point.items() if name != "seconds"} for point in points]


@pytest.mark.slow
def test_a_run_in_pieces_equals_the_whole_run(tmp_path, piece):
    job = Job("tiny", "ten", "sampled", 1e-3, **SMALL)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    assert piece(job, whole)
    assert not piece(job, parts, After(1))
    paused = results.read(parts / "out.jsonl")
    assert not finished(job, paused)
    assert [point["step"] for point in next(iter(paused.values()))] == [0]
    assert not piece(job, parts, After(2))
    assert piece(job, parts, After(4))
    assert curve(parts / "out.jsonl") == curve(whole / "out.jsonl")
    points = curve(whole / "out.jsonl")
    assert [(point["step"], point["rollouts"]) for point in points] == [(0, 0), (2, 64), (4, 128)]
    assert points[0]["success"] != points[-1]["success"]  # it was trained, at a rate at which four steps show
    assert 128 <= points[-1]["tokens"] <= 128 * job.longest
    assert finished(job, results.read(parts / "out.jsonl"))
    assert not (parts / job.name).exists()  # gigabytes, where the model is real


@pytest.mark.parametrize("name", TASKS)
def test_questions_are_different_and_held_out(name):
    if name == "reasoning":
        pytest.importorskip("reasoning_gym")
    task = TASKS[name]
    held_out = task.held_out(40)
    rows = task.rows(300, 0, without=held_out)
    texts = [row["prompt"] for row in rows + held_out]
    assert len(set(texts)) == 340
    assert {row["kind"] for row in rows} == set(task.kinds)
    assert task.rows(300, 0, without=held_out) == rows
    assert task.rows(300, 1, without=held_out) != rows
    for row in rows:
        kind, at = task.kinds[row["prompt_id"] // PER_KIND], row["prompt_id"] % PER_KIND
        assert (kind, task.question(kind, at)) == (row["kind"], row["prompt"])


def line(step: int, success: float = 0.5, **changed: Any) -> dict[str, Any]:
    point = {"device": "cpu", "step": step, "rollouts": 8 * step, "tokens": step, "seconds": 1.0 * step}
    job = asdict(Job("arithmetic", "ten", "spo", 1e-5, steps=4))
    return job | point | {"success": success, "pass8": 0.5} | changed


def test_the_newest_point_of_a_step_counts_and_torn_lines_do_not(tmp_path):
    out = tmp_path / "out.jsonl"
    assert results.read(out) == {}
    results.append(out, line(0))
    results.append(out, line(2, 0.1))
    with out.open("a") as file:
        file.write('{"task": "ari')
    results.append(out, line(2, 0.7))
    results.append(out, line(2, 0.2, seed=1))
    first, second = results.read(out).values()
    assert [(point["step"], point["success"]) for point in first] == [(0, 0.5), (2, 0.7)]
    assert [point["success"] for point in second] == [0.2]


def test_policies_are_compared_with_the_best_uniform_on_their_seeds_at_the_tuned_rate(tmp_path):
    out = tmp_path / "out.jsonl"

    def run(policy, seed, rate, end, pass8):
        for step, success in ((0, 0.2), (4, end)):
            results.append(out, line(step, success, policy=policy, seed=seed, rate=rate, pass8=pass8))

    for rate, end in ((1e-5, 0.6), (3e-5, 0.4)):
        run("adaptive", 100, rate, end, 0)
    results.append(out, line(0, 0.9, policy="adaptive", seed=100, rate=7e-5, steps=2))
    results.append(out, line(2, 0.9, policy="adaptive", seed=100, rate=7e-5, steps=2))  # a shorter run says nothing
    for seed, more in ((0, 0.0), (1, 0.1)):
        run("uniform4", seed, 1e-5, 0.4, 0.5)
        run("uniform8", seed, 1e-5, 0.3, 1)
        run("adaptive", seed, 1e-5, 0.6 + more, 1)
        run("adaptive", seed, 3e-5, 0.9, 0)  # not the tuned rate
    *_, row, _ = results.compared(results.read(out))
    assert row == (
        "| arithmetic | ten | adaptive | 2 | uniform4: 0.300 | +0.125 (-0.193 to +0.443) | +0.250 (-0.385 to +0.885) "
        "| +0.500 (+0.500 to +0.500) | +0.500 (+0.500 to +0.500) | 0.44 (0.18 to never) | 0.44 (0.18 to never) |"
    )  # 0.2 to 0.65, and uniform's 0.4 is reached after 4/9 of the run; 0.65 has an interval of -+ 12.7 * 0.05


def test_the_page_has_the_tables_of_the_results():
    page = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    runs = results.read(FOLDER / "results.jsonl")
    compared = list(results.compared(runs))
    for row in compared:
        assert row in page, row
    evidence = (FOLDER.parents[1] / "docs/evidence.md").read_text(encoding="utf-8")
    figures = [
        next(row for row in compared if row.startswith(f"| short | {pool} | sampled |")).strip("| ").split(" | ")
        for pool in ("ten", "once")
    ]
    rows = {5: "success over the run", 6: "success at the end", 7: "coverage at the end (pass@8)"}
    rows |= {8: "coverage at equal success (pass@8)"}
    rows |= {9: "rollouts to uniform's final success", 10: "seconds to uniform's final success"}
    for at, label in rows.items():
        line = next(line for line in evidence.splitlines() if line.startswith(f"| {label} |"))
        assert line.replace("+", "").strip("| ").split(" | ")[1:] == [row[at].replace("+", "") for row in figures]
