"""Reads a training script for TRL into a `Setup`: its source is parsed, never executed."""

import ast
from collections.abc import Mapping
from typing import Any

from budgetalloc.cli.doctor import grpo_config
from budgetalloc.cli.doctor.data import Data, of_expression
from budgetalloc.cli.doctor.literals import MOST, UNKNOWN, Source
from budgetalloc.cli.doctor.setup import ARGUMENTS, OTHERS, Diagnosis, Setup, every_mistake
from budgetalloc.errors import InputError, nearest
from budgetalloc.policies import Policy, adaptive
from budgetalloc.policies.methods import METHODS, NAMED, method_of
from budgetalloc.trl.compatibility import REFUSED

__all__ = ["read_script"]

_FUNCTIONS = ("success", "hint", "cost", "buffer")  # arguments of the callback that may be objects


def read_script(text: str, file: str, processes: int) -> Setup:
    """What the source of a script says about its run with TRL."""
    try:
        source = Source(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise InputError(f"{file}{f', line {line}' if line else ''}: not Python: {error}") from error
    config, trainer = next(source.calls("GRPOConfig"), None), _trainer(source)
    if config is None and trainer is None:
        raise InputError(
            f"{file}: makes neither a GRPOTrainer nor a GRPOConfig. Give the script that makes the trainer, a file of "
            "settings (.yaml), or verl's configuration or overrides."
        )
    diagnosis = Diagnosis(file)
    settings = _settings(source, config, processes, diagnosis)
    nodes = {} if trainer is None else source.nodes(trainer, "model", "reward_funcs", "args", "train_dataset")
    attached = _callback(source, diagnosis)
    rewards = _rewards(source, nodes.get("reward_funcs"))
    if rewards is None:
        diagnosis.unread.append(source.where("reward_funcs", nodes.get("reward_funcs")))
    dataset = nodes.get("train_dataset")
    data = of_expression(source, dataset) if trainer else Data("no trainer is made here")
    if data.columns is None:
        diagnosis.unread.append(f"{source.where('train_dataset', dataset)}: rows and columns")
    if source.left < 0:
        diagnosis.unread.append(f"values of more than {MOST:,} entries and characters: those after them were not read")
    classes = ["GRPOTrainer"] if trainer is None else source.bases(source.name_of(trainer.func))
    if any(source.calls("AdaptiveRolloutWorker")):
        classes.append("GRPOTrainer")  # its trainer is served, and is no GRPOTrainer
    tools, environments = (None if None in nodes else name in nodes for name in ("tools", "environment_factory"))
    return Setup(diagnosis, classes, settings, processes, *attached, rewards, data, tools, environments)


def _settings(source: Source, config: ast.Call | None, processes: int, diagnosis: Diagnosis) -> dict[str, Any]:
    """The known arguments of `GRPOConfig`, resolved."""
    if config is None:
        diagnosis.unread.append("GRPOConfig: none is made here, or the command line gives its values")
        return {}
    given = source.arguments(config, "output_dir")
    if None in given:
        diagnosis.unread.append(f"line {config.lineno}: more arguments of GRPOConfig, taken to be TRL's defaults")
    known = {name: value for name, value in given.items() if name is not None}
    if None in given and "generation_batch_size" not in known:  # the batch size is most likely among the unknown
        known.setdefault("per_device_train_batch_size", UNKNOWN)
    names = [name for name in grpo_config.DEFAULTS if known.get(name) is UNKNOWN]
    diagnosis.unread += [f"line {config.lineno}: GRPOConfig({', '.join(names)})"] if names else []
    settings, mistakes = grpo_config.resolved(known, processes)
    diagnosis.refused += [f"line {config.lineno}: {mistake}" for mistake in mistakes]
    return settings


def _trainer(source: Source) -> ast.Call | None:
    """The call that makes the trainer: a `GRPOTrainer` before one that is refused."""
    for wanted in ({"GRPOTrainer"}, set(REFUSED)):
        for call in source.calls():
            if wanted & set(source.bases(source.name_of(call.func))):
                return call
    return None


def _rewards(source: Source, node: ast.expr | None) -> list[str] | None:
    """TRL's names of the reward functions; None if they cannot be read."""
    expression = source.expression(node) if node is not None and not _is_function(source, node) else node
    if expression is None:
        return None
    names = []
    for each in expression.elts if isinstance(expression, ast.List | ast.Tuple) else [expression]:
        value = None if isinstance(each, ast.Name) and _is_function(source, each) else source.value(each)
        if isinstance(value, str):  # a reward model
            names.append(value.rpartition("/")[2])
        elif isinstance(each, ast.Lambda):
            names.append("<lambda>")
        elif isinstance(each, ast.Name | ast.Attribute):
            names.append(source.name_of(each))
        else:
            return None
    return names


def _is_function(source: Source, node: ast.expr) -> bool:
    return isinstance(node, ast.Lambda) or (isinstance(node, ast.Name) and node.id in source.functions)


def _callback(source: Source, diagnosis: Diagnosis) -> tuple[Policy | None, bool, Mapping[str, Any]]:
    """The policy (None: not known), whether it is attached, and the arguments of `AdaptiveGRPOCallback`."""
    if any(source.calls("AdaptiveRolloutWorker")):
        diagnosis.unread.append("AdaptiveRolloutWorker: it checks itself when it is attached to its trainer")
        return None, True, ARGUMENTS
    call = next(source.calls("AdaptiveGRPOCallback"), None)
    if call is None:
        return adaptive(), False, ARGUMENTS
    nodes = source.nodes(call, "trainer", "policy")
    given = dict(ARGUMENTS)
    for name, node in nodes.items():
        value = source.value(node)
        if name is None:
            diagnosis.unread.append(f"line {call.lineno}: AdaptiveGRPOCallback(**)")
        elif name in _FUNCTIONS and value is UNKNOWN and (name == "buffer" or _is_function(source, node)):
            given[name] = _never_called
        elif name in given and value is UNKNOWN:
            diagnosis.unread.append(source.where(name, node))
        elif name in given:
            given[name] = value
        elif name not in OTHERS:
            near = nearest(name, (*ARGUMENTS, *OTHERS))
            diagnosis.refused.append(f"line {call.lineno}: AdaptiveGRPOCallback has no argument {name}{near}")
    if "policy" not in nodes and None not in nodes:
        return adaptive(), True, given
    policy = _policy(source, nodes.get("policy"), diagnosis)
    if policy is None:
        diagnosis.unread.append(source.where("policy", nodes.get("policy")))
    return policy, True, given


def _never_called(*_: Any) -> Any:
    """The placeholder of a function of the script."""
    raise AssertionError("a script is not executed")


def _policy(source: Source, node: ast.expr | None, diagnosis: Diagnosis) -> Policy | None:
    """The policy that an expression such as `ba.knapsack(seed=1)` makes; None if it is not known."""
    call = source.expression(node)
    if isinstance(call, ast.Constant) and call.value is None:
        return adaptive()
    if not isinstance(call, ast.Call) or call.args:
        return None
    name = source.name_of(call.func)
    if name not in {method.name for method in METHODS}:  # a function of the user's own
        return None
    method, nodes = method_of(name), source.nodes(call)
    known = (*method.defaults(), *method.functions())
    unknown = [key for key in nodes if key is not None and key not in known]
    mistakes = [f"{name}() has no argument {key}{nearest(key, known)}" for key in unknown]
    given: dict[str, Any] = {}
    for key in known:
        if key in nodes:  # a function such as `ba.hit` is given by its name
            function = source.name_of(nodes[key])
            given[key] = function if function in NAMED.get(key, {}) else source.value(nodes[key])
    policy, wrong = every_mistake(method.named, {key: x for key, x in given.items() if x is not UNKNOWN})
    diagnosis.refused += [f"line {call.lineno}: {mistake}" for mistake in mistakes + wrong]
    return None if None in nodes or UNKNOWN in given.values() else policy  # without what is wrong, for the other checks
