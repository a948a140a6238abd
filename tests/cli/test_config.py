"""Settings of a YAML file: their values, their errors, and that settings that are written read back."""

import inspect
import pickle
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.cli.config import ESTIMATOR, Config
from budgetalloc.errors import BudgetError, InputError, UnsupportedError
from budgetalloc.methods.table import METHODS, method_of

ROOT = Path(__file__).parents[2]
READABLE = [method.name for method in METHODS if method.name not in ("dump", "sec", "pac")]


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_reads_and_shows_itself(path):
    config = Config.read(path)
    assert Config.parse(yaml.safe_dump(config.as_dict())) == config


@pytest.mark.parametrize("name", READABLE)
def test_a_name_alone_is_the_method_as_python_builds_it(name):
    config = Config.parse(f"policy: {name}")
    assert repr(config.build(seed=3)) == repr(method_of(name).build(seed=3))
    assert config.arguments == method_of(name).defaults()
    assert Config.parse(yaml.safe_dump(config.as_dict())) == config


@pytest.mark.slow
@pytest.mark.parametrize("name", READABLE)
def test_what_is_left_out_is_what_the_callback_would_take(name):
    from budgetalloc.training.options import Options

    plain = method_of(name).build(seed=0)
    names = "candidates weight floor baseline scale cap min_group success reward_range hint buffer"
    own = dict.fromkeys(names.split()) | {"quantum": 1}
    for text, said in [
        ("", {}),
        ("callback: {candidates: 1}", {"candidates": 1}),
        ("callback: {candidates: all}\nbudget: {floor: 2}", {"candidates": "all", "floor": 2}),
        ("callback: {weight: prompt}", {"weight": "prompt"}),
    ]:
        config = Config.parse(f"policy: {name}\n{text}")
        expected = Options.resolve(plain.needs, "group", own | said)
        arguments = own | config.callback_arguments(256)
        arguments = {key: arguments[key] for key in own}
        assert Options.resolve(config.build().needs, "group", arguments) == expected
        assert config.bounds.budget(256, prompts=32, group=8) == expected.bounds.budget(256, prompts=32, group=8)


@pytest.mark.slow
def test_the_sections_know_all_that_the_callback_takes():
    from budgetalloc.trl import AdaptiveGRPOCallback

    config = Config.parse(
        "callback: {prompt_id: id, success: 0, reward_range: [-1, 1], ledger: x.jsonl, scale: none, "
        "domain: subject, quotas: {math: [0, 1]}, mixture: learn, cost: tokens, cost_per_step: 9, "
        "features: [text, 'run:x.jsonl'], shadow: thompson, weight: prompt, baseline: loo, fallback: false, "
        "allow_dataset_change: true}\nbudget: {cap: 8}"
    )
    taken = set(inspect.signature(AdaptiveGRPOCallback).parameters) - {"trainer", "policy", "hint", "buffer"}
    assert set(config.callback_arguments(64)) == taken


MISTAKES = [
    ("policy: knapsak", "run.yaml: policy 'knapsak' is unknown, did you mean knapsack?"),
    ("policy: {discount: 1}", "run.yaml: policy None is unknown. Use a name of `budgetalloc methods`"),
    ("policy: [adaptive]", "run.yaml: policy: ['adaptive']: use settings of the form"),
    ("policy: {name: [vade]}", "run.yaml: policy ['vade'] is unknown, did you mean vade? Use a name"),
    ("policy: {name: vade, grup: 4}", "run.yaml: policy.grup: unknown key, did you mean group? Known: group, discount"),
    ("policy: {name: vade, group: 4.5}", "run.yaml: policy: group=4.5: use an integer of at least 1."),
    ("policy: {name: vade, group: '4'}", "run.yaml: policy: group='4': use an integer of at least 1."),
    ("policy: {name: knapsack, value: hits}", "run.yaml: policy: value='hits': use one of ('mixed_group', 'hit',"),
    ("policy: {name: knapsack, prior: [1]}", "prior=(1,): give two positive numbers, such as"),
    ("policy: dump", "run.yaml: dump takes domain_of as a function, which a file cannot hold"),
    ("policy: {name: gate, predict: f}", "run.yaml: policy: gate takes predict as a function"),
    ("policy: adaptive\nestimator: {discount: 1}", "run.yaml: estimator.discount: unknown key. Known: none."),
    ("policy: dapo\nestimator: {drift: true}", "run.yaml: estimator.drift: unknown key. Known: "),
    ("policy: {name: dapo, idle: 1}\nestimator:\n  idle: 1", "run.yaml: estimator.idle: unknown key. Known: discount"),
    ("policy: uniform\nestimator: {discount: 2}", "run.yaml: estimator: discount=2: use a number in [0, 1]"),
    ("estimater: {discount: 1}", "run.yaml: estimater: unknown key, did you mean estimator?"),
    ("budget: 1024", "run.yaml: budget: 1024: use settings"),
    ("budget: {rollout: 64}", "run.yaml: budget.rollout: unknown key, did you mean rollouts?"),
    ("budget: {tokens: 1000}", "run.yaml: budget.tokens: unknown key. Known: rollouts, floor"),
    ("budget: {cap: 1.0e+3}", "run.yaml: budget: cap=1000.0: use an integer of at least 1."),
    ("\nbudget: {rollouts: 100, quantum: 8}", "run.yaml: Budget(rollouts=100, quantum=8)"),
    ("budget: {floor: -1}", "run.yaml: budget: floor=-1: use an integer of at least 0."),
    ("budget: {rollouts: 0}", "run.yaml: budget: rollouts=0: use an integer of at least 1."),
    ("budget: {rollouts: [64]}", "run.yaml: budget: rollouts=[64]: use an integer of at least 1."),
    ("budget: {floor: 8, cap: 4}", "run.yaml: Budget(cap=4"),
    ("callback: {success: true}", "run.yaml: callback: success=True: pass the name of a reward function, its"),
    ("callback: {success: {a: 1}}", "run.yaml: callback: success={'a': 1}"),
    ("callback: {candidates: 0}", "run.yaml: callback: candidates=0: use 1, a larger integer or 'all'."),
    ("callback: {candidates: some}", "run.yaml: callback: candidates='some': use 1, a larger integer or 'all'."),
    ("callback: {baseline: grup}", "run.yaml: callback: baseline='grup': use one of ('group', 'loo', 'batch', "),
    ("callback: {reward_range: [1, 0]}", "run.yaml: callback: reward_range=(1, 0): give the lowest and"),
    ("callback: {scale: 1}", "run.yaml: callback: scale=1: use one of"),
    ("callback: {weight: token}", "run.yaml: callback: weight='token': use one of"),
    ("callback: {fallback: 1}", "run.yaml: callback: fallback=1: use True or False."),
    ("callback: {hint: my_hint}", "run.yaml: callback.hint: unknown key"),
    ("callback: {domain: x, quotas: {math: [3, 5]}}", "run.yaml: callback: quotas={'math': [3, 5]}: give two shares"),
    (
        "callback: {quotas: {math: [0, 1]}}",
        "run.yaml: callback: quotas={'math': [0, 1]} without domain=None: give both",
    ),
    ("callback: {mixture: learn}", "run.yaml: callback: mixture='learn' without domain="),
    ("callback: {domain: x, mixture: lern}", "run.yaml: callback: mixture='lern': use one of"),
    ("callback: {domain: subject}", "run.yaml: callback: domain='subject' without quotas=None: give both"),
    ("callback: {cost_per_step: 9}", "run.yaml: callback: cost_per_step=9 with cost=None"),
    ("callback: {cost: [tokens]}", "run.yaml: callback: cost=('tokens',): use 'tokens', 'seconds'"),
    ("pacing: {name: constant, rollouts: 64, steps: [4]}", "run.yaml: pacing: steps=[4]: use an integer"),
    ("pacing: {name: constant, rollouts: 64}", "run.yaml: give steps."),
    ("pacing: {name: phases, rollouts: 64, steps: 4}", "parts=None: phases needs them"),
    ("pacing: {name: constant, rollouts: 8, steps: 2, parts: [[1, 1]]}", "parts=((1, 1),): phases"),
    ("pacing: {name: threshold}", "run.yaml: pacing: name='threshold': use one of ('constant', 'phases')."),
    ("pacing: {name: constant, rollouts: 64, steps: 4, low: 20}", "run.yaml: Horizon("),
    ("pacing: {name: constant, rollouts: 8, steps: 4}\nbudget: {rollouts: 8}", "run.yaml: pacing sets the rollouts"),
    ("pacing: {name: constant, rollouts: 9, steps: 3}\nbudget: {quantum: 2}", "run.yaml: Budget(rollouts=3"),
    ("grpo: fast", "run.yaml: grpo: 'fast': use settings"),
    ("- 3", "run.yaml: use settings of the form"),
    ("a: [1, 2", "run.yaml: not YAML: "),
    ("policy: !!python/object/apply:os.system [ls]", "run.yaml: not YAML: could not determine a constructor for"),
    ("model: 2024-13-45", "run.yaml: not YAML: month must be in 1..12"),
    ("{" * 10**5, "run.yaml: not YAML: "),
]


@pytest.mark.parametrize(("text", "said"), MISTAKES, ids=[text[:40] for text, _ in MISTAKES])
def test_a_mistake_is_named_in_one_line_with_the_file(text, said):
    with pytest.raises((InputError, BudgetError)) as caught:
        Config.parse(text, "run.yaml")
    assert str(caught.value).startswith("run.yaml: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text_is_an_input_error(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00policy")
    with pytest.raises(InputError, match="not YAML"):
        Config.read(tmp_path / "x.yaml")


numbers = {"discount": st.floats(0, 1), "idle": st.floats(0.01, 1)}
numbers |= {"prior": st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=2)}
texts = st.none() | st.text(max_size=20)


@st.composite
def files(draw):
    """A valid file: any method, some of its settings, and any texts."""
    name = draw(st.sampled_from(READABLE))
    known = [key for key in method_of(name).defaults() if key in ESTIMATOR]
    chosen = draw(st.lists(st.sampled_from(known), unique=True)) if known else []
    quantum = draw(st.integers(1, 4))
    content = {"policy": {"name": name, "seed": draw(st.integers(0, 2**40))}}
    content |= {"estimator": {key: draw(numbers[key]) for key in chosen}} if chosen else {}
    content["budget"] = {"quantum": quantum, "cap": draw(st.none() | st.integers(8, 512))}
    content["budget"] |= {
        "floor": draw(st.none() | st.integers(0, 3)),
        "min_group": draw(st.none() | st.integers(1, 3)),
    }
    if draw(st.booleans()):
        parts = draw(st.lists(st.tuples(st.integers(1, 9), st.floats(0.1, 9)), min_size=1, max_size=3))
        pacing = {"name": "phases", "rollouts": 4000 * quantum, "steps": draw(st.integers(1, 99)), "low": quantum}
        content["pacing"] = pacing | {"quantum": quantum, "parts": parts}
    else:
        content["budget"] |= {"rollouts": draw(st.none() | st.integers(16, 999).map(lambda x: x * quantum))}
    baseline = draw(st.none() | st.sampled_from(["group", "loo", "posterior"]))
    candidates = draw(st.none() | st.just("all") | st.integers(1, 9))
    content["callback"] = {"baseline": baseline, "candidates": candidates}
    content["callback"] |= {"prompt_id": draw(texts), "ledger": draw(texts)}
    content |= {"model": draw(texts), "dataset": draw(texts)}
    simple = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9)
    keys = st.text("abc_", min_size=1, max_size=9)
    return content | {"grpo": draw(st.dictionaries(keys, simple | st.lists(simple), max_size=4))}


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(files())
def test_what_is_shown_reads_back_to_the_same_config(content):
    try:
        config = Config.parse(yaml.safe_dump(content))
    except BudgetError:
        return  # floor, cap, group and quantum that contradict each other
    again = Config.parse(yaml.safe_dump(config.as_dict()))
    assert again == config
    assert yaml.safe_dump(again.as_dict()) == yaml.safe_dump(config.as_dict())
    assert (config.model, config.dataset, config.grpo) == (content["model"], content["dataset"], content["grpo"])
    assert config.arguments["seed"] == content["policy"]["seed"]
    assert config.callback.get("ledger") == content["callback"]["ledger"]
    assert repr(again.build()) == repr(config.build())


def test_wishes_of_the_file_reach_whoever_asks_the_policy():
    config = Config.parse("policy: knapsack\ncallback: {candidates: 4, baseline: loo}\nbudget: {min_group: 3}")
    needs = config.build(seed=2).needs
    assert (needs.candidates, needs.baseline, needs.min_group, config.build(seed=2).seed) == (4, "loo", 3, 2)


def test_a_builder_can_be_sent_to_another_process():
    config = Config.parse("policy: {name: knapsack, value: hit}\npacing: {name: constant, rollouts: 64, steps: 2}")
    sent = pickle.loads(pickle.dumps(config.build))  # noqa: S301
    assert repr(sent(seed=4)) == repr(config.build(seed=4))


def test_pacing_spends_the_plan_to_the_last_rollout():
    pacing = "{name: phases, rollouts: 1000, steps: 10, low: 8, quantum: 4, parts: [[5, 1], [5, 3]]}"
    config = Config.parse(f"policy: thompson\nbudget: {{cap: 64}}\npacing: {pacing}")
    plan, budget = list(config.plan), config.bounds.budget(100, prompts=25, group=4)
    assert sum(plan) == 1000
    assert plan[0] < plan[-1]
    run = list(ba.simulate(config.build(seed=0), ba.Learner(seed=0), budget, steps=10))
    spent = [seen["rollouts"] for seen in run]
    assert [b - a for a, b in zip([0, *spent], spent, strict=False)] == plan


def test_a_trainer_refuses_what_its_batches_cannot_do():
    for text, said in [
        ("pacing: {name: constant, rollouts: 512, steps: 2}", "the budget cannot change over the run"),
        ("budget: {rollouts: 128}", "this trainer generates 256 rollouts a step. Use 256"),
    ]:
        with pytest.raises(UnsupportedError, match=said):
            Config.parse(text).callback_arguments(256)
    assert Config.parse("budget: {rollouts: 256}").callback_arguments(256)["min_group"] == 1


def test_quotas_are_read_checked_and_shown():
    config = Config.parse("callback:\n  domain: subject\n  quotas: {math: [0.3, 0.5], code: [0, 1]}")
    given = config.callback_arguments(256)
    assert (given["domain"], given["quotas"]) == ("subject", {"math": [0.3, 0.5], "code": [0, 1]})
    assert Config.parse(yaml.safe_dump(config.as_dict())) == config
    mixed = Config.parse("callback:\n  domain: subject\n  mixture: {rule: adept, probe: 0.1}")
    assert mixed.callback_arguments(256)["mixture"] == {"rule": "adept", "probe": 0.1}
    assert Config.parse(yaml.safe_dump(mixed.as_dict())) == mixed


def test_costs_are_read_checked_and_shown():
    config = Config.parse("callback:\n  cost: tokens")
    assert config.callback_arguments(256)["cost"] == "tokens"
    assert Config.parse(yaml.safe_dump(config.as_dict())) == config
    assert "cost" not in Config.parse("policy: adaptive").callback_arguments(256)
    config = Config.parse("callback: {cost: {tokens: 1, turns: 50}, cost_per_step: 9000}")
    assert config.callback_arguments(256)["cost"] == {"tokens": 1, "turns": 50}
    assert Config.parse(yaml.safe_dump(config.as_dict())) == config


def test_a_rival_has_its_own_rule_under_the_same_budget():
    config = Config.parse("policy: adaptive\nbudget: {rollouts: 64, cap: 32}\ncallback: {ledger: mine.jsonl}")
    rival = config.rival("uniform")
    assert (rival.method, rival.bounds.cap, rival.rollouts) == ("uniform", 32, 64)
    assert (rival.callback.get("ledger"), rival.bounds.candidates, rival.bounds.min_group) == (None, 1, 2)
