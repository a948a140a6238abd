"""The plugin for axolotl on TRL's real trainer. tests/integrations/test_axolotl.py runs axolotl itself, where it is."""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from conftest import same_weights, weights

import budgetalloc as ba
from budgetalloc import InputError, UnsupportedError

pytestmark = pytest.mark.slow
RECIPE = Path(__file__).parents[2] / "integrations/axolotl/grpo.yaml"


@pytest.fixture
def plugin(monkeypatch):
    if find_spec("axolotl") is None:  # CI's Python is older than axolotl's: an empty class stands for its base class
        base = ModuleType("axolotl.integrations.base")
        base.BasePlugin = object
        monkeypatch.setitem(sys.modules, "axolotl.integrations.base", base)
    from budgetalloc.axolotl import Plugin

    return Plugin()


def config(node, **changed):
    return yaml.safe_load(RECIPE.read_text()) | {"budgetalloc": node} | changed


def trained(plugin, trainer, node):
    plugin.register(config(node))
    for callback in plugin.add_callbacks_post_trainer(config(node), trainer):
        trainer.add_callback(callback)
    trainer.train()
    return weights(trainer)


def test_the_policy_of_the_node_decides(plugin, build, ledger):
    trainer = build(max_steps=4)
    node = {"policy": {"name": "knapsack", "seed": 1}, "candidates": "all", "floor": 0, "cap": 7, "ledger": str(ledger)}
    trained(plugin, trainer, node)
    frame = ba.Ledger.read(ledger).frame
    sizes = frame.groupby(["step", "prompt"]).size()
    assert len(frame) == 4 * 16
    assert set(sizes) - {4}
    assert sizes.max() <= 7


def test_uniform_trains_as_without_the_plugin(plugin, build):
    plain = build()
    plain.train()
    assert same_weights(trained(plugin, build(), {"policy": "uniform"}), weights(plain))


@pytest.mark.parametrize("node", [None, {}, {"ledger": None}])
def test_an_empty_node_is_the_default_policy(plugin, build, node):
    (callback,) = plugin.add_callbacks_post_trainer(config(node), build())
    assert callback.policy.name == ba.adaptive().name
    assert callback.ledger_path is None


def test_values_are_those_of_yaml(plugin, build):
    node = {"domain": "prompt_id", "quotas": {3: [0.25, 0.5]}, "reward_range": [0, 2], "shadow": {"name": "adaptive"}}
    (callback,) = plugin.add_callbacks_post_trainer(config({"policy": "thompson"} | node), build())
    assert callback.options.reward_range == (0, 2)
    assert callback.options.shadow == {"name": "adaptive"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"budgetalloc": {"leger": "a"}}, r"budgetalloc.leger is unknown, did you mean ledger\?"),
        ({"budgetalloc": {"flor": 2}}, r"budgetalloc.flor is unknown, did you mean floor\?"),
        ({"budgetalloc": {"hint": "mine.hint"}}, "budgetalloc.hint is unknown"),
        ({"budgetalloc": {"floor": -1}}, "floor=-1"),
        ({"budgetalloc": {"policy": "adaptve"}}, r"'adaptve' is unknown, did you mean adaptive\?"),
        ({"budgetalloc": {"policy": {"name": "adaptive", "sed": 1}}}, r"did you mean seed\?"),
        ({"budgetalloc": "adaptive"}, "budgetalloc='adaptive' is of type str: give a mapping"),
        ({"rl": "ebft"}, "does not work with rl: ebft. Use rl: grpo"),
        ({"rl": None}, "does not work with rl: None"),
        ({"trl": {"async_prefetch": True}}, "trl.async_prefetch or trl.use_data_producer: axolotl's producer"),
        ({"trl": {"use_data_producer": True}}, "generates before the policy has decided"),
        ({"context_parallel_size": 2}, "context_parallel_size above 1"),
    ],
)
def test_wrong_settings_are_refused_before_the_model_is_loaded(plugin, changed, message):
    with pytest.raises((InputError, UnsupportedError), match=message):
        plugin.register(config({}, **changed))


def test_gdpo_is_for_uniform_only(plugin, build):
    trainer = build(multi_objective_aggregation="normalize_then_sum")
    assert plugin.add_callbacks_post_trainer(config({"policy": "uniform"}, rl="gdpo"), trainer)
    trainer = build(multi_objective_aggregation="normalize_then_sum")
    with pytest.raises(UnsupportedError, match="normalises each reward over equal groups"):
        plugin.add_callbacks_post_trainer(config({}, rl="gdpo"), trainer)
