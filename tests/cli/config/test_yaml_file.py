"""Reading YAML settings: errors with line and key, refusals, and no silent conversions."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from budgetalloc.cli.config.yaml_file import read_text, written
from budgetalloc.errors import BudgetError, InputError, check_integer


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3", "f.yaml, line 3: a: given twice, first in line 1."),
        ("a: {b: 1,\n  b: 2}", "f.yaml, line 2: a.b: given twice, first in line 1."),
        ("a: [{b: 1}, {b: 2, b: 3}]", "f.yaml, line 1: a[1].b: given twice"),
        ("a: &x 1\nb: *x", "line 1: YAML anchors and tags"),
        ("a: &x [*x]", "line 1: YAML anchors and tags"),
        ("<<: {a: 1}", "this key is not a plain word"),
        ("a: 1\nb: 2\n<<: {a: 1}", "f.yaml, line 3: this key is not a plain word"),
        ("? [a, b]\n: 3", "this key is not a plain word"),
        ("a: [1, 2", "f.yaml, line 1: not YAML: "),
        ("a: !!python/object/apply:os.system [ls]", "f.yaml, line 1: YAML anchors and tags"),
        ("a: 1\nseed: !!bool x", "f.yaml, line 2: YAML anchors and tags"),
        ("a: !!str 3", "f.yaml, line 1: YAML anchors and tags"),
        ("a: " + "9" * 5000, "f.yaml, line 1: not YAML: "),
        ("--- {a: 1}\n--- {a: 2}", "f.yaml, line 2: not YAML: "),
        ("- 3", "f.yaml: use settings"),
        ("adaptive", "f.yaml: use settings"),
        ("[" * 5000, "not YAML"),
    ],
)
def test_what_would_be_read_silently_or_wrongly_is_refused(text, said):
    with pytest.raises(InputError, match=r"^f\.yaml") as caught:
        read_text(text, "f.yaml")
    assert said in str(caught.value)


def test_an_empty_file_is_an_empty_section():
    for text in ("", "# nothing\n", "null"):
        assert read_text(text, "f.yaml").values == {}


def test_numbers_are_those_of_yaml_1_2():
    """PyYAML alone reads 1e-6 as a text, 010 as 8 and 1:30 as 90."""
    text = "[1e-6, -2E3, 1.0e-6, '1e-6', 1e-6x, 010, 1:30, 0o17, 0x1f, 1_000, yes, 2024-13-45, .5, -.inf]"
    values = [1e-6, -2000.0, 1e-6, "1e-6", "1e-6x", 10, "1:30", 15, 31, "1_000", "yes", "2024-13-45", 0.5, -math.inf]
    assert read_text(f"a: {text}", "f.yaml").values == {"a": values}


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(scalars, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(), x, max_size=3))


@given(st.dictionaries(st.text(), values, max_size=4))
@example({"text": "1e-6", "number": 1e-6})
@example({"1e5": [True, "yes", "null", "~", "2024-01-01", "0x1f", "1:30", "010", "0o17", "08", ".inf"]})
@example({"<<": None})
def test_what_is_written_is_read_back(content):
    assert read_text(written(content), "f.yaml").values == content


def test_an_error_says_line_key_value_and_what_would_do():
    source = read_text("pacing:\n  steps: two\n  low: 1\n", "f.yaml")
    with pytest.raises(InputError) as caught, source.named("budget", "pacing"):
        check_integer("steps", source.section("pacing")["steps"], 1)
    assert str(caught.value) == "f.yaml, line 2: pacing.steps: steps='two': use an integer of at least 1."
    with pytest.raises(BudgetError) as other, source.named("budget", "pacing"):
        raise BudgetError("Horizon(steps=2): too few.")
    assert str(other.value) == "f.yaml, line 1: pacing: Horizon(steps=2): too few."


def test_a_section_is_a_mapping_of_known_keys():
    source = read_text("pacing:\n  stepps: 2\nbudget: 0\ngrpo:", "f.yaml")
    with pytest.raises(InputError, match=r"^f\.yaml, line 2: pacing\.stepps: unknown key, did you mean steps\? Known"):
        source.section("pacing", ("low", "steps"))
    with pytest.raises(InputError, match=r"^f\.yaml, line 3: budget: 0: use settings of the form"):
        source.section("budget")
    with pytest.raises(InputError, match=r"^f\.yaml, line 1: pacing: unknown key\. Known: budget, grpo\."):
        source.section("", ("budget", "grpo"))
    assert (source.section("pacing"), source.section("grpo", ()), source.section("model")) == ({"stepps": 2}, {}, {})
