"""Finds the plain values in the source of a script without running it."""

import ast
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["MOST", "UNKNOWN", "Source"]

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda self: "unknown"})()
"""The value of an expression that is known only once the script runs."""
MOST = 100_000
"""Entries and characters that are read in one script: thirty lines such as `a = [b, b]` make 2^30 entries."""
_DEEPEST = 30  # nested names and brackets
_LARGEST = 1e30  # numbers beyond it are unknown
_NUMBERS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class Source:
    """The syntax tree of a script, and the values of its names.

    A name has a value if the whole script binds it once, by a plain assignment, even inside a condition. Once `MOST`
    entries and characters were read, `left` is negative and further values are unknown.

    >>> source = Source("from trl import GRPOConfig as C\\nsize = 2 * 8\\nargs = C(output_dir='run', max_steps=size)")
    >>> [(call.lineno, source.arguments(call)) for call in source.calls("GRPOConfig")]
    [(3, {'output_dir': 'run', 'max_steps': 16})]
    """

    def __init__(self, text: str) -> None:
        self.text = text
        with warnings.catch_warnings(action="ignore"):  # the parser warns about escapes such as "\d"
            tree = ast.parse(text)
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: set[str] = set()
        self.left = MOST
        self._calls: list[ast.Call] = []
        self._imported: dict[str, str] = {}  # the script's name of an import: its own name
        self._bound: dict[str, list[ast.expr | None]] = {}
        targets = set()
        for node in ast.walk(tree):  # an assignment comes before its targets
            if isinstance(node, ast.Call):
                self._calls.append(node)
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.add(node.name)
            elif isinstance(node, ast.ImportFrom | ast.Import):
                self._imported |= {alias.asname or alias.name: alias.name for alias in node.names}
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                for name in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(name, ast.Name):
                        self._bound.setdefault(name.id, []).append(node.value)
                        targets.add(id(name))
            elif isinstance(node, ast.arg):
                self._bound.setdefault(node.arg, []).append(None)
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and id(node) not in targets:
                self._bound.setdefault(node.id, []).append(None)  # loops, `with`, `+=`, unpacking
        self._calls.sort(key=lambda call: (call.lineno, call.col_offset))

    def _spend(self, entries: int) -> bool:
        """Counts entries and characters; returns whether they may be read."""
        self.left -= entries
        return self.left >= 0

    def expression(self, node: ast.expr | None) -> ast.expr | None:
        """The expression that a name stands for, None if there are several; any other expression itself."""
        for _ in range(_DEEPEST):
            if not isinstance(node, ast.Name):
                return node
            values = self._bound.get(node.id, [])
            if len(values) != 1:
                return None
            node = values[0]
        return None

    def assigned(self, name: str) -> list[ast.expr]:
        """All expressions that a name may stand for, in the order of the script."""
        values = (value for value in self._bound.get(name, []) if value is not None)
        return sorted(values, key=lambda value: value.lineno)

    def value(self, node: ast.expr | None, depth: int = _DEEPEST) -> Any:
        """The value of an expression of plain values and their names; `UNKNOWN` for any other expression."""
        node = self.expression(node)
        if node is None or depth <= 0 or not self._spend(1):
            return UNKNOWN
        if isinstance(node, ast.Constant):
            long = isinstance(node.value, str | bytes) and not self._spend(len(node.value))
            return UNKNOWN if long else _bounded(node.value)
        if isinstance(node, ast.List | ast.Tuple):
            items = [self.value(item, depth - 1) for item in node.elts]
            return UNKNOWN if UNKNOWN in items else (tuple(items) if isinstance(node, ast.Tuple) else items)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            number = self.value(node.operand, depth - 1)
            return -number if isinstance(number, int | float) else UNKNOWN
        if isinstance(node, ast.BinOp) and type(node.op) in _NUMBERS:
            pair = [self.value(side, depth - 1) for side in (node.left, node.right)]
            if all(isinstance(side, int | float) for side in pair):
                try:
                    return _bounded(_NUMBERS[type(node.op)](*pair))
                except ArithmeticError:
                    return UNKNOWN
        entries = self._entries(node, depth - 1)
        made = {} if None in entries else {key: self.value(item, depth - 1) for key, item in entries.items()}
        return UNKNOWN if None in entries or UNKNOWN in made.values() else made

    def name_of(self, node: ast.expr) -> str:
        """The last part of a dotted name, without the script's `import as`; empty for any other expression."""
        if isinstance(node, ast.Name):
            return self._imported.get(node.id, node.id).rpartition(".")[2]
        return node.attr if isinstance(node, ast.Attribute) else ""

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """The calls of these functions and classes, or all, in the order of the lines."""
        return (call for call in self._calls if not names or self.name_of(call.func) in names)

    def bases(self, name: str) -> list[str]:
        """A class and the base classes that the script defines, at most 100."""
        names = [name]
        for each in names:  # the list grows during the loop
            bases = map(self.name_of, self.classes[each].bases[:100] if each in self.classes else ())
            names += [base for base in bases if base not in names and len(names) < 100]
        return names

    def where(self, name: str, node: ast.expr | None) -> str:
        """The line and the source of an argument, such as "line 3: policy=config.build()"."""
        if node is None:
            return f"{name}: not given"
        return f"line {node.lineno}: {name}={' '.join(str(ast.get_source_segment(self.text, node)).split())[:60]}"

    def nodes(self, call: ast.Call, *positions: str, depth: int = _DEEPEST) -> dict[str | None, ast.expr]:
        """The arguments of a call by name; `positions` names the positional ones.

        The key None stands for arguments in `*` or `**` of something unknown.
        """
        given: dict[str | None, ast.expr] = {}
        for name, node in zip(positions, call.args, strict=False):
            given[None if isinstance(node, ast.Starred) else name] = node
        for keyword in call.keywords:
            if keyword.arg is None:
                entries = self._entries(keyword.value, depth - 1)
                given |= {key if isinstance(key, str) else None: item for key, item in entries.items()}
            else:
                given[keyword.arg] = keyword.value
        return given

    def _entries(self, node: ast.expr, depth: int) -> dict[Any, ast.expr]:
        """The entries of a mapping; the key None stands for unknown keys."""
        inner = self.expression(node) if depth > 0 and self._spend(1) else None
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.BitOr):
            return self._entries(inner.left, depth - 1) | self._entries(inner.right, depth - 1)
        if isinstance(inner, ast.Call) and self.name_of(inner.func) == "dict" and not inner.args:
            return dict(self.nodes(inner, depth=depth - 1)) if self._spend(len(inner.keywords)) else {None: node}
        if not isinstance(inner, ast.Dict) or not self._spend(len(inner.keys)):
            return {None: node}
        entries: dict[Any, ast.expr] = {}
        for key, item in zip(inner.keys, inner.values, strict=True):
            name = None if key is None else self.value(key, depth - 1)
            known = isinstance(name, str | int)
            entries |= self._entries(item, depth - 1) if key is None else {name if known else None: item}
        return entries

    def arguments(self, call: ast.Call, *positions: str) -> dict[str | None, Any]:
        """The values of the arguments in `nodes`."""
        return {name: self.value(node) for name, node in self.nodes(call, *positions).items()}


def _bounded(value: Any) -> Any:
    """`UNKNOWN` for a number of more than 30 digits, an infinite one and NaN."""
    return UNKNOWN if isinstance(value, int | float) and not abs(value) <= _LARGEST else value
