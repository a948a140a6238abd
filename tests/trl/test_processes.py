"""Several processes decide the same, share rows evenly, and train as one process would on the same batch.

Also if each holds only a part of the weights: FSDP2, and ZeRO-2 and ZeRO-3 of DeepSpeed.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from processes import BATCH, FAILURES, LED, NAMES, PROCESSES, PROMPTS, RUNS

import budgetalloc as ba
from budgetalloc.trl.processes import process_share, rows_of_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the processes are forked after the imports")
# Not in the environment itself, because accelerate and transformers change their behaviour if they find it.
DEEPSPEED = Path(sys.prefix) / "deepspeed"
has_deepspeed = pytest.mark.skipif(not DEEPSPEED.exists(), reason=f"DeepSpeed is not in {DEEPSPEED}: see the Makefile")
PLACES = ["2", "4", "fsdp2", pytest.param("zero2", marks=has_deepspeed), pytest.param("zero3", marks=has_deepspeed)]
SEVERAL = [
    pytest.param(name, where, marks=has_deepspeed if where.startswith("zero") else ())
    for where in ("2", "4", "fsdp2", "zero2", "zero3")
    for name in NAMES[where]
]
ATTACHED = [case for case in SEVERAL if case.values[0] != "plain"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All runs of processes.py, in few launches, because imports take longer than the runs."""
    folder, script = tmp_path_factory.mktemp("processes"), Path(__file__).with_name("processes.py")
    paths = [str(script.parent), str(script.parents[2])]
    zero = [where for where in PROCESSES if where.startswith("zero")]
    launch(script, folder, [where for where in PROCESSES if where not in zero], paths)
    if DEEPSPEED.exists():
        launch(script, folder, zero, [*paths, str(DEEPSPEED)])
    return folder


def launch(script, folder, labels, paths):
    more = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(script), str(folder), *labels]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=1800, check=False, env={**os.environ, **more}
    )
    assert done.returncode == 0, done.stderr[-5000:]


@pytest.fixture(scope="module")
def seen(folder):
    """`seen[where][rank][name]`: what a process saw of a run."""
    return {
        where: [json.loads((folder / f"{where}/rank{rank}.json").read_text()) for rank in range(world)]
        for where, world in PROCESSES.items()
        if (folder / where).exists()
    }


def weights(folder, name, where):
    return [np.load(folder / f"{where}/{name} weights {rank}.npy") for rank in range(PROCESSES[where])]


def generated(seen, name, where):
    """The prompts of each call of TRL's generation, of all processes in TRL's order."""
    calls = zip(*(rank[name]["prompts"] for rank in seen[where]), strict=True)
    return [[prompt for share in call for prompt in share] for call in calls]


@pytest.mark.parametrize(("name", "where"), SEVERAL)
def test_training_does_not_depend_on_the_number_of_processes(folder, name, where):
    """With these forced completions, neither plain TRL nor any policy does."""
    (alone,) = weights(folder, name, "1")
    for other in weights(folder, name, where):
        np.testing.assert_allclose(other, alone, atol=1e-5)


def test_the_runs_differ_from_each_other(folder):
    """Otherwise the test above would compare runs that no policy has changed."""
    plain = weights(folder, "plain", "1")[0]
    for name in RUNS:
        moved = np.abs(weights(folder, name, "1")[0] - plain).max()
        assert moved < 1e-6 if name in ("plain", "uniform") else moved > 1e-2


@pytest.mark.parametrize(("name", "where"), ATTACHED)
def test_every_process_learns_from_the_rewards_of_all(folder, seen, name, where):
    alone = seen["1"][0][name]
    for rank in seen[where]:
        assert (rank[name]["ids"], rank[name]["evidence"]) == (alone["ids"], alone["evidence"])
    one, many = (ba.Ledger.read(folder / f"{w}/{name}.jsonl") for w in ("1", where))
    assert many.frame.prompt.tolist() == one.frame.prompt.tolist()
    for column in ("step", "reward", "length", "predicted"):
        np.testing.assert_array_equal(many.frame[column], one.frame[column])


@pytest.mark.parametrize(("name", "where"), [(name, where) for where in ("2", "4") for name in NAMES[where]])
def test_all_processes_exchange_tensors_of_equal_shapes(seen, name, where):
    """Where they do not, gloo ends a process or returns numbers that nobody sent, without an error."""
    first, *others = (rank[name]["collectives"] for rank in seen[where])
    assert len(first) > 10
    assert all(other == first for other in others)


@pytest.mark.parametrize("where", ["1", "2"])
def test_what_all_processes_generated_is_counted(folder, seen, where):
    for rank in seen[where][:1]:  # only the first one logs
        assert [entry["budgetalloc/generated"] for entry in rank["twice"]["logs"]] == [2 * BATCH] * 3
    assert len(ba.Ledger.read(folder / f"{where}/twice.jsonl").frame) == 3 * BATCH


@pytest.mark.parametrize(("name", "where"), SEVERAL)
def test_rows_are_shared_evenly_and_tokens_counted_together(seen, name, where):
    alone = seen["1"][0][name]["batches"]
    for rank in seen[where]:
        assert rank[name]["batches"] == [[BATCH // PROCESSES[where], items] for _, items in alone]
        calls = [len(prompts) for prompts in rank[name]["prompts"]]
        assert calls == [-(-len(prompts) // PROCESSES[where]) for prompts in seen["1"][0][name]["prompts"]]


@pytest.mark.parametrize(("name", "where"), ATTACHED)
def test_fillers_are_generated_last_and_are_not_logged(folder, seen, name, where):
    rows = [len(prompts) for prompts in seen["1"][0][name]["prompts"]]
    calls = generated(seen, name, where)
    assert [prompts[:n] for prompts, n in zip(calls, rows, strict=True)] == generated(seen, name, "1")
    fillers = [len(prompts) - n for prompts, n in zip(calls, rows, strict=True)]
    assert max(fillers) == (PROCESSES[where] - 1 if name == "odd" else 0)
    # Metrics of rewards and of budgetalloc exclude them; TRL's lengths include them.
    for one, many in zip(seen["1"][0][name]["logs"], seen[where][0][name]["logs"], strict=True):
        keys = {key for key in one if key.startswith(("reward", "budgetalloc/", "frac_")) or key == "loss"}
        keys -= {key for key in keys if key.endswith("/seconds")}
        assert {key: many[key] for key in keys} == pytest.approx({key: one[key] for key in keys}, abs=1e-5)


@pytest.mark.parametrize("where", PLACES)
def test_the_completions_table_lists_no_filler(folder, where):
    for step in (1, 3):
        one, many = (
            pd.read_parquet(folder / f"{w}/odd/completions/completions_{step:05d}.parquet") for w in ("1", where)
        )
        assert len(many) > BATCH - PROCESSES[where]  # a filler pushes an older row out
        columns = ["prompt", "completion", "low_digit"]
        assert many[columns].values.tolist() == one[columns].tail(len(many)).values.tolist()
        np.testing.assert_allclose(many["advantage"], one["advantage"].tail(len(many)), atol=1e-5)


@pytest.mark.parametrize("where", ["2", *PLACES[2:]])
def test_with_the_models_own_completions(folder, seen, where):
    """Processes draw different completions, and all of them count once."""
    first, second = (rank["free"] for rank in seen[where])
    assert (first["ids"], first["evidence"]) == (second["ids"], second["evidence"])
    log = ba.Ledger.read(folder / f"{where}/adaptive free.jsonl")
    assert Counter(log.frame.step.tolist()) == {0: BATCH, 1: BATCH, 2: BATCH}
    assert [PROMPTS[name] for name in log.frame.prompt.tolist()] == [
        x for call in generated(seen, "free", where) for x in call
    ]


def test_fsdp2_leaves_no_process_with_all_weights(seen):
    kinds = {where: {rank["odd"]["parameters"] for rank in seen[where]} for where in ("1", "2", "fsdp2")}
    assert kinds == {"1": {"Tensor"}, "2": {"Tensor"}, "fsdp2": {"DTensor"}}


@has_deepspeed
def test_zero_3_leaves_no_process_with_weights(seen):
    held = {where: {rank["odd"]["elements"] for rank in seen[where]} for where in ("2", "zero2", "zero3")}
    assert held["zero2"] == held["2"]
    assert held["zero3"] == {0}


EXPECTED = {
    "seed": ["InputError: The processes differ in policy: process 0 has 'thompson("] * 2,
    "state": ["InputError: The processes differ in state: process 0 has '0 steps, 0 prompts', process 1 has '1 st"] * 2,
    "decide": [
        "ZeroDivisionError: no counts",
        "BudgetallocError: Process 0 failed to decide, and all processes stop. It raised ZeroDivisionError: no counts",
    ],
    "mask": ["UnsupportedError: The rounds of a step cannot be merged: TRL's batch has ['tool_mask'] in some of t"] * 2,
    "weighs": ["UnsupportedError: GRPOTrainer computes advantages of its own, which would be replaced"] * 2,
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_process_that_fails_or_differs_stops_all_of_them(seen, name):
    """All processes raise, because the others would wait for one that raised alone."""
    for rank, start in zip(seen["2"], EXPECTED[name], strict=True):
        assert rank["failures"][name].startswith(start)


@pytest.mark.parametrize("name", LED)
def test_process_0_decides_and_the_other_is_never_asked(seen, name):
    first, second = (rank["led"][name] for rank in seen["2"])
    assert first["asked"] == 3
    assert second["asked"] == 0
    assert first["learned"] == second["learned"]
    assert first["learned"][0] == 3
    assert first["weights"] == second["weights"]


def test_process_0_decides_and_a_resumed_run_ends_as_the_whole_one(folder, seen):
    """Also after a smaller batch (the third), further observations (after the fifth) and evaluations."""
    first, second = (rank["changing"]["changing"] for rank in seen["2"])
    until_the_third, after = [0, 1, 2], [3, 4, 6, 7]  # 5: the further observations
    assert first["decided"] == until_the_third + after + after
    assert second["decided"] == []
    assert first["whole"] == first["resumed"] == second["whole"] == second["resumed"]
    rollouts = Counter(ba.Ledger.read(folder / "2/changing whole.jsonl").frame.step.tolist())
    assert rollouts == dict.fromkeys([0, 1, 3, 4, 6, 7], BATCH) | {2: BATCH // 2}


def test_a_step_makes_one_exchange_to_decide(seen):
    for rank in seen["2"]:
        exchanged = Counter(rank["changing"]["changing"]["exchanged"])  # in eleven steps of two trainings
        assert exchanged == {"broadcast": 11, "gather_object": 2}


def test_an_error_of_a_decision_in_process_0_stops_all_processes(seen):
    first, second = (rank["changing"]["raises"] for rank in seen["2"])
    assert first["decided"] == [0, 1]
    assert first["error"] == "ZeroDivisionError: in step 1"
    assert second["error"].endswith("all processes stop. It raised ZeroDivisionError: in step 1")


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("rows", [1, 2, 5, 12])
def test_shares_are_even_and_hold_every_row_in_order(world, rows):
    shares = [rows_of_process(list(range(rows)), rank, world) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    joined = [row for share in shares for row in share]
    assert joined[:rows] == list(range(rows))
    assert len(joined) - rows < world
    assert set(joined[rows:]) <= {rows - 1}


def test_rows_that_cannot_be_shared_evenly_are_refused():
    output = {"advantages": torch.arange(6.0), "num_items_in_batch": torch.tensor(9)}
    second = process_share(output, 1, 2)
    assert second["advantages"].tolist() == [3, 4, 5]
    assert second["num_items_in_batch"] == 9
    with pytest.raises(ba.UnsupportedError, match="trains on 6 rollouts, which 4 processes cannot share evenly"):
        process_share(output, 1, 4)
