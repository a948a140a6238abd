"""The reward profiles that NeMo Gym writes: rollouts, a report, and a warm start."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset

import budgetalloc as ba
from budgetalloc.beliefs.ids import text_id
from budgetalloc.errors import InputError
from budgetalloc.logs.ledger import read_log
from budgetalloc.training.prompt_features import features_of
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.warm_start import read_counts

FILE = Path(__file__).parent / "files" / "nemo_gym" / "rollouts_reward_profiling.jsonl"
QUESTIONS = ("3 + 4 =", "5 + 2 =", "9 + 9 =")
CHATS = [[{"role": "user", "content": text}] for text in QUESTIONS]
IDS = [text_id(chat) for chat in CHATS]


def read(path, **asked):
    log = read_log(path, **asked)
    assert log.kind == "nemo-gym"
    return log, log.notes


def rows():
    return [json.loads(line) for line in FILE.read_text().splitlines()]


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_the_rewards_of_all_rollouts_are_read(tmp_path):
    ledger, notes = read(FILE)
    assert ledger.frame.prompt.tolist() == [IDS[0]] * 4 + [IDS[1]] * 4 + [IDS[2]] * 3
    assert ledger.frame.reward.tolist() == [1, 0, 1, 1, 0, 0, 0, 0, 0.5, 1, 0]
    assert ledger.frame.length.tolist() == [4, 9, 4, 5, 8, 8, 9, 7, 3, 3, 3]
    assert set(ledger.frame.step.tolist()) == {0}
    assert dict(notes) == {"no steps: a profile is taken as one step": 1}
    shutil.copy(FILE, tmp_path / "x_reward_profiling.jsonl")
    assert len(read(tmp_path)[0]) == 11


def test_other_names_and_values():
    assert read(FILE, prompt="task_id")[0].frame.prompt.tolist()[::5] == ["d0", "d1", "d2"]
    assert read(FILE, prompt="_ng_task_index")[0].frame.prompt.tolist()[::5] == [0, 1, 2]
    assert read(FILE, reward="output_tokens", success="reward")[0].frame.success.tolist()[:2] == [1, 0]
    assert read_log(FILE).texts[IDS[1]] == "5 + 2 ="


def test_broken_rows_are_counted(tmp_path):
    first = rows()[0]
    odd = [{"mean/reward": 1}, first | {"rollout_infos": [5]}, first | {"sample": {}, "_ng_task_index": None}]
    odd.append({key: value for key, value in first.items() if key != "rollout_infos"})
    path = write(tmp_path / "p.jsonl", rows() + odd)
    ledger, notes = read(path)
    assert len(ledger) == 11
    assert notes["broken row"] == 3
    assert notes["row without the rewards of its rollouts (rollout_infos)"] == 1


def test_a_profile_starts_a_training_and_one_of_other_prompts_is_refused():
    ids, successes_P, trials_P = read_counts(FILE)
    assert ids == IDS
    np.testing.assert_allclose(successes_P / trials_P, [0.75, 0.0, 0.5])
    assert trials_P.tolist() == [4, 4, 3]
    dataset = Prompts(Dataset.from_list([{"prompt": chat} for chat in CHATS]))
    features = features_of(dataset, FILE)
    assert features.of(dataset.pool) == pytest.approx(ba.Features.of_rates(IDS, [0.75, 0.0, 0.5], [4, 4, 3]).of(IDS))
    other = Prompts(Dataset.from_list([{"prompt": "another question"}]))
    with pytest.raises(InputError, match="rollouts of 0 of the 1 prompts of the train dataset"):
        features_of(other, FILE)
