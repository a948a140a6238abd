"""Readers on damaged and hostile files: they read the file or raise `BudgetallocError`, never another exception.

`BUDGETALLOC_FUZZ=100000 HYPOTHESIS_PROFILE=explore pytest tests/logs/test_fuzz.py --hypothesis-show-statistics` draws
that many new files for each test and prints their number.
"""

import contextlib
import copy
import gzip
import io
import json
import os
import re
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.cli.__main__ import main
from budgetalloc.logs.ledger import COLUMNS, read_log

FILES = Path(__file__).parent / "kinds" / "files"
fuzzed = settings(
    max_examples=int(os.environ.get("BUDGETALLOC_FUZZ", "100")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)


def outcome(path, **asked):
    """Reads a log and checks its frame and notes."""
    refused = ""
    try:
        log = read_log(path, **asked)
        assert tuple(log.frame.columns)[: len(COLUMNS)] == COLUMNS
        assert all(type(x) in (int, str) for x in log.frame.prompt)
        assert log.frame.step.is_monotonic_increasing
        assert not np.isinf(log.frame.reward).any()
        assert not (log.frame.length < 0).any()
        assert all(text.isprintable() and count > 0 for text, count in log.notes.items())
        assert set(log.notes.doubts) <= set(log.notes)
    except ba.BudgetallocError as error:
        refused = str(error)
    assert refused.replace("\n", "").isprintable()


def shown(path):
    """Reports the log as text, with a replay, and as JSON. Warnings of numpy are errors here."""
    for command in (["report", str(path)], ["report", str(path), "--no-replay", "--json"]):
        said, errors = io.StringIO(), io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
            warnings.simplefilter("error")
            status = main(command)
        assert status in (0, 1)
        assert (status == 0) == bool(said.getvalue()), command
        assert errors.getvalue().count("\n") <= 1
        assert not re.search(r"\bnan\b", said.getvalue()), said.getvalue()


HOSTILE = [None, True, "", "x", "1", "\x1b[2J", "\ud800", float("inf"), float("nan"), -float("inf"), 1e19, 1e300, -1, 0]
HOSTILE += [2**53 + 1, 2**63, 2**64, 10**400, "9" * 5000, [], [[]], {}, {"a": 1}, [1, 2], 0.5, 1.5, "[[[", b"x"]
hostile = st.sampled_from(HOSTILE)


def texts(value):
    """A value as JSON. Other values than JSON has become texts."""
    return json.dumps(value, default=lambda x: "bytes")


# JSON lines


def _records(path):
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    return [json.loads(line) for line in content.splitlines()]


ROW = {"step": 0, "id": "a", "reward": 1.0, "length": 3, "predicted": 0.5, "count": 1}
LEDGER = [ROW | {"step": k, "id": "ab"[k % 2], "decision": k + 1, "success": 0} for k in range(3)]
LEDGER += [{"resumed": 1}, {"reward_range": [0, 2]}, ROW]
SHAPES = {
    "ledger": LEDGER,
    "verl": _records(FILES / "verl" / "1.jsonl")[:3],
    "traces": _records(FILES / "verifiers" / "traces.jsonl.gz")[:2]
    + _records(FILES / "prime_rl" / "traces.jsonl.gz")[:2],
    "tinker": _records(FILES / "tinker" / "iteration_000002" / "train_rollout_summaries.jsonl"),
    "nemo-gym": _records(FILES / "nemo_gym" / "rollouts_reward_profiling.jsonl"),
    "art": [
        {
            "group_index": 0,
            "reward": 1.0,
            "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
        }
    ],
    "facts": [
        {"step": k % 2, "task_id": k % 2, "reward": [0.0] * k + [1.0], "resps": [["a", "b"]], "run": "ab"[k % 2]}
        | {"filter": "x", "num_samples": 4, "group_rewards": [1, 0], "advantage": 0.5, "prompt": f"{k}", "answer": "7"}
        for k in range(12)
    ],
    "flat": _records(FILES / "verifiers" / "results.jsonl.gz")[:3],
}


def _places(value, place=()):
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, x in inner:
        yield from _places(x, (*place, key))


PLACES = {name: [list(_places(x)) for x in records] for name, records in SHAPES.items()}


@st.composite
def damaged_records(draw, name):
    """Records of a kind, with some values replaced or removed."""
    lines = []
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(SHAPES[name]) - 1))
        record = copy.deepcopy(SHAPES[name][at])
        for _ in range(draw(st.integers(0, 2))):
            *way, last = draw(st.sampled_from(PLACES[name][at])) or ("extra",)
            value = draw(hostile)
            inner = record
            try:
                for key in way:
                    inner = inner[key]
                if draw(st.booleans()):
                    inner[last] = value
                else:
                    del inner[last]
            except (LookupError, TypeError):
                pass  # an earlier replacement removed the place
        lines.append(texts(record))
    odd = ["{", "5", "[]", "", "[" * 5000, '{"traces": 5}', '{"step": 1e400}', '{"resumed": 1e400}', "\x00"]
    odd += ['{"a": "\\ud800"}']
    lines += draw(st.lists(st.sampled_from(odd), max_size=2))
    return "\n".join(draw(st.permutations(lines))) + "\n"


@st.composite
def damaged_bytes(draw, content):
    """The bytes with some of them changed, or cut off."""
    content = bytearray(content)
    for _ in range(draw(st.integers(0, 3))):
        if content:
            content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.integers(0, len(content)))] if draw(st.booleans()) else content)


asked = st.fixed_dictionaries(
    {},
    optional={
        "prompt": st.sampled_from(["id", "input", "prompt", "x", "step", "id,step"]),
        "reward": st.sampled_from(["reward", "score", "low", "completion", {"reward": 1, "score": 2.0}]),
        "success": st.sampled_from(["reward", "success", "score", "prompt"]),
        "reward_range": st.just((0, 2)),
        "step": st.sampled_from(["step", "id", "x"]),
        "length": st.sampled_from(["length", "id"]),
    },
)


@fuzzed
@given(st.data(), st.sampled_from(sorted(SHAPES)), asked, st.booleans())
def test_json_lines(tmp_path, data, name, options, packed):
    content = data.draw(damaged_records(name)).encode("utf-8", "surrogatepass")
    content = gzip.compress(content, mtime=0) if packed else content
    path = tmp_path / ("1.jsonl.gz" if packed else "1.jsonl")
    path.write_bytes(data.draw(damaged_bytes(content)) if data.draw(st.booleans()) else content)
    outcome(path, **options)
    outcome(tmp_path, **options)


ODD = [0, 1, 0.5, -1, None, "NaN", "-Infinity", "1e400", 1e308, -1e308, 1e300, 5e-324, 2, [1, 0], [1], [], "1"]
numbers = st.sampled_from(ODD)


@settings(fuzzed, max_examples=-(-fuzzed.max_examples // 2))  # two reports each
@given(st.data())
def test_a_damaged_ledger_is_reported(tmp_path, data):
    """In a good ledger some numbers are replaced. Both commands print a result or one line of error."""
    keys = ["reward", "predicted", "length", "count", "success", "decision", "step", "id", "reward_range"]
    lines = []
    for k in range(data.draw(st.integers(1, 8))):
        row = {"step": k // 2, "id": "ab"[k % 2], "reward": k % 3 / 2, "length": 3, "predicted": 0.5, "count": 1}
        for key in data.draw(st.lists(st.sampled_from(keys), max_size=2)):
            row[key] = data.draw(numbers) if key != "reward_range" else [data.draw(numbers), data.draw(numbers)]
        if "reward_range" in row:
            lines.append(json.dumps({"reward_range": row.pop("reward_range")}))
        lines.append(json.dumps(row))
    text = "\n".join(lines) + "\n"
    for name in ("NaN", "-Infinity", "1e400"):
        text = text.replace(f'"{name}"', name)
    path = tmp_path / "ledger.jsonl"
    path.write_text(text)
    shown(path)


# Tables

NAMES = ["step", "prompt_id", "id", "prompt", "reward", "rewards", "reward_0", "reward_1", "score", "correct", "n"]
NAMES += ["length", "predicted", "success", "completion", "advantage", "accuracy", "\x1b[31m", ""]
CELLS = [
    "",
    "0",
    "1",
    "a",
    "1e400",
    "-1",
    "0.5",
    "nan",
    "inf",
    "10000000",
    "9" * 400,
    "[1, 0]",
    "[[",
    "011",
    "1;x",
    '"',
]
CELLS += ["[" * 3000, "true", "\ufeff", "é" * 50, "1" * 300, "18446744073709551616", "1e308", '"a\r\nb"', "\x1b[2J"]
CELLS += ["\x00"]


@fuzzed
@given(st.data(), asked)
def test_csv(tmp_path, data, options):
    names = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6))
    rows = data.draw(st.lists(st.lists(st.sampled_from(CELLS), min_size=1, max_size=7), max_size=9))
    end, separator = data.draw(st.sampled_from(["\n", "\r\n", "\r"])), data.draw(st.sampled_from(",;\t"))
    content = end.join(separator.join(row) for row in (names, *rows)).encode()
    packed = data.draw(st.booleans())
    content = gzip.compress(content, mtime=0) if packed else content
    path = tmp_path / ("c.csv.gz" if packed else "c.csv")
    path.write_bytes(data.draw(damaged_bytes(content)) if data.draw(st.booleans()) else content)
    outcome(path, **options)


def _columns(pa):
    """Columns of three rows of many types."""
    message = {"role": "user", "content": "x"}
    for values in (
        [0, 1, 1],
        [1.0, 0.0, None],
        [1e300, float("nan"), float("inf")],
        ["a", "b", None],
        ["1", "0.5", "\x1b"],
        [True, False, None],
        [None] * 3,
        [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]],
        [[1], [], None],
        [[["a"]], None, [[]]],
        [{"a": 1}] * 3,
        [b"x", b"\xff", None],
        [message] * 3,
        [[message]] * 3,
    ):
        yield pa.array(values)
    yield pa.array(["a", None, "b"]).dictionary_encode()
    yield pa.array([2**63 + 5, 0, 1], pa.uint64())
    yield pa.array([2**62, 0, None], pa.timestamp("s"))


@st.composite
def tables(draw, names):
    pa = pytest.importorskip("pyarrow")
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=6))
    columns = list(_columns(pa))
    return pa.Table.from_arrays([columns[draw(st.integers(0, len(columns) - 1))] for _ in chosen], chosen)


@fuzzed
@given(st.data(), asked, st.sampled_from(["parquet", "stream", "file", "trl"]))
def test_parquet_and_arrow(tmp_path, data, options, form):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    table = data.draw(tables(NAMES))
    path = tmp_path / {"parquet": "d.parquet", "trl": "completions_00001.parquet"}.get(form, "d.arrow")
    try:
        if form in ("parquet", "trl"):
            pq.write_table(table, path)
        else:
            with (pa.ipc.new_stream if form == "stream" else pa.ipc.new_file)(str(path), table.schema) as writer:
                writer.write_table(table)
    except (pa.ArrowException, ValueError):
        return  # a table that this format cannot hold
    if data.draw(st.booleans()):
        path.write_bytes(data.draw(damaged_bytes(path.read_bytes())))
    outcome(path, **options)
    path.unlink()


# Tables of W&B


# Folders


@fuzzed
@given(st.data(), asked)
def test_folders(data, options):
    names = ["1.jsonl", "x.csv", "a.parquet", "b.arrow", "completions_00001.parquet", "completions", "rollouts"]
    names += [
        "step_1",
        "train_rollouts.jsonl",
        "traces.jsonl",
        "results.jsonl",
        "dataset_dict.json",
        "completions_1_a.table.json",
    ]
    names += ["trainer_state.json", "iteration_000003", "train_rollout_summaries.jsonl", "x_reward_profiling.jsonl"]
    names += ["00000.jsonl", "00000.jsonl.zst", "traces", "train"]
    contents = [b"", b"x", b"{}\n", b'{"traces": 5}\n', b"step,id,reward\n0,a,1\n", b"\x1f\x8b\x08", b"PAR1"]
    contents += [b"ARROW1\0\0", b":W&B", b"\x28\xb5\x2f\xfd\0", (FILES / "prime_rl" / "traces.jsonl.gz").read_bytes()]
    with tempfile.TemporaryDirectory() as name:
        for _ in range(data.draw(st.integers(0, 5))):
            place = Path(name, *data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)))
            if place.exists() or place.is_symlink():
                continue
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                kind = data.draw(st.sampled_from(["file", "file", "file", "folder", "pipe", "link"]))
                if kind == "file":
                    place.write_bytes(data.draw(st.sampled_from(contents)))
                elif kind == "folder":
                    place.mkdir()
                elif kind == "pipe" and hasattr(os, "mkfifo"):
                    os.mkfifo(place)
                elif kind == "link":
                    place.symlink_to(data.draw(st.sampled_from(["nothing", "1.jsonl", ".", "/dev/zero"])))
            except OSError:
                continue  # something else has the name
        outcome(Path(name), **options)


# The ledger's writer

mostly = {
    "step": st.integers(0, 3),
    "ids_R": st.lists(st.sampled_from(["a", "b", 7, "\ud800", "\x1b"]), max_size=3),
    "decision": st.none() | st.integers(0, 9),
    "reward_range": st.sampled_from([None, (0, 1), (-3, 2.5)]),
    "numbers": st.floats(-2, 2) | st.integers(-3, 3) | st.sampled_from([None, float("nan")]),
}


@fuzzed
@given(st.data())
def test_what_the_writer_takes_is_read_whole(data):
    """The writer refuses what a ledger cannot hold. No row that it accepts is broken when it is read."""
    rows, resumed = 0, False
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "ledger.jsonl"
        log = ba.LedgerWriter(path)
        for _ in range(data.draw(st.integers(1, 4))):
            call = {key: data.draw(mostly[key]) for key in ("step", "ids_R", "decision", "reward_range")}
            numbers = st.lists(mostly["numbers"], min_size=len(call["ids_R"]), max_size=len(call["ids_R"]))
            for key in ("rewards_R", "lengths_R", "predicted_R", "counts_R", "success_R"):
                call[key] = data.draw(numbers)
            if data.draw(st.integers(0, 3)) == 0:
                call[data.draw(st.sampled_from(sorted(call)))] = data.draw(hostile | st.lists(hostile, max_size=3))
            refused = ""
            try:
                log.append(**call)
                rows += len(call["ids_R"])
                if data.draw(st.integers(0, 9)) == 0:
                    log.resume(data.draw(st.integers(0, 3) | hostile))
                    resumed = True
            except ba.BudgetallocError as error:
                refused = str(error)
            assert refused.replace("\n", "").isprintable()
        outcome(path)
        if path.exists():
            ledger = ba.Ledger.read(path)
            assert ledger.notes["broken row"] == 0
            assert len(ledger) <= rows if resumed else len(ledger) == rows
