"""Which prompt a row belongs to, and the dataset as a pool of distinct prompts."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id, check_ids, text_id
from budgetalloc.errors import InputError, UnsupportedError

_FINGERPRINT_ROWS = 1000


def prompt_hash(prompt: Any) -> str:
    """A stable id of a prompt, plain text or chat messages: equal prompts have equal ids in every process.

    >>> prompt_hash("2 + 2 ="), prompt_hash([{"role": "user", "content": "2 + 2 ="}])
    ('4d4db5bbabf3998a', '5423f57e2469bbd3')
    """
    return text_id(prompt, _nameless)


def _nameless(part: object) -> None:
    """Raises: the `repr` of such an object may hold a memory address or leave out most of the content, so that one
    prompt would get several names, or two prompts the same name."""
    raise UnsupportedError(
        f"A prompt holds a {type(part).__name__}, which has no text to be named by. Add a column 'prompt_id' of ints "
        "or strings to the dataset, or pass prompt_id= with the name of such a column."
    )


class Prompts:
    """Names the prompts of a training dataset's rows by a column, or by a hash of the prompt where there is none.

    Args:
        dataset: The trainer's train dataset.
        column: The column that holds ids.

    Raises:
        UnsupportedError: rows have no prompt text to hash, or images in it or beside it, and no id column.
    """

    def __init__(self, dataset: Any, column: str) -> None:
        self.dataset = dataset
        columns = list(getattr(dataset, "column_names", None) or [])
        self.name = column
        self.column = column if column in columns else None
        self.indexable = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        if self.column is None and columns:
            if "prompt" not in columns:
                raise UnsupportedError(
                    f"The train dataset has the columns {columns}, neither {column!r} nor 'prompt': budgetalloc cannot "
                    f"tell its prompts apart. Add a column {column!r} of ints or strings."
                )
            if {"image", "images"} & set(columns):
                raise UnsupportedError(
                    f"The train dataset has images, so that its text alone does not name a prompt. Add a column "
                    f"{column!r} of ints or strings, or pass prompt_id= with the name of such a column."
                )
        self._ids: list[Id] | None = None

    def ids(self, rows: Sequence[Mapping[str, Any]]) -> list[Id]:
        """The prompt id of each row of a batch."""
        if self.name in rows[0]:  # a streamed dataset may not know its columns before
            return check_ids([row[self.name] for row in rows], self.name)
        if self.column is not None:
            raise InputError(f"The batch lost the column {self.column!r}. Set GRPOConfig(remove_unused_columns=False).")
        return [prompt_hash(row["prompt"]) for row in rows]

    def first_rows(self) -> dict[Id, int]:
        """Each distinct prompt of the dataset with the index of its first row, in the dataset's order."""
        if self._ids is None:
            values = self.dataset[self.column or "prompt"]
            self._ids = check_ids(list(values), self.name) if self.column else [prompt_hash(x) for x in values]
        first: dict[Id, int] = {}
        for index, name in enumerate(self._ids):
            first.setdefault(name, index)
        return first

    def rows(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Rows of the dataset, as the trainer's own loader would hand them over."""
        if hasattr(self.dataset, "__getitems__"):
            return list(self.dataset.__getitems__(list(indices)))
        return [self.dataset[index] for index in indices]

    @cached_property
    def fingerprint(self) -> str | None:
        """Names the dataset's prompts by their number and up to 1,000 of them; None where rows cannot be indexed."""
        if not self.indexable:
            return None
        total = len(self.dataset)
        some = np.unique(np.linspace(0, total - 1, min(total, _FINGERPRINT_ROWS)).astype(int)).tolist()
        return f"{total}-{prompt_hash(self.ids(self.rows(some)))}"
