"""Plain values in the source of a script, found without running it."""

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda self: "unknown"})()
"""The value of an expression that only running the script can tell."""
_DEEPEST = 30  # names and brackets that are followed
_NUMBERS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class Source:
    """The syntax tree of a script, with the names in it that have one value.

    A name has a value if the whole script binds it once, by a plain assignment; the conditions around the assignment
    are not looked at.

    >>> source = Source("from trl import GRPOConfig as C\\nsize = 2 * 8\\nargs = C(output_dir='run', max_steps=size)")
    >>> [(call.lineno, source.arguments(call)) for call in source.calls("GRPOConfig")]
    [(3, {'output_dir': 'run', 'max_steps': 16})]
    """

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: set[str] = set()
        self._called: dict[str, str] = {}  # names of imports by the names that the script gives them
        bound: dict[str, list[ast.expr | None]] = {}
        targets = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.add(node.name)
            elif isinstance(node, ast.ImportFrom | ast.Import):
                self._called |= {alias.asname or alias.name: alias.name for alias in node.names}
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                names = node.targets if isinstance(node, ast.Assign) else [node.target]
                for name in names:
                    if isinstance(name, ast.Name):
                        bound.setdefault(name.id, []).append(node.value)
                        targets.add(id(name))
            elif isinstance(node, ast.arg):
                bound.setdefault(node.arg, []).append(None)
        for node in ast.walk(self.tree):  # loops, `with`, `+=`, unpacking: every other place that binds a name
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del) and id(node) not in targets:
                bound.setdefault(node.id, []).append(None)
        self._bound = bound

    def expression(self, node: ast.expr | None) -> ast.expr | None:
        """What a name stands for; other expressions as they are, None for a name without a single value."""
        for _ in range(_DEEPEST):
            if not isinstance(node, ast.Name):
                return node
            values = self._bound.get(node.id, [])
            if len(values) != 1:
                return None
            node = values[0]
        return None

    def assigned(self, node: ast.expr | None) -> list[ast.expr]:
        """All expressions that a name may stand for, in the order of the script; another expression alone."""
        values = self._bound.get(node.id, []) if isinstance(node, ast.Name) else [node]
        return sorted((value for value in values if value is not None), key=lambda value: value.lineno)

    def value(self, node: ast.expr | None, depth: int = _DEEPEST) -> Any:
        """The value of an expression of plain values and names of such; `UNKNOWN` for any other."""
        node = self.expression(node)
        if node is None or not depth:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.List | ast.Tuple):
            items = [self.value(item, depth - 1) for item in node.elts]
            return UNKNOWN if UNKNOWN in items else (tuple(items) if isinstance(node, ast.Tuple) else items)
        if isinstance(node, ast.Dict):
            keys = [self.value(key, depth - 1) for key in node.keys]
            values = [self.value(item, depth - 1) for item in node.values]
            plain = UNKNOWN not in keys + values and all(isinstance(key, str | int) for key in keys)
            return dict(zip(keys, values, strict=True)) if plain else UNKNOWN
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            number = self.value(node.operand, depth - 1)
            return -number if isinstance(number, int | float) else UNKNOWN
        if isinstance(node, ast.BinOp) and type(node.op) in _NUMBERS:
            pair = [self.value(side, depth - 1) for side in (node.left, node.right)]
            if all(isinstance(side, int | float) for side in pair):
                try:
                    return _NUMBERS[type(node.op)](*pair)
                except (ArithmeticError, ValueError):
                    return UNKNOWN
        if isinstance(node, ast.Call) and self.called(node) == "dict" and not node.args:
            given = self.arguments(node)
            return UNKNOWN if UNKNOWN in given.values() or None in given else given
        return UNKNOWN

    def called(self, call: ast.Call) -> str:
        """The last part of the name of what is called, by the name that its module gives it: "GRPOConfig"."""
        return self.name_of(call.func)

    def name_of(self, node: ast.expr) -> str:
        """The last part of a dotted name, by the name that its module gives it; empty for another expression."""
        if isinstance(node, ast.Name):
            return self._called.get(node.id, node.id).rpartition(".")[2]
        return node.attr if isinstance(node, ast.Attribute) else ""

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """The calls of these functions and classes, in the order of the lines."""
        every = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        yield from sorted(
            (x for x in every if self.called(x) in names), key=lambda call: (call.lineno, call.col_offset)
        )

    def nodes(self, call: ast.Call, *positions: str) -> dict[str | None, ast.expr]:
        """The arguments of a call by name; positional ones by these names. The key None: arguments that are hidden in
        `*` or `**` of something unknown."""
        given: dict[str | None, ast.expr] = {}
        for name, node in zip(positions, call.args, strict=False):
            given[None if isinstance(node, ast.Starred) else name] = node
        for keyword in call.keywords:
            given |= self._spread(keyword.value) if keyword.arg is None else {keyword.arg: keyword.value}
        return given

    def _spread(self, node: ast.expr, depth: int = _DEEPEST) -> dict[str | None, ast.expr]:
        """The entries of a mapping after `**`, the key None for those that are hidden."""
        inner = self.expression(node) if depth else None
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.BitOr):
            return self._spread(inner.left, depth - 1) | self._spread(inner.right, depth - 1)
        if isinstance(inner, ast.Call) and self.called(inner) == "dict" and not inner.args:
            return self.nodes(inner)
        if not isinstance(inner, ast.Dict):
            return {None: node}
        entries: dict[str | None, ast.expr] = {}
        for key, item in zip(inner.keys, inner.values, strict=True):
            name = None if key is None else self.value(key)
            entries |= self._spread(item, depth - 1) if key is None else {name if isinstance(name, str) else None: item}
        return entries

    def arguments(self, call: ast.Call, *positions: str) -> dict[str | None, Any]:
        """The values of a call's arguments, as `nodes` names them."""
        return {name: self.value(node) for name, node in self.nodes(call, *positions).items()}
