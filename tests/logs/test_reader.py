"""What `open_log` finds where, and which arguments it refuses."""

from pathlib import Path

import pytest

import budgetalloc as ba
from budgetalloc.errors import InputError
from budgetalloc.logs.reader import open_log

FILES = Path(__file__).parent / "kinds" / "files"


def write(path, steps, size=4):
    log = ba.LedgerWriter(path)
    for step in steps:
        ids = [f"p{(step + k // 2) % 7}" for k in range(size)]
        log.append(step, ids, [step % 2] * size, [9] * size, [0.5] * size, [2] * size)
    return path


def test_each_kind_is_recognised_in_its_file_and_in_its_folder(tmp_path):
    pytest.importorskip("pyarrow")
    write(tmp_path / "own" / "ledger.jsonl", [0])
    places = {
        "trl": FILES / "trl" / "two",
        "verl": FILES / "verl",
        "prime-rl": FILES / "prime_rl",
        "ledger": tmp_path / "own",
    }
    for kind, folder in places.items():
        wanted = {"prime-rl": "rollouts"}.get(kind)
        log = open_log(folder / wanted if wanted else folder)
        assert log.kind == kind
        file = log.files()[0]
        assert open_log(file).kind == kind, file


def test_several_logs_in_a_folder_are_listed(tmp_path):
    write(tmp_path / "one.jsonl", [0])
    (tmp_path / "two.csv").write_text("step,prompt_id,reward\n0,a,1\n")
    with pytest.raises(InputError, match=r"holds 2 logs.*\n.*one.jsonl  \(kind='ledger'\)\n.*two.csv  \(kind='counts'"):
        open_log(tmp_path)
    assert open_log(tmp_path, kind="counts").path == tmp_path / "two.csv"


def test_what_is_no_log_is_refused_with_the_kinds(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing of use")
    for place in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(InputError, match=r"does not contain a log of a known kind \(ledger, trl"):
            open_log(place)
    with pytest.raises(InputError, match=r"does not contain a log of kind 'trl'"):
        open_log(tmp_path, kind="trl")
    with pytest.raises(InputError, match="no such file"):
        open_log(tmp_path / "absent")
    with pytest.raises(InputError, match="source is a dict"):
        open_log({})


@pytest.mark.parametrize(
    "wrong", [{"kind": "trls"}, {"chunk": 0}, {"reward_range": (1, 0)}, {"reward_range": 3}, {"reward_range": ("a", 1)}]
)
def test_arguments_out_of_range_are_named(tmp_path, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        open_log(write(tmp_path / "l", [0]), **wrong)
