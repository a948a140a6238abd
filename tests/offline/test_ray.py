"""Runs on a Ray cluster: the same results to the bit as in one process."""

import os
import time

import numpy as np
import pandas as pd
import pytest

import budgetalloc as ba
from budgetalloc import InputError
from budgetalloc.offline.parallel import in_parallel

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow

HERE = os.path.dirname(os.path.dirname(ba.__file__))
NODE = {"num_cpus": 2, "object_store_memory": 10**8}
SETTINGS = {"RAY_memory_monitor_refresh_ms": "0", "RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""On a machine with other work, Ray would kill runs for the memory of others, and run only where others pause."""


def log(steps=12, rollouts=64):
    rng = np.random.default_rng(0)
    rate_P, ids_R = rng.random(40), rng.integers(0, 40, steps * rollouts)
    rewards_R = (rng.random(len(ids_R)) < rate_P[ids_R]).astype(float)
    step_R = np.repeat(np.arange(steps), rollouts)
    return ba.Ledger.of_frame(pd.DataFrame({"step": step_R, "prompt": ids_R, "reward": rewards_R}))


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    before = dict(os.environ)
    os.environ.update(SETTINGS, PYTHONPATH=os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]))
    made = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()
    os.environ.clear()
    os.environ.update(before)


def test_results_of_closures_come_in_order_or_as_the_runs_end(cluster, tmp_path):
    def ordered(given, at):
        while at == 0 and not (tmp_path / "1").exists():  # run 1 ends before run 0
            time.sleep(0.01)
        (tmp_path / str(at)).touch()
        return given(at), os.getpid()

    rows = list(in_parallel(ordered, lambda at: 10 * at, 4, "ray"))
    assert [value for value, _ in rows] == [0, 10, 20, 30]
    assert os.getpid() not in {pid for _, pid in rows}

    def as_they_end(given, at):
        while at == 0 and not (tmp_path / "seen").exists():  # run 0 cannot end before its caller has seen another's end
            time.sleep(0.01)
        return given(at)

    ended = []
    for value in in_parallel(as_they_end, lambda at: 10 * at, 4, "ray", ordered=False):
        ended.append(value)
        (tmp_path / "seen").touch()
    assert sorted(ended) == [0, 10, 20, 30]
    assert ended[0] != 0


def test_an_error_of_a_run_is_raised_here_as_itself(cluster):
    def run(given, at):
        if at == 2:
            raise InputError(f"run {at} failed")
        return at

    runs, seen = in_parallel(run, None, 6, "ray"), []
    with pytest.raises(InputError, match=r"^run 2 failed$"):
        seen.extend(runs)
    assert seen == [0, 1]


def test_policies_with_arrays_are_compared_as_in_one_process(cluster):
    learned = ba.methods.xrpo(seed=0)  # its memory and its beliefs are arrays, which Ray shares
    learned.observe([0, 0, 1, 1], [0, 1, 1, 1])
    rivals = {"knapsack": ba.knapsack, "learned": learned, "adaptive": ba.adaptive}
    calls = []
    table = ba.compare(rivals, log(), 64, seeds=range(4), workers="ray", progress=lambda *x: calls.append(x))
    assert table.equals(ba.compare(rivals, log(), 64, seeds=range(4), workers=1))
    assert calls == [(k, 12) for k in range(1, 13)]
