"""Makes text from logs, file names and YAML keys safe to print: no escape codes, no characters that a console lacks."""

from typing import Any

from budgetalloc.errors import printable

__all__ = ["Plain"]


class Plain:
    """A text stream that writes `printable(text)`, with escapes for characters that its encoding lacks."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        self.stream.write(printable(text).encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
