"""Reads YAML settings. An error about a mistake names the file, the line, the key and the nearest known key."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from budgetalloc.errors import BudgetallocError, InputError, nearest, shown

__all__ = ["Source", "read_text", "text_of", "written"]

# The core schema of YAML 1.2, in which 010 is ten and 1:30 a text. PyYAML follows YAML 1.1.
_PLAIN: dict[str, Callable[[str], Any]] = {
    r"~|null|Null|NULL|": lambda text: None,
    r"true|True|TRUE|false|False|FALSE": lambda text: text.lower() == "true",
    r"[-+]?[0-9]+": int,
    r"0o[0-7]{1,999}|0x[0-9a-fA-F]{1,999}": lambda text: int(text, 0),
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?": float,
    r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)": lambda text: float(text.replace(".", "")),
}


@dataclass(frozen=True)
class Source:
    """A settings file: its name, its values, and the line of every key by its path, such as `policy.seed`."""

    file: str
    values: Mapping[str, Any]
    lines: Mapping[str, int]

    def error(self, text: object, *paths: str, kind: type[Exception] = InputError) -> Exception:
        """An error about the first path that the file has, or about the whole file."""
        path = next((path for path in paths if path in self.lines), None)
        line = "" if path is None else f", line {self.lines[path]}: {path}"
        return kind(f"{self.file}{line}: {text}")

    @contextmanager
    def named(self, *sections: str) -> Iterator[None]:
        """Adds file, line and key to an error such as "group=-1: ..." that is raised inside about these sections."""
        try:
            yield
        except BudgetallocError as error:
            argument = str(error).partition("=")[0]
            paths = (*(f"{section}.{argument}" for section in sections), *sections, argument)
            raise self.error(error, *paths, kind=type(error)) from error

    def section(self, name: str, known: Collection[str] | None = None) -> dict[str, Any]:
        """The settings of a section ("": the sections themselves); raises `InputError` for an unknown key."""
        settings = self.values.get(name) if name else self.values
        settings = {} if settings is None else settings
        if not isinstance(settings, Mapping):
            raise self.error(f"{shown(settings)}: use settings of the form `name: value`.", name)
        for key in settings:
            if known is not None and key not in known:
                path = f"{name}.{key}" if name else key
                raise self.error(f"unknown key{nearest(key, known)} Known: {', '.join(known)}.", path)
        return dict(settings)


def text_of(path: Path, most: int, what: str) -> str:
    """The text of a file; raises `InputError` for another encoding than UTF-8 and for more than `most` characters."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(most + 1)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: this is not UTF-8 text: give {what}.") from error
    if len(text) > most:
        raise InputError(f"{path}: more than {most:,} characters: give {what}.")
    return text


def read_text(text: str, file: str) -> Source:
    """Parses a YAML file; raises `InputError` for anything but a mapping, a repeated key, a tag and an anchor."""
    import yaml  # deferred: few commands read a file

    lines: dict[str, int] = {}

    def wrong(mark: Any, problem: object) -> InputError:
        return InputError(f"{file}, line {mark.line + 1}: {problem}" if mark else f"{file}: {problem}")

    def read(node: Any, path: str) -> Any:
        if text.startswith(("&", "!"), node.start_mark.index):
            raise wrong(node.start_mark, "YAML anchors and tags (&name, !!type) are not supported. Write the value.")
        if node.id == "sequence":
            return [read(item, f"{path}[{at}]") for at, item in enumerate(node.value)]
        if node.id == "scalar":
            try:
                return node.value if node.style else _plain(node.value)
            except ValueError as error:  # an integer of more than 4,300 digits
                raise wrong(node.start_mark, f"not YAML: {error}") from error
        values: dict[str, Any] = {}
        for key, item in node.value:
            if key.id != "scalar" or (key.value == "<<" and not key.style):  # unquoted, it merges another mapping
                raise wrong(key.start_mark, "this key is not a plain word. Use `name: value`.")
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
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise wrong(getattr(error, "problem_mark", None), f"not YAML: {problem}") from error
    if not isinstance(values, dict | None):
        raise wrong(None, "use settings of the form `name: value`, such as `policy: adaptive`.")
    return Source(file, values or {}, lines)


def _plain(text: str) -> Any:
    """The value of an unquoted text."""
    return next((convert(text) for pattern, convert in _PLAIN.items() if re.fullmatch(pattern, text)), text)


def written(values: Mapping[str, Any]) -> str:
    """Writes mappings, lists and plain values as YAML that `read_text` reads back, such as `prior: [0.5, 0.5]`."""
    import yaml

    def listed(dumper: Any, items: Sequence[Any]) -> Any:
        return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)

    def quoted(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if _plain(text) is text else "'")

    dumper: Any = type("Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda self, data: True})
    for kind, represent in ((list, listed), (tuple, listed), (str, quoted)):
        dumper.add_representer(kind, represent)
    return str(yaml.dump(dict(values), Dumper=dumper, sort_keys=False, default_flow_style=False, width=110))
