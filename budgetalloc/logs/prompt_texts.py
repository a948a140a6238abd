"""The texts of the prompts of a ledger, in a small file beside it: each prompt once, shortened."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from budgetalloc.beliefs.ids import Id
from budgetalloc.logs.chunk import FAULTS, as_id

LONGEST = 200  # characters of a text
_MOST = 1 << 28  # bytes of a file that is read


def prompt_text(prompt: Any) -> str:
    """A prompt as text; of chat messages, that of the last one.

    >>> prompt_text([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2 ="}])
    '2 + 2 ='
    """
    last = prompt[-1] if isinstance(prompt, list) and prompt else prompt
    text = last.get("content") if isinstance(last, dict) else last
    return text if isinstance(text, str) else json.dumps(text, ensure_ascii=False, default=str)


def beside(ledger: str | os.PathLike[str], ending: str = ".prompts") -> Path:
    """A file beside a ledger: that with the texts of its prompts, or one with another ending.

    >>> beside("run/ledger.jsonl").name
    'ledger.prompts'
    """
    path = Path(ledger)
    return path.with_name(path.name.removesuffix(".jsonl") + ending)


class TextsWriter:
    """Appends the text of each prompt at its first visit: some hundred bytes once, whatever the run's length.

    Args:
        ledger: The ledger's path. Texts that a killed run wrote are not written again.
    """

    def __init__(self, ledger: str | os.PathLike[str]) -> None:
        self.path = beside(ledger)
        self._known: set[Id] = set(read_texts(ledger))

    def add(self, ids_R: Iterable[Id], texts_of: Callable[[Sequence[Id]], Mapping[Id, str]]) -> None:
        """Adds those of these prompts that are new; `texts_of` is asked for no others."""
        new = [name for name in dict.fromkeys(ids_R) if name not in self._known]
        self._known.update(new)
        texts = texts_of(new) if new else {}
        lines = "".join(json.dumps({"id": name, "text": text[:LONGEST]}) + "\n" for name, text in texts.items())
        if lines:
            with self.path.open("ab") as file:  # a line torn by a kill is ended first
                file.write((("\n" if file.tell() else "") + lines).encode())


def read_texts(ledger: str | os.PathLike[str], ids: Iterable[Id] | None = None) -> dict[Id, str]:
    """The texts of a ledger's prompts, of all or of these; broken lines are left out, as is a missing file."""
    path, wanted, texts = beside(ledger), None if ids is None else set(ids), dict[Id, str]()
    if not path.is_file() or path.stat().st_size > _MOST:
        return texts
    for line in path.read_bytes().splitlines():
        try:
            record = json.loads(line)
            name, text = as_id(record["id"]), record["text"]
        except FAULTS:
            continue
        if isinstance(text, str) and (wanted is None or name in wanted):
            texts[name] = text
    return texts
