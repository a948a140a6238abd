"""Makes text from logs, file names and YAML keys safe to print: no escape codes, no characters that a console lacks."""

import unicodedata
from typing import Any

__all__ = ["Plain", "shown"]


def shown(text: str) -> str:
    r"""The text with control characters as escapes, except for tabs and line ends.

    Characters that change the direction of writing count as control characters.

    >>> print(shown("a\x1b[31m\u202eb"))
    a\x1b[31m\u202eb
    """
    if text.isprintable():
        return text
    return "".join(x.encode("unicode_escape").decode() if _controls(x) else x for x in text)


def _controls(character: str) -> bool:
    directions = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    kind, direction = unicodedata.category(character), unicodedata.bidirectional(character)
    return character not in "\t\n" and (kind in ("Cc", "Zl", "Zp") or direction in directions)


class Plain:
    """A text stream that writes `shown(text)`, with escapes for characters that its encoding lacks."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        self.stream.write(shown(text).encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
