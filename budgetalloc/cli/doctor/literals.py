"""Plain values in the source of a script, found without running it."""

import ast
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda self: "unknown"})()
"""The value of an expression that only running the script can tell."""
MOST = 100_000
"""The entries and characters that are read in one script: `a = [b, b]` thirty times over has 2^30."""
_DEEPEST = 30  # names and brackets that are followed
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
    """The syntax tree of a script, with the names in it that have one value.

    A name has a value if the whole script binds it once, by a plain assignment; the conditions around the assignment
    are not looked at. Once `MOST` entries and characters were read, further values are unknown, and `left` is negative.

    >>> source = Source("from trl import GRPOConfig as C\\nsize = 2 * 8\\nargs = C(output_dir='run', max_steps=size)")
    >>> [(call.lineno, source.arguments(call)) for call in source.calls("GRPOConfig")]
    [(3, {'output_dir': 'run', 'max_steps': 16})]
    """

    def __init__(self, text: str) -> None:
        self.text = text
        with warnings.catch_warnings():  # the parser warns of escapes such as "\d"
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: set[str] = set()
        self.left = MOST
        self._calls: list[ast.Call] = []
        self._called: dict[str, str] = {}  # names of imports by the names that the script gives them
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
                self._called |= {alias.asname or alias.name: alias.name for alias in node.names}
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
        """Whether so many more entries and characters may be read."""
        self.left -= entries
        return self.left >= 0

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

    def assigned(self, name: str) -> list[ast.expr]:
        """All expressions that a name may stand for, in the order of the script."""
        values = (value for value in self._bound.get(name, []) if value is not None)
        return sorted(values, key=lambda value: value.lineno)

    def value(self, node: ast.expr | None, depth: int = _DEEPEST) -> Any:
        """The value of an expression of plain values and names of such; `UNKNOWN` for any other."""
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

    def called(self, call: ast.Call) -> str:
        """The last part of the name of what is called, by the name that its module gives it: "GRPOConfig"."""
        return self.name_of(call.func)

    def name_of(self, node: ast.expr) -> str:
        """The last part of a dotted name, by the name that its module gives it; empty for another expression."""
        if isinstance(node, ast.Name):
            return self._called.get(node.id, node.id).rpartition(".")[2]
        return node.attr if isinstance(node, ast.Attribute) else ""

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """The calls of these functions and classes, or all, in the order of the lines."""
        return (call for call in self._calls if not names or self.called(call) in names)

    def bases(self, name: str) -> list[str]:
        """A class and, as far as the script defines them, the classes that it inherits, at most 100."""
        names = [name]
        for at in names:  # grows while it is gone through
            if at in self.classes:
                bases = (self.name_of(base) for base in self.classes[at].bases[:100])
                names += [base for base in bases if base not in names and len(names) < 100]
        return names

    def where(self, name: str, node: ast.expr | None) -> str:
        """An argument with its line and its source, such as "line 3: policy=config.build()"."""
        if node is None:
            return f"{name}: not given"
        return f"line {node.lineno}: {name}={' '.join(str(ast.get_source_segment(self.text, node)).split())[:60]}"

    def nodes(self, call: ast.Call, *positions: str, depth: int = _DEEPEST) -> dict[str | None, ast.expr]:
        """The arguments of a call by name; positional ones by these names. The key None: arguments that are hidden in
        `*` or `**` of something unknown."""
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
        """The entries of a mapping, the key None for those that are hidden."""
        inner = self.expression(node) if depth > 0 and self._spend(1) else None
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.BitOr):
            return self._entries(inner.left, depth - 1) | self._entries(inner.right, depth - 1)
        if isinstance(inner, ast.Call) and self.called(inner) == "dict" and not inner.args:
            return dict(self.nodes(inner, depth=depth - 1)) if self._spend(len(inner.keywords)) else {None: node}
        if not isinstance(inner, ast.Dict) or not self._spend(len(inner.keys)):
            return {None: node}
        entries: dict[Any, ast.expr] = {}
        for key, item in zip(inner.keys, inner.values, strict=True):
            name = None if key is None else self.value(key, depth - 1)
            known = isinstance(name, str | int)
            entries |= self._entries(item, depth - 1) if key is None else {name if known else None: item}
        return entries

    def arguments(self, call: ast.Call, *positions: str, depth: int = _DEEPEST) -> dict[str | None, Any]:
        """The values of a call's arguments, as `nodes` names them."""
        return {name: self.value(node, depth) for name, node in self.nodes(call, *positions, depth=depth).items()}


def _bounded(value: Any) -> Any:
    """`UNKNOWN` for a number of more than 30 digits, an infinite one and NaN."""
    return UNKNOWN if isinstance(value, int | float) and not abs(value) <= _LARGEST else value
