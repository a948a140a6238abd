"""A YAML file of settings in which a mistake is an error with the file, the line, the key and the nearest known one."""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from budgetalloc.errors import InputError

_UNFIT = object()


@dataclass(frozen=True)
class Section:
    """A mapping of a YAML file, which knows where it stands.

    Args:
        file: Name of the file, for errors.
        name: Dotted path of the mapping, "" for the whole file.
        values: What it holds.
        lines: The line of every key of the file by its dotted path, from 1.

    >>> section = read_text("budget: {rollouts: 1024, cap: 64}", "run.yaml").section("budget")
    >>> section.values, section.lines["budget.cap"]
    ({'rollouts': 1024, 'cap': 64}, 1)
    >>> section.only(["rollouts", "floor", "caps"])
    Traceback (most recent call last):
    budgetalloc.errors.InputError: run.yaml, line 1: budget.cap: unknown key, did you mean caps? Known: rollouts, floor,
        caps.
    """

    file: str
    name: str
    values: Mapping[str, Any]
    lines: Mapping[str, int]

    def path(self, key: str) -> str:
        """The dotted path of a key."""
        return f"{self.name}.{key}" if self.name else key

    def error(self, text: object, key: str | None = None, kind: type[Exception] = InputError) -> Exception:
        """An error about this mapping, or about one of its keys."""
        path = self.name if key is None else self.path(key)
        line = self.lines.get(path)
        where = self.file if line is None else f"{self.file}, line {line}"
        return kind(f"{where}: {path}: {text}" if path else f"{where}: {text}")

    def only(self, known: Iterable[str]) -> None:
        """Raises `InputError` for a key that is not known."""
        known = list(known)
        for key in self.values:
            if key not in known:
                raise self.error(f"unknown key{nearest(str(key), known)} Known: {', '.join(known)}.", key)

    def section(self, key: str) -> "Section":
        """The mapping under a key, empty where the key is missing or null."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.error(f"{value!r} is {_what(value)}, use settings of the form `name: value`.", key)
        return Section(self.file, self.path(key), value or {}, self.lines)

    def arguments(self, kinds: Mapping[str, Any]) -> dict[str, Any]:
        """The values as these types, such as those of a function's parameters; raises `InputError` for others.

        Whole numbers pass for `float` and lists for tuples, nothing else is converted.
        """
        self.only(kinds)
        found = {}
        for key, value in self.values.items():
            found[key] = fitted(value, kinds[key])
            if found[key] is _UNFIT:
                raise self.error(f"{value!r} is {_what(value)}, use {words(kinds[key])}.", key)
        return found


def nearest(word: str, known: Sequence[str]) -> str:
    """The end of a sentence that names the known word nearest to this one, if any is near.

    >>> nearest("knapsak", ["uniform", "knapsack"]), nearest("x", ["uniform"])
    (', did you mean knapsack?', '.')
    """
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f", did you mean {near[0]}?" if near else "."


def parameters(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """The type and the default (`inspect.Parameter.empty` for none) of each parameter of a function or dataclass.

    >>> def rule(*, group: int = 8) -> None: ...
    >>> parameters(rule)
    {'group': (<class 'int'>, 8)}
    """
    found = inspect.signature(function, eval_str=True).parameters.values()
    return {parameter.name: (parameter.annotation, parameter.default) for parameter in found}


def fitted(value: Any, kind: Any) -> Any:
    """The value as a type, with tuples for lists and floats for integers where those are asked for."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return next((x for x in (fitted(value, arg) for arg in args) if x is not _UNFIT), _UNFIT)
    if origin is Literal:
        return value if any(type(value) is type(arg) and value == arg for arg in args) else _UNFIT
    if origin is tuple or (origin is not None and origin is get_origin(Sequence[int])):
        if not isinstance(value, (list, tuple)):
            return _UNFIT
        kinds = args if origin is tuple and args[-1] is not ... else [args[0]] * len(value)
        items = tuple(fitted(*pair) for pair in zip(value, kinds, strict=False))
        return _UNFIT if len(value) != len(kinds) or any(x is _UNFIT for x in items) else items
    if origin is get_origin(Mapping[str, int]):
        if not isinstance(value, Mapping):
            return _UNFIT
        pairs = [(fitted(k, args[0]), fitted(x, args[1])) for k, x in value.items()]
        return _UNFIT if any(_UNFIT in pair for pair in pairs) else dict(pairs)
    if kind is Any:
        return value
    if kind is float and type(value) is int:
        return float(value)
    return value if type(value) is kind else _UNFIT


def words(kind: Any) -> str:
    """A type in words.

    >>> words(int | None), words(tuple[float, float] | Literal["pool"])
    ('an integer or null', "[a number, a number] or 'pool'")
    """
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(words(arg) for arg in args)
    if origin is Literal:
        return " or ".join(repr(arg) for arg in args)
    if origin is tuple or (origin is not None and origin is get_origin(Sequence[int])):
        every = origin is not tuple or args[-1] is ...
        return f"a list of {words(args[0])}" if every else f"[{', '.join(words(arg) for arg in args)}]"
    plain = {int: "an integer", float: "a number", bool: "true or false", str: "a text", NoneType: "null"}
    return plain.get(kind, "settings of the form `name: value`")


def _what(value: Any) -> str:
    names = {bool: "true or false", int: "an integer", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), "a mapping" if isinstance(value, Mapping) else "null" if value is None else "a date")


def read_text(text: str, file: str) -> Section:
    """The whole file as a section; raises `InputError` where it is not YAML, not a mapping, or has a key twice."""
    yaml = _yaml()
    try:
        loader = yaml.Loader(text)
        node = loader.get_single_node()
        lines: dict[str, int] = {}
        if node is not None:
            _walk(node, "", lines, file, set())
        value = None if node is None else loader.construct_document(node)
    except InputError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = file if mark is None else f"{file}, line {mark.line + 1}"
        raise InputError(f"{where}: not YAML: {getattr(error, 'problem', None) or error}") from error
    if value is not None and not isinstance(value, dict):
        raise InputError(f"{file}: {_what(value)}, use settings of the form `name: value`, such as `policy: adaptive`.")
    return Section(file, "", value or {}, lines)


def written(values: Mapping[str, Any]) -> str:
    """Plain values as YAML that `read_text` reads back.

    >>> print(written({"rate": 1e-6, "prior": (0.5, 0.5)}), end="")
    rate: 1.0e-06
    prior: [0.5, 0.5]
    """
    yaml = _yaml()
    return str(yaml.dump(_plain(values), Dumper=yaml.Dumper, sort_keys=False, default_flow_style=False, width=110))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(x) for key, x in value.items()}
    return [_plain(x) for x in value] if isinstance(value, (list, tuple)) else value


def _walk(node: Any, path: str, lines: dict[str, int], file: str, seen: set[int]) -> None:
    """Notes the line of every key, and refuses what would be read silently: a key twice, an alias, a merge."""
    here = f"{file}, line {node.start_mark.line + 1}"
    if id(node) in seen:
        raise InputError(f"{here}: an alias of YAML (&name, *name), which is not read. Write the values again.")
    seen.add(id(node))
    if node.id == "sequence":
        for at, item in enumerate(node.value):
            _walk(item, f"{path}[{at}]", lines, file, seen)
    elif node.id == "mapping":
        own: dict[str, int] = {}
        for key, value in node.value:
            if key.id != "scalar" or key.value == "<<":
                raise InputError(f"{here}: a key that is not a plain word. Use `name: value`.")
            below = f"{path}.{key.value}" if path else key.value
            line = key.start_mark.line + 1
            if key.value in own:
                raise InputError(f"{file}, line {line}: {below}: given twice, first in line {own[key.value]}.")
            own[key.value] = lines[below] = line
            _walk(value, below, lines, file, seen)


@cache
def _yaml() -> Any:
    """PyYAML's safe loader and dumper, with 1e-6 for a number as in YAML 1.2, where PyYAML takes it for a text."""
    import re

    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """As `yaml.SafeLoader`."""

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        """As `yaml.SafeDumper`, lists on one line."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    number = re.compile(r"[-+]?(\d[\d_]*)(\.[\d_]*)?[eE][-+]?\d+$")
    for kind in (Loader, Dumper):
        kind.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))
    Dumper.add_representer(
        list, lambda dumper, data: dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)
    )
    return SimpleNamespace(Loader=Loader, Dumper=Dumper, dump=yaml.dump, YAMLError=yaml.YAMLError)
