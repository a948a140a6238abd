"""The composition of what an asynchronous trainer trains on, in the simulated engine of benchmarks/admission.py."""

from pathlib import Path

import admission  # of benchmarks
import numpy as np
import pytest
from admission import BATCH, CORRELATIONS, GROUP, STALENESS, Engine, chi_square, in_order, learn

import budgetalloc as ba

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_each_batch_has_the_composition_of_its_plan(correlation):
    planned, trained, ages = in_order(Engine(correlation), 100_000)
    assert trained.sum() >= 100_000
    assert np.array_equal(planned, trained)
    assert chi_square(planned.sum(axis=0), trained.sum(axis=0))[1] > 0.99
    assert max(ages) <= STALENESS


def test_the_policy_learns_as_in_a_synchronous_run_if_one_plan_is_generated_at_a_time(monkeypatch):
    monkeypatch.setattr(admission, "STALENESS", 1)
    alone = [
        x["success"] for x in ba.simulate(ba.adaptive(seed=0), ba.Learner(seed=0), BATCH, 20, prompts=BATCH // GROUP)
    ]
    curve, lost = learn(0.9, 20, seed=0)
    assert curve == pytest.approx(alone, abs=1e-9)
    assert lost == 0


def test_the_table_of_the_docs_is_what_the_command_prints():
    said = (ROOT / "benchmarks" / "README.md").read_text()
    for row in admission.compositions(100_000, ("first come", "planned")):
        assert row in said
