"""The files that a step is written to."""

import numpy as np

import budgetalloc as ba
from budgetalloc.logs.progress import read_progress
from budgetalloc.training.log_writer import LogWriter
from budgetalloc.training.open_step import Round, record
from budgetalloc.training.scoring import Scoring

REWARDS_R = np.array([0.0, 3.0, 3.0])


def opened():
    policy, scoring = ba.thompson(), Scoring(["reward"], [1.0], quiet=True)
    step = policy.begin(["a", "b"], ba.Budget(rollouts=4, floor=2))
    step.request()
    scores_RF = REWARDS_R[:, None]
    measure = scoring.measure(REWARDS_R, scores_RF)
    success_R = measure.success(REWARDS_R, scores_RF)
    step.observe(["a", "b", "a"], REWARDS_R, success_R)
    made = Round(["a", "b", "a"], REWARDS_R, scores_RF, success_R, np.array([5, 6, 7]))
    return policy, scoring, step, record([made], step, measure, scoring.sums, trainer_step=3)


def test_written_is_each_rollout_the_text_of_each_prompt_once_and_the_time(tmp_path):
    batch = opened()[-1]
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
