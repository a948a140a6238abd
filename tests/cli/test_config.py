"""Settings of a YAML file: their values, their errors, and that any text is settings or one line."""

import os
import pickle
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.cli.config import SECTIONS, Config
from budgetalloc.errors import BudgetallocError, BudgetError, InputError, UnsupportedError
from budgetalloc.methods.table import METHODS, method_of
from budgetalloc.training.options import Options

FILES = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
NAMES = [method.name for method in METHODS]
READABLE = [name for name in NAMES if name not in ("dump", "sec", "pac")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_example_reads(path):
    config = Config.read(path)
    assert config == Config.parse(path.read_bytes())
    assert config.method in NAMES
    assert config.model is None or config.grpo["num_generations"] == 8


@pytest.mark.parametrize("name", READABLE)
def test_a_name_alone_is_the_method_as_python_builds_it(name):
    built, plain = Config.parse(f"policy: {name}").build(seed=3), method_of(name).build(seed=3)
    assert repr(built) == repr(plain)
    assert built.needs == plain.needs


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("", {}),
        ("callback: {candidates: 1}", {"candidates": 1}),
        ("callback: {candidates: all}\nbudget: {floor: 2}", {"candidates": "all", "floor": 2}),
        ("callback: {weight: prompt, baseline: loo}", {"weight": "prompt", "baseline": "loo"}),
        ("callback: {resolution: 0.01}", {"resolution": 0.01}),
        ("callback: {cost: {tokens: 1}, cost_per_step: 9}", {"cost": {"tokens": 1}, "cost_per_step": 9}),
        ("callback: {domain: x, quotas: {math: [0.3, 0.5]}}", {"domain": "x", "quotas": {"math": [0.3, 0.5]}}),
        ("callback: {prompt_id: id, ledger: x.jsonl, reward_range: [-1, 1]}", {"reward_range": (-1, 1)}),
    ],
)
def test_a_file_gives_what_the_callback_takes(text, given):
    for name in ("adaptive", "knapsack", "ar3po"):
        config = Config.parse(f"policy: {name}\n{text}")
        taken = config.callback_arguments(256)
        options = {key: value for key, value in taken.items() if key in Options.names()}
        assert options == given
        needs = method_of(name).build(seed=0).needs
        expected, found = (Options.resolve(n, "group", given) for n in (needs, config.build().needs))
        names = ("bounds", "baseline", "scale", "weight", "reward_range")
        assert [getattr(found, key) for key in names] == [getattr(expected, key) for key in names]
        assert config.bounds == expected.bounds


MISTAKES = [
    ("policy: knapsak", "run.yaml: policy 'knapsak' is unknown, did you mean knapsack?"),
    ("policy: [adaptive]", "run.yaml: policy: ['adaptive']: use settings of the form"),
    ("policy: {name: [vade]}", "run.yaml: policy=['vade'] is of type list: give a policy"),
    ("policy: {name: vade, grup: 4}", "run.yaml: vade(grup=) is unknown, did you mean group? Use one of group"),
    ("policy: {name: vade, group: 4.5}", "run.yaml: group=4.5: use an integer of at least 1."),
    ("policy: {name: knapsack, value: hit}", "run.yaml: value='hit': use one of ('mixed_group', 'pass_at_n',"),
    ("policy: dump", "run.yaml: policy='dump' needs the function domain_of="),
    ("policy: {name: gate, predict: f}", "run.yaml: predict='f': give a function of a View"),
    ("policy: adaptive\nestimator: {discount: 1}", "run.yaml: adaptive(discount=) is unknown"),
    ("policy: uniform\nestimator: {discount: 2}", "run.yaml: discount=2: use a number in [0, 1]"),
    ("estimater: {discount: 1}", "run.yaml: the section estimater is unknown, did you mean estimator?"),
    ("budget: 1024", "run.yaml: budget: 1024: use settings"),
    ("budget: {rollout: 64}", "run.yaml: rollout= is unknown"),
    ("budget: {floor: -1}", "run.yaml: floor=-1: use an integer of at least 0."),
    ("budget: {rollouts: [64]}", "run.yaml: rollouts=[64]: use an integer of at least 1."),
    ("callback: {success: {a: 1}}", "run.yaml: success={'a': 1}"),
    ("callback: {candidates: some}", "run.yaml: candidates='some': use 1, a larger integer or 'all'."),
    ("callback: {baseline: grup}", "run.yaml: baseline='grup': use one of ('group', 'loo', 'batch', "),
    ("callback: {reward_range: [1, 0]}", "run.yaml: reward_range=(1, 0): give the lowest and"),
    ("callback: {hint: my_hint}", "run.yaml: hint= is unknown"),
    ("pacing: {name: constant, rollouts: 64}", "run.yaml: give steps."),
    ("pacing: {name: constant, rollouts: 64, steps: 4, low: 20}", "run.yaml: Horizon("),
    ("pacing: {name: constant, rollouts: 8, steps: 4}\nbudget: {rollouts: 8}", "run.yaml: pacing sets the rollouts"),
    ("- 3", "run.yaml: use settings of the form"),
    ("a: [1, 2", "run.yaml: not YAML: "),
    ("policy: !!python/object/apply:os.system [ls]", "run.yaml: not YAML: could not determine a constructor for"),
    ("model: 2024-13-45", "run.yaml: not YAML: month must be in 1..12"),
]


@pytest.mark.parametrize(("text", "said"), MISTAKES, ids=[text[:40] for text, _ in MISTAKES])
def test_a_mistake_is_named_in_one_line_with_the_file(text, said):
    with pytest.raises((InputError, BudgetError)) as caught:
        Config.parse(text, "run.yaml")
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_wishes_of_the_file_reach_whoever_asks_the_policy_also_in_another_process():
    config = Config.parse("policy: knapsack\ncallback: {candidates: 4, baseline: loo}\nbudget: {min_group: 3}")
    build = pickle.loads(pickle.dumps(config.build))  # noqa: S301
    needs = build(seed=2).needs
    assert (needs.candidates, needs.baseline, needs.min_group, build(seed=2).seed) == (4, "loo", 3, 2)


def test_pacing_spends_the_plan_to_the_last_rollout():
    pacing = "{name: phases, rollouts: 1000, steps: 10, low: 8, quantum: 4, parts: [[5, 1], [5, 3]]}"
    config = Config.parse(f"policy: thompson\nbudget: {{cap: 64}}\npacing: {pacing}")
    plan, budget = list(config.plan), config.bounds.budget(100, prompts=25, group=4)
    assert sum(plan) == 1000
    assert plan[0] < plan[-1]
    run = list(ba.simulate(config.build(seed=0), ba.Learner(seed=0), budget, steps=10))
    spent = [seen["rollouts"] for seen in run]
    assert [b - a for a, b in zip([0, *spent], spent, strict=False)] == plan


def test_a_trainer_with_other_rollouts_is_refused():
    config = Config.parse("budget: {rollouts: 128}", "my.yaml")
    with pytest.raises(UnsupportedError, match=r"my.yaml: budget.rollouts=128: this trainer generates 256 .* Use 256"):
        config.callback_arguments(256)
    assert config.callback_arguments(None) == config.callback_arguments(128) == {}


def test_a_rival_has_its_own_rule_under_the_same_budget():
    config = Config.parse("policy: adaptive\nbudget: {rollouts: 64, cap: 32}\ncallback: {ledger: mine.jsonl}")
    rival = config.rival("uniform")
    assert (rival.method, rival.bounds.cap, rival.rollouts) == ("uniform", 32, 64)
    assert (rival.callback, rival.bounds.candidates, rival.bounds.min_group) == ({}, 1, 2)


# Any text is settings or one line; `make fuzz` draws many more examples.
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
KNOWN = {
    "estimator": ["prior", "discount", "idle"],
    "budget": ["rollouts", "floor", "cap", "quantum", "min_group"],
    "callback": [*Options.names(), "prompt_id", "features", "ledger"],
    "pacing": ["name", "rollouts", "steps", "low", "high", "quantum", "parts"],
    "grpo": ["max_steps"],
}


def read(text):
    """The config, or None after a one-line refusal."""
    said, config = "f.yaml: ", None
    try:
        config = Config.parse(text, "f.yaml")
    except BudgetallocError as error:
        said = str(error)
    assert said.startswith("f.yaml: ")
    assert "\n" not in said
    if config is not None:
        config.build()
    return config


@st.composite
def sections(draw):
    """Known sections and keys with arbitrary values."""
    known = KNOWN | {"policy": ["name", *method_of(draw(st.sampled_from(NAMES))).defaults()]}
    chosen = draw(st.lists(st.sampled_from(SECTIONS), unique=True, max_size=3))
    values = {key: draw(anything) for key in chosen}
    for key in draw(st.lists(st.sampled_from(sorted(known)), unique=True, max_size=3)):
        values[key] = draw(st.dictionaries(st.sampled_from(known[key]), anything, max_size=4))
    return values


@BOUNDED
@given(sections())
@example({"policy": {"name": "uniform", "seed": 2**63}})
@example({"policy": {"name": "knapsack", "prior": [float("nan"), 1.0]}})
@example({"pacing": {"name": "phases", "rollouts": 10, "steps": 2, "parts": []}})
@example({"budget": {"cap": 10**400}})
@example({"callback": {"success": 10**400}})
def test_any_values_of_the_known_keys_are_a_config_or_one_line(values):
    read(yaml.safe_dump(values))


@BOUNDED
@given(st.sampled_from([path.read_text() for path in FILES]), st.data())
def test_a_damaged_file_is_a_config_or_one_line(text, data):
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        end = min(len(text), at + data.draw(st.integers(0, 9)))
        inserted = data.draw(st.text(max_size=6) | st.sampled_from(["!!bool x", "&a", "*a", "<<: ", "---", "\t"]))
        text = text[:at] + inserted + text[end:]
    read(text)


ATTACKS = [
    "policy: !!bool x",
    "? {a: 1}\n: 2",
    "a: " + "[" * 2000,
    "{" * 10**5,
    "%YAML 9.9\n--- a",
    "\x00",
    "a:\n\t- 1",
]
ATTACKS += ["policy: {name: uniform, seed: .inf}", "policy: {name: uniform, discount: .nan}", b"\xff\xfe\x00policy"]
ATTACKS += ["pacing: {name: constant, rollouts: 1000000000000, steps: 1000000000000}"]
ATTACKS += ["pacing: {name: phases, rollouts: 1000, steps: 3, parts: [[1000000000000, 1.0], [1, .nan]]}"]


@pytest.mark.parametrize("text", ATTACKS, ids=range(len(ATTACKS)))
def test_known_attacks(text):
    assert read(text) is None


def test_a_byte_order_mark_is_no_part_of_the_first_key():
    assert read("\ufeffpolicy: vade").method == "vade"


VALUES = ["1000000000000", "-1", "0", "1" + "0" * 400, ".nan", ".inf", "-1e308", "x", "true", "{a: 1}", "[.nan, 1]"]
VALUES += ["[1000000000000, 1000000000000]", "[[1000000000000, 1, 2]]"]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("dump", "sec")])
def test_every_argument_of_a_method_takes_or_refuses_any_value_at_once(name):
    for key in method_of(name).defaults():
        for value in VALUES:
            read(f"policy: {{name: {name}, {key}: {value}}}")
