"""Text from a log, a file name or a YAML key cannot control the terminal, and every console encoding works."""

import io
import json
import os
import subprocess
import sys

import pytest

from budgetalloc.cli.__main__ import Plain, main
from budgetalloc.errors import printable

COMMAND = [sys.executable, "-m", "budgetalloc.cli"]
ESCAPE = "\x1b]0;title\x07\x1b[31m"


def ledger(path, ids):
    rows = [{"step": 0, "id": x, "reward": r, "length": 1, "predicted": 0.5, "count": 2} for x in ids for r in (0, 1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_control_characters_are_shown_as_escapes():
    assert printable("a\tb\nc") == "a\tb\nc"
    assert printable("\x1b[31m\r\x07\x00\x7f\x9b") == r"\x1b[31m\r\x07\x00\x7f\x9b"
    assert printable("\u202eevil\u2066\u2028") == r"\u202eevil\u2066\u2028"
    assert printable("中é🙂") == "中é🙂"


@pytest.mark.parametrize(("encoding", "text"), [("ascii", r"\u4e2d\xe9"), ("latin-1", r"\u4e2dé"), ("utf-8", "中é")])
def test_what_an_encoding_lacks_is_shown_as_an_escape(encoding, text):
    raw = io.BytesIO()
    stream = Plain(io.TextIOWrapper(raw, encoding=encoding))
    print("中é", file=stream, flush=True)
    assert raw.getvalue().decode(encoding) == text + os.linesep


@pytest.mark.slow
@pytest.mark.parametrize(("command", "encoding"), [("report", "cp1252"), ("replay", "ascii")])
def test_a_console_of_any_encoding_and_ids_with_escape_codes(command, encoding, tmp_path):
    path = ledger(tmp_path / f"中{ESCAPE.replace('/', '')}.jsonl", ["中", ESCAPE, "\ud800", "a\rb"])
    words = [*COMMAND, command, str(path), "--seeds", "1", "--workers", "1", "--steps", "1"]
    if command == "report":
        words = [*words, "--html", str(tmp_path / "page.html")]
    run = subprocess.run(words, capture_output=True, env=os.environ | {"PYTHONIOENCODING": encoding}, check=False)
    assert b"Traceback" not in run.stderr
    assert run.returncode == 0, run.stderr
    for printed in (run.stdout, run.stderr):
        assert not {*b"\x1b\x07\r"} & {*printed}
        printed.decode(encoding)


@pytest.mark.parametrize(
    "words",
    [
        ["report", f"none{ESCAPE}"],
        ["report", "x", "--policy", f"none{ESCAPE}"],
        ["report", "x", "--step", ESCAPE],
        ["replay", "x", "--reward", f"{ESCAPE}=y"],
        ["recipe", "x", ESCAPE],
        ["demo", "--config", f"none{ESCAPE}"],
        [ESCAPE],
        ["demo", "--steps", ESCAPE],
    ],
)
def test_what_is_typed_cannot_control_the_terminal(words, capsys):
    try:
        status = main(words)
    except SystemExit as stop:
        status = stop.code
    seen = capsys.readouterr()
    assert status in (1, 2)
    assert seen.err
    assert not set("\x1b\x07") & set(seen.out + seen.err)


@pytest.mark.parametrize("text", ['"a\\e[31m": 1', 'policy: "\\e[31m"', 'budget: {"x\\e[2J": 1}', "a: \x1b[31m"])
def test_keys_and_values_of_a_yaml_file_cannot_control_the_terminal(text, tmp_path, capsys):
    (tmp_path / "x.yaml").write_text(text)
    assert main(["demo", "--config", str(tmp_path / "x.yaml")]) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert "\x1b" not in errors
