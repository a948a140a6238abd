"""`read_log` finds each kind of log, and refuses wrong arguments."""

import copy
import pickle
from pathlib import Path

import pytest

import budgetalloc as ba
from budgetalloc.errors import InputError
from budgetalloc.logs.ledger import read_log
from budgetalloc.logs.records import Notes

FILES = Path(__file__).parent / "kinds" / "files"


def write(path):
    """A ledger with one rollout."""
    ba.LedgerWriter(path).append(0, ["a"], [1.0], [9], [0.5], [1])
    return path


def test_each_kind_is_recognised_in_its_file_and_in_its_folder(tmp_path):
    pytest.importorskip("pyarrow")
    write(tmp_path / "own" / "ledger.jsonl")
    places = {"trl": FILES / "trl" / "two", "verl": FILES / "verl", "prime-rl": FILES / "prime_rl" / "rollouts"}
    for kind, folder in {**places, "ledger": tmp_path / "own"}.items():
        log = read_log(folder)
        assert log.kind == kind
        file = next(x for x in sorted(log.path.rglob("*")) if x.is_file()) if log.path.is_dir() else log.path
        assert read_log(file).kind == kind, file


def test_several_logs_in_a_folder_are_listed(tmp_path):
    write(tmp_path / "one.jsonl")
    (tmp_path / "two.csv").write_text("step,prompt_id,reward\n0,a,1\n")
    with pytest.raises(InputError, match=r"holds 2 logs.*\n.*one.jsonl  \(kind='ledger'\)\n.*two.csv  \(kind='table'"):
        read_log(tmp_path)


def test_what_is_no_log_is_refused_with_the_kinds(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing of use")
    for place in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(InputError, match=r"does not contain a log of a known kind \(ledger, trl"):
            read_log(place)
    with pytest.raises(InputError, match="no such file"):
        read_log(tmp_path / "absent")
    with pytest.raises(InputError, match="source is a dict"):
        read_log({})


@pytest.mark.parametrize(
    "wrong", [{"step": 0}, {"reward_range": (1, 0)}, {"reward_range": 3}, {"reward_range": ("a", 1)}]
)
def test_arguments_out_of_range_are_named(tmp_path, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        read_log(write(tmp_path / "l"), **wrong)


def test_notes_keep_their_doubts_when_pickled_and_copied():
    notes = Notes()
    notes.doubt("rows may be missing", 3)
    notes.missing = (2, 9)
    again = pickle.loads(pickle.dumps(notes))  # noqa: S301
    for other in (again, copy.copy(notes), copy.deepcopy(notes)):
        assert (other, other.doubts, other.missing) == (notes, ["rows may be missing"], (2, 9))


@pytest.mark.parametrize("name", ["aggregated_results.jsonl", "run_metadata.jsonl", "a.csv", "z.csv"])
def test_a_folder_is_read_by_the_file_that_has_the_named_columns(tmp_path, name):
    rows = "".join(f"q{k // 4},{k % 2},r\n" for k in range(20))
    (tmp_path / "gsm8k.csv").write_text("input_prompt,score,response\n" + rows)
    (tmp_path / name).write_text('{"avg_score": 0.5}\n' if name.endswith("l") else "avg_score,at\n0.5,1\n")
    log = read_log(tmp_path, prompt="input_prompt", reward="score")
    assert (log.path.name, len(log)) == ("gsm8k.csv", 20)
    with pytest.raises(InputError, match=r"gsm8k\.csv has the columns \['input_prompt', 'score', 'response'\]"):
        read_log(tmp_path)
    with pytest.raises(InputError, match=r"prompt='input_promt': the log has no such column.*'input_prompt'"):
        read_log(tmp_path, prompt="input_promt", reward="score")
