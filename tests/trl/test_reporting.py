"""The metrics arrive in real trackers, through TRL's own log."""

import json
from pathlib import Path

from conftest import rows

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback

EXPECTED = [
    *("frac_mixed", "frac_all_pass", "frac_all_fail", "frac_mixed_predicted", "brier", "prompts", "seconds"),
    *("count/min", "count/mean", "count/max"),
]


def train(build, report_to):
    trainer = build(rows(40), max_steps=3, report_to=report_to)
    trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.adaptive()))
    trainer.train()
    return trainer


def test_wandb_offline(build, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    import wandb

    trainer = train(build, "wandb")
    summary = dict(wandb.run.summary)
    wandb.finish()
    last = [entry for entry in trainer.state.log_history if "loss" in entry][-1]
    for key in EXPECTED:
        assert summary[f"train/budgetalloc/{key}"] == last[f"budgetalloc/{key}"]
    assert list(Path(tmp_path).glob("wandb/offline-run-*/*.wandb"))


def test_log_history_is_json(build, tmp_path):
    trainer = train(build, "none")
    trainer.state.save_to_json(str(tmp_path / "trainer_state.json"))
    history = json.loads((tmp_path / "trainer_state.json").read_text())["log_history"]
    assert all(f"budgetalloc/{key}" in entry for entry in history if "loss" in entry for key in EXPECTED)
