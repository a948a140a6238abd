"""Recognises reward functions that compare the completions of a block of rows, as TRL's groups
are: by their source before the training, and by their rewards in it."""

import ast
import functools
import inspect
import logging
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray

logger = logging.getLogger(__name__)
_CHANCE = 1e-6  # of equal sums, below which they are no chance
_DEEP = 3  # how many calls of the user's own functions are followed
# calls that cut rows into blocks, if this is one of their arguments; of range, the last of three
_CUTS = (
    *("reshape", "view", "chunk", "array_split", "batched", "chunked", "unflatten"),
    *("islice", "repeat", "repeat_interleave", "as_strided"),
)


def block_in(function: Any, size: int) -> str | None:
    """The source line in which a reward function divides its rows into blocks of `size`, TRL's
    `num_generations`. None if there is none, the source is unknown, the function uses the column
    `budgetalloc_group`, or it has the attribute `by_row`, by which the user says that it scores
    each row alone.

    Such a line cuts the rows (`range(0, n, size)`, `reshape(-1, size)`, `rows[i : i + size]`),
    divides their number or an index by the size, or their number by that of different prompts, or
    names `num_generations`. The size is the
    number, or a variable or an attribute that holds it. Functions that it calls are read too.

    >>> block_in(sorted, 8) is None
    True
    """
    if size < 2 or getattr(function, "by_row", False):
        return None
    values = dict[str, Any]()
    while isinstance(function, functools.partial):
        values |= function.keywords
        function = function.func
    if not inspect.isroutine(function):  # an object that can be called
        values["self"], function = function, type(function).__call__
    lines, knows = list[str](), list[bool]()
    for source in _sources(function, size, values, _DEEP):
        lines += source.lines()
        knows.append(source.knows)
    return None if any(knows) or not lines else lines[0]


def _sources(function: Any, size: int, values: Mapping[str, Any], deep: int) -> Iterator["_Source"]:
    """The sources of a function and of those that it calls, as far as they are the user's."""
    try:
        function = inspect.unwrap(function)
        if (owner := getattr(function, "__self__", None)) is not None:
            values = {"self": owner, **values}
        function = getattr(function, "__func__", function)
        text = textwrap.dedent(inspect.getsource(function))
        tree, seen = ast.parse(text), inspect.getclosurevars(function)
        parameters = inspect.signature(function).parameters
    except (OSError, TypeError, ValueError, SyntaxError):  # no source, or not Python's
        return
    defaults = {name: x.default for name, x in parameters.items()}
    source = _Source(text, tree, {**seen.globals, **seen.nonlocals, **defaults, **values}, size)
    yield source
    package = function.__module__.partition(".")[0]
    for call in source.calls if deep else ():
        called = source.value(call.func)
        of_user = getattr(called, "__module__", None) or ""
        if inspect.isfunction(called) and of_user.partition(".")[0] == package:
            names = inspect.signature(called).parameters
            places = [*zip(names, call.args, strict=False)]
            places += [(str(x.arg), x.value) for x in call.keywords]
            given = {name: size for name, x in places if source.is_size(x)}
            yield from _sources(called, size, given, deep - 1)


class _Source:
    """The source of one function, and the values of the names in it."""

    def __init__(self, text: str, tree: ast.AST, values: Mapping[str, Any], size: int) -> None:
        self.nodes, self.values, self.size = list(ast.walk(tree)), dict(values), size
        self.text = text.splitlines()
        self.knows = "budgetalloc_group" in text
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        functions = [x for x in self.nodes if isinstance(x, (ast.FunctionDef, ast.Lambda))]
        self.rows = {x.arg for f in functions for x in (*f.args.args, *f.args.kwonlyargs)}
        self.places = set[str]()  # what counts rows
        for node in self.nodes:
            if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.iter, ast.Call):
                if _called(node.iter) in ("range", "enumerate"):
                    first, *_ = getattr(node.target, "elts", [node.target])
                    self.places.add(getattr(first, "id", ""))
            elif isinstance(node, ast.Assign) and self.is_size(node.value):
                self.values |= {x.id: size for x in node.targets if isinstance(x, ast.Name)}

    def value(self, node: ast.AST) -> Any:
        """What an expression of names and attributes stands for; None if that is not known."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.values.get(node.id)
        if isinstance(node, ast.Attribute):
            return getattr(self.value(node.value), node.attr, None)
        return None

    def is_size(self, node: ast.AST) -> bool:
        value = self.value(node)
        return isinstance(value, int) and not isinstance(value, bool) and value == self.size

    def _counts_rows(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            return _called(node) == "len" and getattr(node.args[0], "id", "") in self.rows
        return isinstance(node, ast.Name) and node.id in self.places

    def _by_prompts(self, node: ast.BinOp) -> bool:
        """Whether this is len(rows) // len(set(prompts)), the rows of a prompt if all have the
        same number."""
        prompts = node.right.args if isinstance(node.right, ast.Call) else []
        unique = any(isinstance(x, ast.Call) and _called(x) in ("set", "unique") for x in prompts)
        return isinstance(node.op, ast.FloorDiv) and unique and self._counts_rows(node.left)

    def lines(self) -> list[str]:
        """The lines that divide rows into blocks."""
        found = [getattr(node, "lineno", 1) for node in self.nodes if self._divides(node)]
        return [self.text[number - 1].strip() for number in found]

    def _divides(self, node: Any) -> bool:
        if isinstance(node, (ast.Name, ast.Attribute, ast.Constant)):
            name = getattr(node, "id", getattr(node, "attr", getattr(node, "value", "")))
            return name == "num_generations"
        if isinstance(node, ast.Call):
            arguments = [x for each in node.args for x in (each, *getattr(each, "elts", ()))]
            if _called(node) == "range":
                arguments = node.args[2:]
            elif _called(node) == "split":  # of a tensor; texts are split by a text
                arguments = node.args[:1]
            elif _called(node) not in _CUTS:
                return False
            return any(map(self.is_size, arguments))
        if isinstance(node, ast.BinOp) and self._by_prompts(node):
            return True
        if isinstance(node, ast.BinOp) and self.is_size(node.right):
            iterators = isinstance(node.left, ast.List) and isinstance(node.op, ast.Mult)
            parts = isinstance(node.op, (ast.FloorDiv, ast.Mod)) and self._counts_rows(node.left)
            return iterators or parts
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            low, step = node.slice.lower, node.slice.step
            if getattr(node.value, "id", "") not in self.rows:
                return False
            moves = low is not None and self.value(low) is None
            inside = [*ast.walk(node.slice)] if moves else [step] if step is not None else []
            return any(map(self.is_size, inside))
        return False


def _called(node: ast.Call) -> str:
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


class BlockRewards:
    """Warns once about each reward function whose rewards vary within blocks of `size` rows and
    have the same sum in every block, as ranks and rewards minus their mean do.

    Such a function takes a block for the completions of one prompt, which it is not under a policy.
    The chance of equal sums of independent rewards is about d / sqrt(2 pi size v), where d is the
    smallest difference between rewards and v their variance.

    Args:
        size: Rows of a block, TRL's `num_generations`.

    >>> BlockRewards(2).add(["rank"], np.array([[0.0], [1.0], [1.0], [0.0]])) # two blocks: too few
    []
    >>> BlockRewards(2).add(["score"], np.array([[0.0], [1.0], [0.0], [0.0]] * 20))
    []
    >>> BlockRewards(2).add(["rank"], np.array([[0.0], [1.0]] * 40))
    ['rank']
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._blocks: dict[str, FloatArray | None] = {}  # None: known

    def add(self, names: Sequence[str], scores_RF: FloatArray) -> list[str]:
        """Adds the rewards of a round, unless its blocks are not whole, and logs a warning for each
        function that is recognised; returns their names."""
        found: list[str] = []
        if not len(scores_RF) or len(scores_RF) % self.size:
            return found
        for f, name in enumerate(names):
            before = self._blocks.get(name, np.zeros((0, self.size)))
            if before is None:
                continue
            blocks = np.concatenate([before, scores_RF[:, f].reshape(-1, self.size)])
            self._blocks[name] = blocks
            sums, spread = blocks.sum(axis=1), np.ptp(blocks, axis=1)
            least = 1e-4 * spread.max(initial=0.0)  # rewards are floats of 32 bits
            if not (np.ptp(sums) <= least and (spread > least).all()):  # False for NaN
                self._blocks[name] = None
                continue
            steps = np.diff(np.unique(blocks))
            chance = steps[steps > least].min() / math.sqrt(2 * math.pi * self.size * blocks.var())
            if min(chance, 0.9) ** (len(blocks) - 1) < _CHANCE:
                self._blocks[name] = None
                found.append(name)
                logger.warning(
                    "The rewards of %r have the same sum in each %d adjacent rows: it seems to "
                    "compare the completions of num_generations rows, which are not of one prompt "
                    "under this policy. Group its rows by the column budgetalloc_group, which "
                    "holds the id of each row's prompt.",
                    name,
                    self.size,
                )
        return found
