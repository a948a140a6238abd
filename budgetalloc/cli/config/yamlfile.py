"""A YAML file of settings in which a mistake is an error with the file, the line, the key and the nearest known key."""

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from budgetalloc.errors import BudgetallocError, InputError

_UNFIT = object()
# The core schema of YAML 1.2, in which 010 is ten and 1:30 a text; PyYAML's own rules are those of YAML 1.1.
_PLAIN: dict[str, Callable[[str], Any]] = {
    r"~|null|Null|NULL|": lambda text: None,
    r"true|True|TRUE|false|False|FALSE": lambda text: text.lower() == "true",
    r"[-+]?[0-9]+": int,
    r"0o[0-7]{1,999}|0x[0-9a-fA-F]{1,999}": lambda text: int(text, 0),
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?": float,
    r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)": lambda text: float(text.replace(".", "")),
}


@dataclass(frozen=True)
class Section:
    """A mapping of a file: its dotted path ("" for the whole file), its values, and the line of every key."""

    file: str
    name: str
    values: Mapping[str, Any]
    lines: Mapping[str, int]

    def path(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def error(self, text: object, key: str = "", kind: type[Exception] = InputError) -> Exception:
        """An error about a key, or about the mapping if the file does not have the key."""
        path = self.path(key) if self.path(key) in self.lines else self.name
        line = f", line {self.lines[path]}: {path}" if path in self.lines else ""
        return kind(f"{self.file}{line}: {text}")

    @contextmanager
    def named(self, key: str) -> Iterator[None]:
        """Adds file, line and key to an error that is raised inside."""
        try:
            yield
        except BudgetallocError as error:
            raise self.error(error, key, type(error)) from error

    def section(self, key: str) -> "Section":
        """The mapping under a key, empty where the key is missing or null."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.error(f"{value!r}: use settings of the form `name: value`.", key)
        return Section(self.file, self.path(key), value or {}, self.lines)

    def arguments(self, kinds: Mapping[str, Any]) -> dict[str, Any]:
        """The values as these types; raises `InputError` for an unknown key and for another type."""
        for key in self.values:
            if key not in kinds:
                raise self.error(f"unknown key{nearest(key, kinds)} Known: {', '.join(kinds)}.", key)
        values = {key: fitted(value, kinds[key]) for key, value in self.values.items()}
        for key, value in self.values.items():
            if values[key] is _UNFIT:
                raise self.error(f"{value!r}: use {inspect.formatannotation(kinds[key])}.", key)
        return values


def nearest(word: str, known: Collection[str]) -> str:
    """The end of a sentence: the known word nearest to this one, as in ", did you mean knapsack?", or a full stop."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f", did you mean {near[0]}?" if near else "."


def fitted(value: Any, kind: Any) -> Any:
    """The value as a type, with tuples for lists and floats for integers where the type asks for these."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return next((x for arg in args if (x := fitted(value, arg)) is not _UNFIT), _UNFIT)
    if origin is Literal:
        return value if any(type(value) is type(arg) and value == arg for arg in args) else _UNFIT
    if origin in (tuple, Sequence) and isinstance(value, (list, tuple)):
        kinds = args if origin is tuple and args[-1] is not ... else args[:1] * len(value)
        items = tuple(map(fitted, value, kinds))
        return items if len(value) == len(kinds) and _UNFIT not in items else _UNFIT
    if origin is Mapping and isinstance(value, Mapping):
        pairs = [(fitted(key, args[0]), fitted(item, args[1])) for key, item in value.items()]
        return _UNFIT if any(_UNFIT in pair for pair in pairs) else dict(pairs)
    if kind is float and type(value) is int and abs(value) < 2**53:
        return float(value)
    return value if kind in (Any, type(value)) else _UNFIT


def read_text(text: str, file: str) -> Section:
    """The whole file as a section; raises `InputError` for another value, a key given twice, a tag and an anchor."""
    import yaml  # deferred: few commands read a file

    lines: dict[str, int] = {}

    def wrong(mark: Any, said: object) -> InputError:
        return InputError(f"{file}, line {mark.line + 1}: {said}" if mark else f"{file}: {said}")

    def read(node: Any, path: str) -> Any:
        if text.startswith(("&", "!"), node.start_mark.index):
            raise wrong(node.start_mark, "an anchor or a tag of YAML (&name, !!type). Write the value without it.")
        if node.id == "sequence":
            return [read(item, f"{path}[{at}]") for at, item in enumerate(node.value)]
        if node.id == "scalar":
            try:
                return node.value if node.style else _plain(node.value)
            except ValueError as error:  # an integer of more than 4,300 digits
                raise wrong(node.start_mark, f"not YAML: {error}") from error
        values: dict[str, Any] = {}
        for key, item in node.value:
            if key.id != "scalar" or key.value == "<<":
                raise wrong(key.start_mark, "a key that is not a plain word. Use `name: value`.")
            below = f"{path}.{key.value}" if path else key.value
            if key.value in values:
                raise wrong(key.start_mark, f"{below}: given twice, first in line {lines[below]}.")
            lines[below] = key.start_mark.line + 1
            values[key.value] = read(item, below)
        return values

    try:
        node = yaml.compose(text, Loader=yaml.BaseLoader)
        values = {} if node is None else read(node, "")
    except (yaml.YAMLError, RecursionError) as error:
        said = " ".join(str(getattr(error, "problem", None) or error).split())
        raise wrong(getattr(error, "problem_mark", None), f"not YAML: {said}") from error
    if not isinstance(values, dict | None):
        raise wrong(None, "use settings of the form `name: value`, such as `policy: adaptive`.")
    return Section(file, "", values or {}, lines)


def _plain(text: str) -> Any:
    """The value of a text without quotes."""
    return next((convert(text) for pattern, convert in _PLAIN.items() if re.fullmatch(pattern, text)), text)


def written(values: Mapping[str, Any]) -> str:
    """Mappings, lists and plain values as YAML that `read_text` reads back, such as `prior: [0.5, 0.5]`."""
    import yaml

    def listed(dumper: Any, items: Sequence[Any]) -> Any:
        return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)

    def quoted(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if _plain(text) is text else "'")

    dumper: Any = type("Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda self, data: True})
    for kind, represent in ((list, listed), (tuple, listed), (str, quoted)):
        dumper.add_representer(kind, represent)
    return str(yaml.dump(dict(values), Dumper=dumper, sort_keys=False, default_flow_style=False, width=110))
