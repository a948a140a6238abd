"""The texts of a ledger's prompts, in a small file next to it: each prompt once, shortened."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from budgetalloc.beliefs.ids import Id
from budgetalloc.logs.records import FAULTS, as_id, parsed

LONGEST = 200  # characters of a text
_MOST = 1 << 28  # bytes of a file that is read


def prompt_text(prompt: Any) -> str:
    """A prompt as text. Of chat messages, the text of the last one.

    >>> prompt_text([{"role": "system", "content": "Be brief."},
    ...     {"role": "user", "content": "2 + 2 ="}])
    '2 + 2 ='
    """
    last = prompt[-1] if isinstance(prompt, list) and prompt else prompt
    text = last.get("content") if isinstance(last, dict) else last
    return text if isinstance(text, str) else json.dumps(text, ensure_ascii=False, default=str)


def path_next_to(ledger: str | os.PathLike[str], ending: str = ".prompts") -> Path:
    """The path of a file next to a ledger, by default the file with the texts of its prompts.

    >>> path_next_to("run/ledger.jsonl").name
    'ledger.prompts'
    """
    path = Path(ledger)
    return path.with_name(path.name.removesuffix(".jsonl") + ending)


def append_text(path: Path, text: str) -> None:
    """Appends whole lines, after the end of a line that was cut off when the process was killed."""
    with path.open("ab") as file:
        file.write((("\n" if file.tell() else "") + text).encode())


def read_records(path: Path) -> list[dict[str, Any]]:
    """The JSON records of a small file, without broken lines; none if there is no file, or a very
    large one."""
    if not path.is_file() or path.stat().st_size > _MOST:
        return []
    return parsed(path.read_bytes().splitlines())[0]


class TextsWriter:
    """Appends the text of each prompt at its first visit, also over several runs of a ledger."""

    def __init__(self, ledger: str | os.PathLike[str]) -> None:
        self.path = path_next_to(ledger)
        self._known: set[Id] = set(read_texts(ledger))

    def add(
        self, ids_R: Iterable[Id], texts_of: Callable[[Sequence[Id]], Mapping[Id, str]]
    ) -> None:
        """Adds the prompts that are new. `texts_of` is called with the new ones only."""
        new = [name for name in dict.fromkeys(ids_R) if name not in self._known]
        self._known.update(new)
        texts = texts_of(new) if new else {}
        records = ({"id": name, "text": text[:LONGEST]} for name, text in texts.items())
        if texts:
            append_text(self.path, "".join(json.dumps(record) + "\n" for record in records))


def read_texts(ledger: str | os.PathLike[str]) -> dict[Id, str]:
    """The texts of a ledger's prompts; empty if there is no file of texts."""
    texts: dict[Id, str] = {}
    for record in read_records(path_next_to(ledger)):
        try:
            name, text = as_id(record["id"]), record["text"]
        except FAULTS:
            continue
        if isinstance(text, str):
            texts[name] = text
    return texts
