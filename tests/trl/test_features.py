"""Features of prompts on TRL's real trainer: shared beliefs, and a resume to the bit."""

import pytest
from conftest import attach, rows, trained
from datasets import Dataset

import budgetalloc as ba

pytestmark = pytest.mark.slow


def described_rows():
    described = [
        row | {"digit": int(row["prompt"][0]), "half": "low" if at < 12 else "high"} for at, row in enumerate(rows(24))
    ]
    return Dataset.from_list(described)


def test_a_run_starts_from_the_ledger_of_another_run(build, tmp_path):
    trained(build(described_rows(), max_steps=2), ledger=tmp_path / "old.jsonl")
    with pytest.raises(ba.InputError, match="ledger= is the same file"):
        attach(build(described_rows()), features=tmp_path / "old.jsonl", ledger=tmp_path / "old.jsonl")
    options = {"features": [tmp_path / "old.jsonl", "digit"], "ledger": tmp_path / "new.jsonl"}
    callback = trained(build(described_rows(), max_steps=2), **options)
    assert callback.policy.estimator.features.count >= 2
    assert callback.policy.estimator.step == 2


def test_features_of_other_columns_are_refused_before_training(build):
    with pytest.raises(ba.InputError, match="no column 'difficulty'"):
        attach(build(described_rows()), features="difficulty")
