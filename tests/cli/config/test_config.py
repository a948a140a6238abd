"""YAML settings: their values, their errors, and that written settings read back."""

import inspect
import pickle
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.cli.config import Config
from budgetalloc.cli.config.settings import ESTIMATOR
from budgetalloc.cli.config.yaml_file import written
from budgetalloc.errors import BudgetError, InputError, UnsupportedError
from budgetalloc.policies.methods import METHODS, method_of

ROOT = Path(__file__).parents[3]
READABLE = [method.name for method in METHODS if method.name not in ("dump", "sec", "pac")]


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_reads_and_shows_itself(path):
    config = Config.read(path)
    assert Config.parse(written(config.as_dict())) == config


@pytest.mark.parametrize("name", READABLE)
def test_a_name_alone_is_the_method_as_python_builds_it(name):
    config = Config.parse(f"policy: {name}")
    assert repr(config.build(seed=3)) == repr(method_of(name).build(seed=3))
    assert config.policy.options == method_of(name).defaults()
    assert Config.parse(written(config.as_dict())) == config


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
        "features: [text, 'run:x.jsonl'], shadow: thompson}\nbudget: {cap: 8}"
    )
    taken = set(inspect.signature(AdaptiveGRPOCallback).parameters) - {"trainer", "policy", "hint", "buffer"}
    assert set(config.callback_arguments(64)) == taken


MISTAKES = [
    ("policy: knapsak", "line 1: policy: policy 'knapsak' is unknown, did you mean knapsack?"),
    ("policy: {discount: 1}", "line 1: policy: policy None is unknown. Use a name of `budgetalloc methods`"),
    ("policy: [adaptive]", "line 1: policy: ['adaptive']: use settings of the form"),
    ("policy: {name: vade, grup: 4}", "line 1: policy.grup: unknown key, did you mean group? Known: group, discount"),
    ("policy: {name: vade, group: 4.5}", "line 1: policy.group: group=4.5: use an integer of at least 1."),
    ("policy: {name: vade, group: '4'}", "line 1: policy.group: group='4': use an integer of at least 1."),
    ("policy:\n  name: vade\n  group: -1", "line 3: policy.group: group=-1: use an integer of at least 1."),
    ("policy: {name: knapsack, value: hits}", "line 1: policy.value: value='hits': use one of ('mixed_group', 'hit',"),
    ("policy: {name: knapsack, prior: [1]}", "line 1: policy.prior: prior=(1,): give two positive numbers, such as"),
    ("callback: {shadow: adaptiv}", "line 1: callback.shadow: shadow='adaptiv': policy 'adaptiv' is unknown, did you"),
    ("callback: {shadow: dump}", "line 1: callback.shadow: shadow='dump' needs the function domain_of="),
    ("policy: dump", "line 1: policy: dump takes domain_of as a function, which a file cannot hold"),
    ("policy: {name: gate, predict: f}", "line 1: policy.predict: gate takes predict as a function"),
    ("policy: adaptive\nestimator: {discount: 1}", "line 2: estimator: adaptive has no settings"),
    ("policy: dapo\nestimator: {drift: true}", "line 2: estimator.drift: unknown key. Known: discount, idle."),
    (
        "policy: {name: dapo, idle: 1}\nestimator:\n  idle: 1",
        "line 3: estimator.idle: given twice, also as policy.idle",
    ),
    (
        "policy: uniform\nestimator: {discount: 2}",
        "line 2: estimator.discount: discount=2: use a number in [0, 1]",
    ),
    ("estimater: {discount: 1}", "line 1: estimater: unknown key, did you mean estimator?"),
    ("budget: 1024", "line 1: budget: 1024: use settings"),
    ("budget: {rollout: 64}", "line 1: budget.rollout: unknown key, did you mean rollouts?"),
    ("budget: {cap: 1e3}", "line 1: budget.cap: cap=1000.0: use an integer of at least 1."),
    ("\nbudget: {rollouts: 100, quantum: 8}", "line 2: budget: Budget(rollouts=100, quantum=8)"),
    ("budget: {floor: -1}", "line 1: budget.floor: floor=-1: use an integer of at least 0."),
    ("budget: {rollouts: 0}", "line 1: budget.rollouts: rollouts=0: use an integer of at least 1."),
    ("callback: {success: true}", "line 1: callback.success: success=True: pass the name of a reward function, its"),
    ("budget: {rollouts: [64]}", "line 1: budget.rollouts: rollouts=[64]: use an integer of at least 1."),
    ("callback: {ledger: [x.jsonl]}", "line 1: callback.ledger: ledger=['x.jsonl'] is of type list: give a text."),
    ("callback: {allow_dataset_change: 1}", "line 1: callback.allow_dataset_change: allow_dataset_change=1: use True"),
    ("pacing: {name: constant, rollouts: 64, steps: [4]}", "line 1: pacing.steps: steps=[4]: use an integer"),
    ("policy: {name: [vade]}", "line 1: policy: policy ['vade'] is unknown, did you mean vade? Use a name"),
    ("budget: {floor: 8, cap: 4}", "line 1: budget: Budget(cap=4"),
    ("callback: {candidates: 0}", "line 1: callback.candidates: candidates=0: use 1, a larger integer or 'all'."),
    (
        "callback: {candidates: some}",
        "line 1: callback.candidates: candidates='some': use 1, a larger integer or 'all'.",
    ),
    ("callback: {baseline: grup}", "line 1: callback.baseline: baseline='grup': use one of ('group', 'loo', 'batch', "),
    ("callback: {reward_range: [1, 0]}", "line 1: callback.reward_range: reward_range=[1, 0]: give the lowest and"),
    ("callback: {scale: 1}", "line 1: callback.scale: scale=1: use one of"),
    ("callback: {weight: token}", "line 1: callback.weight: weight='token': use one of"),
    ("callback: {prompt_id: 7}", "line 1: callback.prompt_id: prompt_id=7 is of type int"),
    ("callback: {success: {a: 1}}", "line 1: callback.success: success={'a': 1}"),
    ("callback: {hint: my_hint}", "callback.hint: not a plain value: give it in Python"),
    ("pacing: {name: constant, rollouts: 64}", "line 1: pacing: give steps."),
    ("pacing: {name: phases, rollouts: 64, steps: 4}", "line 1: pacing: parts=None: phases needs them"),
    (
        "pacing: {name: constant, rollouts: 8, steps: 2, parts: [[1, 1]]}",
        "line 1: pacing.parts: parts=((1, 1),): phases",
    ),
    ("pacing: {name: threshold}", "line 1: pacing.name: name='threshold': use one of ('constant', 'phases')."),
    ("budget: {tokens: 1000}", "line 1: budget.tokens: unknown key. Known: rollouts, floor"),
    ("pacing: {name: constant, rollouts: 64, steps: 4, low: 20}", "line 1: pacing: Horizon("),
    (
        "pacing: {name: constant, rollouts: 8, steps: 4}\nbudget: {rollouts: 8}",
        "line 1: pacing: pacing sets the rollouts",
    ),
    ("pacing: {name: constant, rollouts: 9, steps: 3}\nbudget: {quantum: 2}", "line 2: budget: Budget(rollouts=3"),
    ("model: 7", "line 1: model: model=7 is of type int: give a name on the hub or a folder."),
    ("grpo: fast", "line 1: grpo: 'fast': use settings"),
]


@pytest.mark.parametrize(("text", "said"), MISTAKES, ids=[text[:40] for text, _ in MISTAKES])
def test_a_mistake_is_named_in_one_line_with_file_and_key(text, said):
    with pytest.raises((InputError, BudgetError)) as caught:
        Config.parse(text, "run.yaml")
    assert str(caught.value).startswith("run.yaml, line ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text_is_an_input_error(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00policy")
    with pytest.raises(InputError, match="not UTF-8 text"):
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
        config = Config.parse(written(content))
    except BudgetError:
        return  # floor, cap, group and quantum that contradict each other
    again = Config.parse(written(config.as_dict()))
    assert again == config
    assert written(again.as_dict()) == written(config.as_dict())
    assert (config.model, config.dataset, config.grpo) == (content["model"], content["dataset"], content["grpo"])
    assert config.policy.options["seed"] == content["policy"]["seed"]
    assert config.callback.ledger == content["callback"]["ledger"]
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
    assert (given["domain"], given["quotas"]) == ("subject", {"math": (0.3, 0.5), "code": (0.0, 1.0)})
    assert Config.parse(written(config.as_dict())) == config
    mixed = Config.parse("callback:\n  domain: subject\n  mixture: {rule: adept, probe: 0.1}")
    assert mixed.callback_arguments(256)["mixture"] == {"rule": "adept", "probe": 0.1}
    assert Config.parse(written(mixed.as_dict())) == mixed
    for text, said in [
        (
            "callback:\n  domain: x\n  quotas: {math: [3, 5]}",
            r"line 3: callback.quotas: quotas=.'math': \[3, 5\].: give",
        ),
        ("callback:\n  quotas: {math: [0, 1]}", r"line 2: callback.quotas: quotas=.* without domain=None: give both"),
        ("callback:\n  mixture: learn", r"line 2: callback.mixture: mixture='learn' without domain="),
        ("callback:\n  domain: x\n  mixture: lern", r"line 3: callback.mixture: mixture='lern': use one of"),
        ("callback:\n  domain: subject", r"line 2: callback.domain: domain='subject' without quotas=None: give both"),
    ]:
        with pytest.raises(InputError, match=said):
            Config.parse(text)


def test_costs_are_read_checked_and_shown():
    config = Config.parse("callback:\n  cost: tokens")
    assert config.callback_arguments(256)["cost"] == "tokens"
    assert Config.parse(written(config.as_dict())) == config
    assert "cost" not in Config.parse("policy: adaptive").callback_arguments(256)
    config = Config.parse("callback: {cost: {tokens: 1, turns: 50}, cost_per_step: 9000}")
    assert config.callback_arguments(256)["cost"] == {"tokens": 1, "turns": 50}
    assert Config.parse(written(config.as_dict())) == config
    with pytest.raises(InputError, match=r"callback.cost_per_step: cost_per_step=9 with cost=None"):
        Config.parse("callback: {cost_per_step: 9}")
    for value in ("time", "3", "[tokens]"):
        with pytest.raises(InputError, match=r"line 2: callback.cost: cost=.*: use 'tokens', 'seconds'"):
            Config.parse(f"callback:\n  cost: {value}")


def test_grpo_arguments_are_checked_where_they_are_known():
    config = Config.parse("policy: adaptive\ngrpo:\n  max_steps: 3\n  lerning_rate: 1e-6", "f.yaml")
    with pytest.raises(InputError, match=r"line 4: grpo\.lerning_rate: unknown key, did you mean learning_rate\?"):
        config.source.section("grpo", {"max_steps", "learning_rate"})
    assert config.source.section("grpo", {"max_steps", "lerning_rate"}) == config.grpo
    assert config.grpo == {"max_steps": 3, "lerning_rate": 1e-6}


def test_a_rival_has_its_own_rule_under_the_same_budget():
    config = Config.parse("policy: adaptive\nbudget: {rollouts: 64, cap: 32}\ncallback: {ledger: mine.jsonl}")
    rival = config.rival("uniform")
    assert (rival.policy, rival.bounds.cap, rival.rollouts) == (Config.of("uniform").policy, 32, 64)
    assert (rival.callback.ledger, rival.bounds.candidates, rival.bounds.min_group) == (None, 1, 2)
