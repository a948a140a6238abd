"""The doctor answers any script with a diagnosis of bounded size or a one-line error, and executes nothing.

`make fuzz` draws many more examples.
"""

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from budgetalloc.cli.__main__ import main
from budgetalloc.cli.doctor.grpo_config import DEFAULTS
from budgetalloc.cli.doctor.setup import ARGUMENTS, OTHERS

BOUNDED = settings(
    max_examples=int(os.environ.get("BUDGETALLOC_FUZZ", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
EXAMPLES = [path.read_text() for path in sorted((Path(__file__).parents[3] / "integrations/trl").glob("*.py"))]
MARK = Path(tempfile.gettempdir(), f"doctor-executed-{os.getpid()}")
MADE = f"open({str(MARK)!r}, 'w')"  # no script may ever do it
LITERALS = [MADE, f"[x for x in [{MADE}]]", f"f'{{{MADE}}}'", f"lambda x={MADE}: x"]
LITERALS += ["None", "True", "False", "...", "0", "-1", "1", "8", "64", "0.5", "1e999", "-1e308", "1e999 - 1e999", "2j"]
LITERALS += ["1" + "0" * 60, "0x" + "f" * 4000, "10**10**10", "'x' * 10**9", "b'x'", "''", "'all'", "'prompt'"]
LITERALS += ["'group'", "'\\x1b[31m'", "'\\ud800'", "[]", "{}", "()", "{1, 2}", "f'{1}'", "f", "os.environ", "args.x"]
LITERALS += ["lambda *_: 1", "[n for n in n0]", "n1[0]", "ba.adaptive(seed=n0)", "ba.knapsack(**n0)", "ba.uniform(n0)"]
LITERALS += ["load_dataset('json', data_files=n0)", "n0.map(f)", "Dataset.from_list(n0)", "Dataset.from_dict(n1)"]
LITERALS += ["Dataset.from_list([{'prompt': n0} for n in range(n1)])"]
# n0 to n5 name one another: `n1 = [n0, n0]`, `n2 = [n1, n1]`, and circles.
names = st.integers(0, 5).map(lambda n: f"n{n}")
atoms = st.sampled_from(LITERALS) | names | st.integers().map(str) | st.text(max_size=5).map(repr)
keys = st.sampled_from(["'prompt'", "'prompt_id'", "'a'", "1", "None", "n0", "(1,)", "f()"])
FORMS = ["[{}, {}]", "({}, {})", "{} + {}", "{} * {}", "{} | {}", "{{**{}, **{}}}", "dict(a={}, b={})"]
FORMS += ["dict(**{}, **{})", "f({}, *{})", "{}[{}]", "{} if {} else 1", "-{} // {}", "[*{}, {}]", "make({}).map({})"]


def grown(inner):
    pairs = st.builds(lambda form, one, other: form.format(one, other), st.sampled_from(FORMS), inner, inner)
    entries = st.lists(st.tuples(keys, inner), max_size=3)
    return pairs | entries.map(lambda items: "{" + ", ".join(f"{key}: {value}" for key, value in items) + "}")


values = st.recursive(atoms, grown, max_leaves=5)


def arguments(known):
    """Arguments by name and in dictionaries."""
    one = st.tuples(st.sampled_from([*known, "unknown"]), values).map("=".join) | values.map("**{}".format)
    given = st.lists(one, max_size=4, unique_by=lambda text: text.partition("=")[0])
    return given.map(lambda texts: "".join(f", {text}" for text in texts))


@st.composite
def scripts(draw):
    """A script for TRL with arbitrary names, arguments and datasets."""
    doubling = draw(st.sampled_from(["", *FORMS[:8]]))
    lines = [f"n{n} = {draw(values)}" for n in draw(st.lists(st.integers(0, 5), max_size=5))]
    if doubling:
        doubled = (f"d{n + 1} = {doubling.format(f'd{n}', f'd{n}')}" for n in range(28))
        lines += ["d0 = " + draw(atoms), *doubled, "n5 = d28"]
    config = draw(arguments(DEFAULTS))
    trainer = draw(st.sampled_from(["GRPOTrainer", "GRPOTrainer", "RLOOTrainer", "A", "AsyncGRPOTrainer"]))
    more = draw(arguments(["tools", "environment_factory", "callbacks"]))
    own = draw(arguments([*ARGUMENTS, *OTHERS]))
    lines += [
        MADE,
        f"class A(B, GRPOTrainer): x = {MADE}",
        "class B(A): pass",
        "def f(completions, **_): ...",
        f"args = GRPOConfig('run'{config})",
        f"data = {draw(values)}",
        f"trainer = {trainer}(model, {draw(values)}, args, data{more})",
        f"trainer.add_callback(AdaptiveGRPOCallback(trainer{own}))",
    ]
    return "\n".join(lines)


def examined(text, name="train.py"):
    """Checks what the doctor prints about this text; returns its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text(text, encoding="utf-8", errors="replace")
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            status = main(["doctor", str(path), "--json"])
        said = json.loads(out.getvalue()) if out.getvalue() else None
    assert not MARK.exists()
    assert len(out.getvalue()) < 100_000
    assert (errors.getvalue().count("\n"), len(errors.getvalue()) < 2000) == (0 if said else 1, True)
    assert status == (2 if said is None else 1 if said["refused"] else status)
    return status


@BOUNDED
@given(scripts())
@example(
    "GRPOConfig('run', gradient_accumulation_steps=None, num_iterations=..., save_steps=b'', reward_weights={1: 2})"
)
@example("a = dict(**a)\nb = b | b\nc = {**c}\nGRPOConfig(**a, **b, **c)\nGRPOTrainer(m, c, a, b)")
@example("d = d.map(d)\nd = d[d]\nGRPOTrainer(m, d, d, d)")
def test_any_script_is_a_diagnosis_or_one_line(text):
    assert examined(text) in (0, 1, 2)


@BOUNDED
@given(st.sampled_from(EXAMPLES), st.data())
def test_a_damaged_example_is_a_diagnosis_or_one_line(text, data):
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        end = min(len(text), at + data.draw(st.integers(0, 30)))
        inserted = data.draw(atoms | st.text(max_size=6) | st.sampled_from(["(", ")", "**", "=", "\n"]))
        text = text[:at] + inserted + text[end:]
    assert examined(text) in (0, 1, 2)


@BOUNDED
@given(st.sampled_from(["{", "[", "[[],", '{"prompt":', '{"prompt": "a"}\n', "\x00", "\xff", "1", "\n"]), st.data())
def test_any_file_of_data_is_read_or_refused(piece, data):
    content = piece * data.draw(st.integers(0, 200)) + data.draw(st.text(max_size=20))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.jsonl")
        path.write_text(content, encoding="utf-8", errors="replace")
        files = f"load_dataset('json', data_files={str(path)!r})"
        assert examined(f"def f(): ...\nGRPOTrainer(m, f, GRPOConfig('run'), {files})") in (0, 1, 2)
