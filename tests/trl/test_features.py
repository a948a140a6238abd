"""Features of prompts on TRL's real trainer: shared beliefs, and a resume to the bit."""

import pytest
from conftest import attach, rows, same_weights, trained, weights
from datasets import Dataset

import budgetalloc as ba
from budgetalloc.testing import same_state

pytestmark = pytest.mark.slow


def described_rows():
    described = [
        row | {"digit": int(row["prompt"][0]), "half": "low" if at < 12 else "high"} for at, row in enumerate(rows(24))
    ]
    return Dataset.from_list(described)


@pytest.mark.parametrize("features", ["text", ["digit", "half"]])
def test_a_run_with_features_resumes_to_the_bit(build, features):
    settings = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3}
    whole = build(described_rows(), **settings)
    callback = trained(whole, features=features)
    assert callback.policy.estimator.features.count >= 1
    assert callback.policy.estimator.step == 6

    resumed = build(described_rows(), output_dir=whole.args.output_dir, **settings)
    again = trained(resumed, features=features, resume=3)
    assert same_weights(weights(whole), weights(resumed))
    assert same_state(callback.policy.state_dict(), again.policy.state_dict())


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


def test_hidden_states_of_the_policy_model_are_features(build, caplog):
    trainer = build(described_rows(), max_steps=2)
    with caplog.at_level("INFO", "budgetalloc"):
        callback = attach(trainer, features=["model", "half"])
    assert "hidden states of 24 prompts, 96 tokens" in caplog.text
    features = callback.policy.estimator.features
    assert features.count > 2
    trainer.train()
    assert callback.policy.estimator.step == 2
    with pytest.raises(ba.InputError, match="rename_column"):
        attach(build(described_rows().add_column("model", ["x"] * 24)), features="model")
