"""A YAML file of settings in which a mistake is an error with the file, the line, the key and the nearest known key."""

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from budgetalloc.errors import InputError

_UNFIT = object()
# The core schema of YAML 1.2, in which 010 is ten and 1:30 a text; PyYAML's own rules are those of YAML 1.1.
_PLAIN: tuple[tuple[str, Callable[[str], Any]], ...] = (
    (r"~|null|Null|NULL|", lambda text: None),
    (r"true|True|TRUE|false|False|FALSE", lambda text: text.lower() == "true"),
    (r"[-+]?[0-9]+", int),
    (r"0o[0-7]{1,999}|0x[0-9a-fA-F]{1,999}", lambda text: int(text, 0)),
    (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", float),
    (r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", lambda text: float(text.replace(".", ""))),
)


@dataclass(frozen=True)
class Section:
    """A mapping of a file: its dotted path ("" for the whole file), its values, and the line of every key of the file.

    >>> section = read_text("budget: {rollouts: 1024, cap: 64}", "run.yaml").section("budget")
    >>> section.values, section.lines["budget.cap"]
    ({'rollouts': 1024, 'cap': 64}, 1)
    >>> section.arguments({"rollouts": int, "caps": int})
    Traceback (most recent call last):
    budgetalloc.errors.InputError: run.yaml, line 1: budget.cap: unknown key, did you mean caps? Known: rollouts, caps.
    """

    file: str
    name: str
    values: Mapping[str, Any]
    lines: Mapping[str, int]

    def path(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def error(self, text: object, key: str | None = None, kind: type[Exception] = InputError) -> Exception:
        """An error about this mapping, or about one of its keys."""
        path = self.name if key is None else self.path(key)
        line = f", line {self.lines[path]}" if path in self.lines else ""
        return kind(f"{self.file}{line}: {path}: {text}" if path else f"{self.file}{line}: {text}")

    def only(self, known: Collection[str]) -> None:
        """Raises `InputError` for a key that is not known."""
        for key in self.values:
            if key not in known:
                raise self.error(f"unknown key{nearest(key, known)} Known: {', '.join(known)}.", key)

    def section(self, key: str) -> "Section":
        """The mapping under a key, empty where the key is missing or null."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.error(f"{value!r}: use settings of the form `name: value`.", key)
        return Section(self.file, self.path(key), value or {}, self.lines)

    def arguments(self, kinds: Mapping[str, Any]) -> dict[str, Any]:
        """The values as these types; integers pass for `float`, lists for tuples. Raises `InputError` for others."""
        self.only(kinds)
        values = {key: fitted(value, kinds[key]) for key, value in self.values.items()}
        for key, value in self.values.items():
            if values[key] is _UNFIT:
                raise self.error(f"{value!r}: use {inspect.formatannotation(kinds[key])}.", key)
        return values


def nearest(word: str, known: Collection[str]) -> str:
    """The end of a sentence that names the known word nearest to this one, if any is near.

    >>> nearest("knapsak", ["uniform", "knapsack"]), nearest("x", ["uniform"])
    (', did you mean knapsack?', '.')
    """
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f", did you mean {near[0]}?" if near else "."


def fitted(value: Any, kind: Any) -> Any:
    """The value as a type, with tuples for lists and floats for integers where the type asks for these."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return next((x for x in (fitted(value, arg) for arg in args) if x is not _UNFIT), _UNFIT)
    if origin is Literal:
        return value if any(type(value) is type(arg) and value == arg for arg in args) else _UNFIT
    if origin in (tuple, Sequence):
        if not isinstance(value, (list, tuple)):
            return _UNFIT
        kinds = args if origin is tuple and args[-1] is not ... else [args[0]] * len(value)
        items = tuple(fitted(*pair) for pair in zip(value, kinds, strict=False))
        return _UNFIT if len(value) != len(kinds) or _UNFIT in items else items
    if origin is Mapping:
        if not isinstance(value, Mapping):
            return _UNFIT
        pairs = [(fitted(key, args[0]), fitted(item, args[1])) for key, item in value.items()]
        return _UNFIT if any(_UNFIT in pair for pair in pairs) else dict(pairs)
    if kind is float and type(value) is int and abs(value) < 2**53:
        return float(value)
    return value if kind in (Any, type(value)) or (kind is None and value is None) else _UNFIT


def read_text(text: str, file: str) -> Section:
    """The whole file as a section.

    Raises:
        InputError: the text is not YAML or not a mapping, has a key twice, or an anchor, an alias or a tag.
    """
    import yaml  # deferred: few commands read a file

    lines: dict[str, int] = {}

    def read(node: Any, path: str) -> Any:
        here = f"{file}, line {node.start_mark.line + 1}"
        if text.startswith(("&", "!"), node.start_mark.index):
            raise InputError(f"{here}: an anchor or a tag of YAML (&name, !!type). Write the value without it.")
        if node.id == "sequence":
            return [read(item, f"{path}[{at}]") for at, item in enumerate(node.value)]
        if node.id == "scalar":
            try:
                return node.value if node.style else _plain(node.value)
            except ValueError as error:  # an integer of more than 4,300 digits
                raise InputError(f"{here}: not YAML: {error}") from error
        values: dict[str, Any] = {}
        for key, item in node.value:
            if key.id != "scalar" or key.value == "<<":
                raise InputError(f"{here}: a key that is not a plain word. Use `name: value`.")
            below, line = f"{path}.{key.value}" if path else key.value, key.start_mark.line + 1
            if key.value in values:
                raise InputError(f"{file}, line {line}: {below}: given twice, first in line {lines[below]}.")
            lines[below] = line
            values[key.value] = read(item, below)
        return values

    try:
        node = yaml.compose(text, Loader=yaml.BaseLoader)
        values = None if node is None else read(node, "")
    except InputError:
        raise
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = file if mark is None else f"{file}, line {mark.line + 1}"
        said = " ".join(str(getattr(error, "problem", None) or error).split())
        raise InputError(f"{where}: not YAML: {said}") from error
    if values is not None and not isinstance(values, dict):
        raise InputError(f"{file}: use settings of the form `name: value`, such as `policy: adaptive`.")
    return Section(file, "", values or {}, lines)


def _plain(text: str) -> Any:
    """The value of a text without quotes."""
    return next((convert(text) for pattern, convert in _PLAIN if re.fullmatch(pattern, text)), text)


def written(values: Mapping[str, Any]) -> str:
    """Mappings, lists and plain values as YAML that `read_text` reads back.

    >>> print(written({"rate": 1e-6, "prior": (0.5, 0.5), "name": "010"}), end="")
    rate: 1.0e-06
    prior: [0.5, 0.5]
    name: '010'
    """
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        """As `yaml.SafeDumper`, with lists on one line and quotes around texts that `read_text` takes for a value."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def listed(dumper: Any, items: Sequence[Any]) -> Any:
        return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)

    def quoted(dumper: Any, text: str) -> Any:
        style = None if _plain(text) is text else "'"
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    for kind, represent in ((list, listed), (tuple, listed), (str, quoted)):
        Dumper.add_representer(kind, represent)
    return str(yaml.dump(dict(values), Dumper=Dumper, sort_keys=False, default_flow_style=False, width=110))
