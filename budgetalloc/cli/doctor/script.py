"""A training script for TRL as a `Setup`: its source is parsed, never executed."""

import ast
from collections.abc import Mapping
from typing import Any

from budgetalloc.cli.doctor import grpo
from budgetalloc.cli.doctor.data import Data, of_expression
from budgetalloc.cli.doctor.literals import UNKNOWN, Source
from budgetalloc.cli.doctor.setup import ARGUMENTS, OTHERS, Setup
from budgetalloc.errors import BudgetallocError, InputError, nearest
from budgetalloc.policies import Policy, adaptive
from budgetalloc.policies.methods import METHODS, NAMED, method_of
from budgetalloc.trl.served import REFUSED

_FUNCTIONS = ("success", "hint", "cost", "buffer")  # arguments of the callback that may be objects


def read_script(text: str, file: str, processes: int) -> Setup:
    """What the source of a script says about its run with TRL.

    Raises:
        InputError: this is no Python, or it makes no `GRPOConfig` and no trainer that generates.
    """
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
    unread, refused = list[str](), list[str]()
    settings = _settings(source, config, processes, unread, refused)
    nodes = {} if trainer is None else source.nodes(trainer, "model", "reward_funcs", "args", "train_dataset")
    attached, policy, arguments = _callback(source, unread, refused)
    rewards = _rewards(source, nodes.get("reward_funcs"))
    if rewards is None:
        unread.append(_where("reward_funcs", nodes.get("reward_funcs")))
    data = of_expression(source, nodes.get("train_dataset")) if trainer else Data("no trainer is made here")
    if any(source.calls("AdaptiveRolloutWorker")):
        unread.append("AdaptiveRolloutWorker: it checks itself when it is attached to its trainer")
    has = {name: None if None in nodes else name in nodes for name in ("tools", "environment_factory")}
    return Setup(
        file,
        ["GRPOTrainer"] if trainer is None else _classes(source, source.called(trainer)),
        settings,
        processes,
        policy,
        attached,
        arguments,
        rewards,
        data,
        has["tools"],
        has["environment_factory"],
        unread,
        refused,
    )


def _settings(
    source: Source, config: ast.Call | None, processes: int, unread: list[str], refused: list[str]
) -> dict[str, Any]:
    """The arguments of `GRPOConfig` that are known."""
    if config is None:
        unread.append("GRPOConfig: none is made here")
        return {}
    given = source.arguments(config, "output_dir")
    if None in given:
        unread.append(f"line {config.lineno}: more arguments of GRPOConfig; taken to be TRL's defaults")
    known = {name: value for name, value in given.items() if name is not None}
    names = [name for name in grpo.DEFAULTS if known.get(name) is UNKNOWN]
    unread += [f"line {config.lineno}: GRPOConfig({', '.join(names)})"] if names else []
    try:
        return grpo.resolved(known, processes)
    except InputError as error:
        refused.append(f"line {config.lineno}: {error}")
        return {}


def _trainer(source: Source) -> ast.Call | None:
    """The call that makes the trainer: a `GRPOTrainer` before one that is refused."""
    every = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    for wanted in (("GRPOTrainer",), tuple(REFUSED)):
        for call in every:
            if set(wanted) & set(_classes(source, source.called(call))):
                return call
    return None


def _classes(source: Source, name: str) -> list[str]:
    """A class and, as far as the script defines them, the classes that it inherits."""
    names = [name]
    for at in names:  # grows while it is gone through
        if at in source.classes:
            bases = (source.name_of(base) for base in source.classes[at].bases)
            names += [base for base in bases if base not in names]
    return names


def _where(name: str, node: ast.expr | None) -> str:
    return f"{name}: not given" if node is None else f"line {node.lineno}: {name}={ast.unparse(node)[:60]}"


def _rewards(source: Source, node: ast.expr | None) -> list[str] | None:
    """The names that TRL gives the reward functions; None if they cannot be read."""
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


def _callback(source: Source, unread: list[str], refused: list[str]) -> tuple[bool, Policy | None, Mapping[str, Any]]:
    """Whether a policy is attached, which one (None: unknown), and the arguments of `AdaptiveGRPOCallback`."""
    call = next(source.calls("AdaptiveGRPOCallback"), None)
    if call is None:
        return False, adaptive(), ARGUMENTS
    nodes = source.nodes(call, "trainer", "policy")
    given = dict(ARGUMENTS)
    for name, node in nodes.items():
        value = source.value(node)
        if name is None:
            unread.append(f"line {call.lineno}: AdaptiveGRPOCallback(**)")
        elif name in _FUNCTIONS and value is UNKNOWN and (name == "buffer" or _is_function(source, node)):
            given[name] = _never_called
        elif name in given and value is UNKNOWN:
            unread.append(_where(name, node))
        elif name in given:
            given[name] = value
        elif name not in OTHERS:
            known = (*ARGUMENTS, *OTHERS)
            refused.append(f"line {call.lineno}: AdaptiveGRPOCallback has no argument {name}{nearest(name, known)}")
    policy: Policy | None = adaptive()
    if "policy" in nodes or None in nodes:
        policy = _policy(source, nodes.get("policy"), refused)
        if policy is None:
            unread.append(_where("policy", nodes.get("policy")))
    return True, policy, given


def _never_called(*_: Any) -> Any:
    """Stands in for a function of the script."""
    raise AssertionError("a script is not executed")


def _policy(source: Source, node: ast.expr | None, refused: list[str]) -> Policy | None:
    """The policy that an expression such as `ba.knapsack(seed=1)` makes; None if only running it can tell."""
    call = source.expression(node)
    if isinstance(call, ast.Constant) and call.value is None:
        return adaptive()
    if not isinstance(call, ast.Call) or call.args:
        return None
    if source.called(call) not in {method.name for method in METHODS}:  # a function of the user's own
        return None
    given = {name: _by_name(source, str(name), node) for name, node in source.nodes(call).items()}
    if None in given or UNKNOWN in given.values():
        return None
    try:
        return method_of(source.called(call)).named({str(name): value for name, value in given.items()})
    except (BudgetallocError, TypeError) as error:  # TypeError: an argument that the function does not take
        refused.append(f"line {call.lineno}: {error}")
        return None


def _by_name(source: Source, name: str, node: ast.expr) -> Any:
    """The value of an argument of a policy; of a function such as `ba.hit` its name."""
    function = source.name_of(node)
    return function if function in NAMED.get(name, {}) else source.value(node)
