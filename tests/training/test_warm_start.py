"""Features from the records of an earlier run: which files are read, how prompts are matched, what is refused."""

import json
import logging
import pickle
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset

import budgetalloc as ba
from budgetalloc.training.belief_checkpoint import STATE_FILE
from budgetalloc.training.prompt_features import features_of, policy_with_features
from budgetalloc.training.prompts import Prompts, prompt_hash

PROMPTS = Prompts(Dataset.from_list([{"prompt": f"question {n}", "level": n % 3} for n in range(8)]))
IDS = list(PROMPTS.pool)
PASSED = [0, 4, 1, 3, 2, 0, 4, 1]  # of 4


def outcomes(ids=IDS, passed=PASSED):
    ids_R = [name for name in ids for _ in range(4)]
    return ids_R, [float(k < n) for n in passed for k in range(4)]


def write_ledger(path, ids=IDS, passed=PASSED, **more):
    ids_R, success_R = outcomes(ids, passed)
    ones = np.ones(len(ids_R), dtype=int)
    ba.LedgerWriter(path).append(0, ids_R, success_R, ones, ones / 2, 4 * ones, **more)
    return path


def expected(ids=IDS, passed=PASSED):
    return ba.Features.of_rates(ids, np.array(passed) / 4, 4).of(PROMPTS.pool)


def test_a_ledger_is_read(tmp_path):
    path = write_ledger(tmp_path / "old.jsonl")
    assert features_of(PROMPTS, path).of(PROMPTS.pool) == pytest.approx(expected())
    assert features_of(PROMPTS, f"run:{path}").of(PROMPTS.pool) == pytest.approx(expected())


def test_a_ledger_counts_its_success_and_not_its_reward(tmp_path):
    path = tmp_path / "old.jsonl"
    ids_R, success_R = outcomes()
    ones = np.ones(len(ids_R), dtype=int)
    ba.LedgerWriter(path).append(0, ids_R, 5 - 3 * np.array(success_R), ones, ones / 2, 4 * ones, success_R=success_R)
    assert features_of(PROMPTS, path).of(PROMPTS.pool) == pytest.approx(expected())


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("policy", [ba.thompson, lambda: ba.adaptive(features=ba.Features(IDS, np.eye(8)))])
def test_a_file_of_beliefs_is_read(tmp_path, folder, policy):
    policy = policy()
    policy.observe(*outcomes())
    ba.save_state(tmp_path / STATE_FILE, policy.state_dict())
    got = features_of(PROMPTS, tmp_path if folder else tmp_path / STATE_FILE).of(PROMPTS.pool)
    assert got == pytest.approx(expected(), abs=0.15)
    assert np.corrcoef(got[:, 0], expected()[:, 0])[0, 1] > 0.99


def test_counts_of_another_program_are_read(tmp_path):
    path = tmp_path / "counts.csv"
    rows = [f"{name},{k},4\n" for name, k in zip(IDS, PASSED, strict=True)]
    path.write_text("prompt_id,successes,rollouts\n" + "".join(rows))
    assert features_of(PROMPTS, path).of(PROMPTS.pool) == pytest.approx(expected())


def test_a_run_is_joined_with_columns_and_texts(tmp_path):
    path = write_ledger(tmp_path / "old.jsonl")
    assert features_of(PROMPTS, [path, "level"]).count == 2
    assert features_of(PROMPTS, ["text", path]).count == features_of(PROMPTS, "text").count + 1
    assert features_of(PROMPTS, [path, f"run:{path}"]).count == 2


def test_few_matching_prompts_are_warned_of_once(tmp_path, caplog):
    path = write_ledger(tmp_path / "old.jsonl", [*IDS[:3], "another"], PASSED[:4])
    features = features_of(PROMPTS, path)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "rollouts of 3 of the 8 prompts" in caplog.text
    assert features.count == 2  # the second marks the prompts with a rate
    caplog.clear()
    features_of(PROMPTS, path, quiet=True)
    assert not caplog.records


def test_a_column_of_ids_names_the_prompts_of_a_log(tmp_path):
    prompts = Prompts(Dataset.from_list([{"prompt": f"q{n}", "uid": n} for n in range(8)]), "uid")
    path = tmp_path / "counts.csv"
    path.write_text("uid,successes,rollouts\n" + "".join(f"{n},{k},4\n" for n, k in enumerate(PASSED)))
    assert features_of(prompts, path).of(prompts.pool) == pytest.approx(expected())


def test_the_ledger_of_the_run_itself_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_ledger(tmp_path / "old.jsonl")
    with pytest.raises(ba.InputError, match="ledger= is the same file"):
        policy_with_features(ba.adaptive(), PROMPTS, ["text", "run:old.jsonl"], path)
    policy = policy_with_features(ba.adaptive(), PROMPTS, path, tmp_path / "new.jsonl")
    assert str(policy) == "adaptive(features=Features(8 prompts x 1), seed=0)"


class Unpickled:
    def __reduce__(self):
        return Path.touch, (Path("unpickled"),)


def damaged(folder, kind):
    if kind == "no file":
        return folder / "missing.jsonl"
    if kind == "another dataset":
        return write_ledger(folder / "old.jsonl", [prompt_hash(f"other {n}") for n in range(8)])
    if kind == "empty":
        (folder / "old.jsonl").touch()
        return folder / "old.jsonl"
    if kind == "no log":
        (folder / "old.txt").write_text("nothing\n")
        return folder / "old.txt"
    if kind == "rewards":
        rows = [{"step": 0, "prompt_id": name, "reward": -1.0} for name in IDS]
        (folder / "old.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return folder / "old.jsonl"
    if kind == "no beliefs":
        ba.save_state(folder / "old.npz", {"evidence": np.ones(3)})
    elif kind == "bad evidence":
        ba.save_state(folder / "old.npz", {"ids": IDS, "evidence": -np.ones((8, 2))})
    elif kind == "pickle":
        (folder / "old.npz").write_bytes(pickle.dumps(Unpickled()))
    elif kind == "pickled array":
        np.savez(folder / "old.npz", meta=np.array([Unpickled()], dtype=object))
    return folder / "old.npz"


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("no file", "no file or folder '.*missing.jsonl'. Give an earlier run's ledger"),
        ("another dataset", "rollouts of 0 of the 8 prompts.*8 others.*records of a run on this dataset"),
        ("empty", "rollouts of 0 of the 8 prompts"),
        ("no log", "log of a known kind"),
        ("rewards", "success -1, outside.*Features.of_rates"),
        ("no beliefs", "does not hold beliefs of budgetalloc: give a ledger"),
        ("bad evidence", "does not hold beliefs of budgetalloc"),
        ("pickle", "does not hold beliefs of budgetalloc"),
        ("pickled array", "does not hold beliefs of budgetalloc"),
    ],
)
def test_bad_files_are_refused(tmp_path, monkeypatch, kind, says):
    monkeypatch.chdir(tmp_path)
    path = damaged(tmp_path, kind)
    with pytest.raises(ba.InputError, match=f"features=.*{path.name}.*{says}"):
        features_of(PROMPTS, ["text", path])
    assert not Path("unpickled").exists()
