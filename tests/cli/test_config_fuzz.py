"""Any text is read as a `Config` that can be written and read again, or refused in one line.

`make fuzz` draws many more examples.
"""

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from budgetalloc.cli.config import BUDGET, CALLBACK, SECTIONS, Config
from budgetalloc.contrib.pacing import PACING
from budgetalloc.errors import BudgetallocError
from budgetalloc.methods.table import METHODS, method_of

EXAMPLES = [path.read_text() for path in sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))]
NAMES = [method.name for method in METHODS]
BOUNDED = settings(
    max_examples=int(os.environ.get("BUDGETALLOC_FUZZ", "80")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

numbers = st.integers(-3, 300) | st.sampled_from([10**12, -(10**12), 2**63, 10**400, 0.5, 1e308, 1e-308, -0.0])
numbers |= st.sampled_from([float("inf"), float("-inf"), float("nan")])
others = ("pool", "all", "group", "loo", "none", "phases", "", "\x1b[31m", "中", "\ud7ff", "010")
words = st.sampled_from([*NAMES, *others])
plain = st.none() | st.booleans() | numbers | words
anything = st.recursive(plain, lambda x: st.lists(x, max_size=3) | st.dictionaries(words, x, max_size=2), max_leaves=6)


def read(text):
    """The config, or None after a one-line refusal."""
    said, config = "f.yaml", None
    try:
        config = Config.parse(text, "f.yaml")
    except BudgetallocError as error:
        said = str(error)
    assert said.startswith("f.yaml")
    assert "\n" not in said
    if config is not None:
        shown = yaml.safe_dump(config.as_dict())
        assert yaml.safe_dump(Config.parse(shown).as_dict()) == shown
        config.build()
    return config


lines = st.sampled_from(["policy: vade", "budget: {floor: 2}", "  name: dapo", "- 1"]) | st.text(max_size=15)


@st.composite
def sections(draw):
    """Known sections and keys with arbitrary values."""
    name = draw(st.sampled_from(NAMES))
    known = {"policy": ["name", *method_of(name).defaults()], "estimator": ["prior", "discount", "idle"]}
    known |= {"budget": list(BUDGET), "callback": list(CALLBACK), "pacing": list(PACING), "grpo": ["max_steps"]}
    chosen = draw(st.lists(st.sampled_from(SECTIONS), unique=True, max_size=3))
    values = {key: draw(anything) for key in chosen}
    for key in draw(st.lists(st.sampled_from(sorted(known)), unique=True, max_size=3)):
        values[key] = draw(st.dictionaries(st.sampled_from(known[key]), anything, max_size=4))
    if isinstance(values.get("policy"), dict):
        values["policy"] = {"name": name} | values["policy"]
    return values


@BOUNDED
@given(sections())
@example({"policy": {"name": "uniform", "seed": 2**63}})
@example({"policy": {"name": "knapsack", "prior": [float("nan"), 1.0]}})
@example({"pacing": {"name": "phases", "rollouts": 10, "steps": 2, "parts": []}})
@example({"budget": {"cap": 10**400}})
@example({"budget": {"rollouts": [64]}})
@example({"callback": {"success": 10**400}})
def test_any_values_of_the_known_keys_are_a_config_or_one_line(values):
    read(yaml.safe_dump(values))


@BOUNDED
@given(st.sampled_from(EXAMPLES) | st.lists(lines, max_size=4).map("\n".join), st.data())
def test_a_damaged_file_is_a_config_or_one_line(text, data):
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        end = min(len(text), at + data.draw(st.integers(0, 9)))
        inserted = data.draw(st.text(max_size=6) | st.sampled_from(["!!bool x", "&a", "*a", "<<: ", "---", "\t"]))
        text = text[:at] + inserted + text[end:]
    read(text)


@pytest.mark.parametrize(
    "text",
    [
        "policy: !!bool x",
        "? {a: 1}\n: 2",
        "a: " + "[" * 2000,
        "{" * 10**5,
        "policy: {name: uniform, seed: .inf}",
        "policy: {name: uniform, discount: .nan}",
        "%YAML 9.9\n--- a",
        "\x00",
        "a:\n\t- 1",
        "pacing: {name: constant, rollouts: 1000000000000, steps: 1000000000000}",
        "pacing: {name: phases, rollouts: 1000000000000, steps: 3, parts: [[1000000000000, 1.0], [1, .nan]]}",
        "pacing: {name: phases, rollouts: 1000, steps: 3, parts: [[-1, 1.0]]}",
    ],
    ids=lambda text: text[:20].encode("unicode_escape").decode(),
)
def test_known_attacks(text):
    assert read(text) is None


def test_a_byte_order_mark_is_no_part_of_the_first_key():
    assert read("\ufeffpolicy: vade").method == "vade"


VALUES = ["1000000000000", "-1", "0", "1" + "0" * 400, ".nan", ".inf", "-1e308", "x", "true", "{a: 1}", "[.nan, 1]"]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("dump", "sec")])
def test_every_argument_of_a_method_takes_or_refuses_any_value_at_once(name):
    for key in method_of(name).defaults():
        for value in [*VALUES, "[1000000000000, 1000000000000]", "[[1000000000000, 1, 2]]"]:
            read(f"policy: {{name: {name}, {key}: {value}}}")
