"""Prompt ids of a dataset's rows, and the dataset as a pool of distinct prompts."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id, Pool, check_ids, factorize, text_id
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, UnsupportedError, check_type, nearest_name, short_repr
from budgetalloc.logs.prompt_texts import prompt_text

_FINGERPRINT_ROWS = 1000
DEFAULT_COLUMN = "prompt_id"
"""The column of prompt ids, if the dataset has it and the user names no other."""
_MORE_COLUMNS = ("image", "images", "environment")  # parts of a prompt besides its text
_CHUNK = 1000  # rows that are read at once


def prompt_hash(prompt: Any) -> str:
    """A stable id of a prompt, plain text or chat messages: equal prompts have equal ids in every
    process.

    >>> prompt_hash("2 + 2 ="), prompt_hash([{"role": "user", "content": "2 + 2 ="}])
    ('4d4db5bbabf3998a', '5423f57e2469bbd3')
    """
    try:
        return text_id(prompt)
    except InputError as error:
        raise UnsupportedError(
            f"A prompt has no text from which budgetalloc could make an id ({error.__cause__}). "
            "Add a column 'prompt_id' of ints or strings to the dataset, or pass prompt_id= with "
            "the name of such a column."
        ) from error


def turns(ids_R: list[Id], seed: list[int]) -> list[int]:
    """The turn of each rollout among the rows of its prompt: the rows take turns from a random
    start.

    A random start needs no state, and favours no row in the long run.

    >>> one, two, _, three = turns(["a", "a", "b", "a"], [0])
    >>> two - one, three - one
    (1, 2)
    """
    ids_P, group_R = factorize(ids_R)
    turn_P = np.random.default_rng(seed).integers(2**32, size=len(ids_P)).tolist()
    turn_R = []
    for at in group_R.tolist():
        turn_R.append(turn_P[at])
        turn_P[at] += 1
    return turn_R


def check_columns(columns: Sequence[str], column: str | None, text: str = "prompt") -> None:
    """Raises unless these columns identify prompts.

    Args:
        columns: The dataset's columns; empty if they are unknown.
        column: The column that the user named for ids, or None.
        text: The column that holds the prompt.

    Raises:
        InputError: the dataset has no column of this name. UnsupportedError: no column identifies
            prompts.

    >>> check_columns(["prompt", "answer"], None)
    """
    check_type("prompt_id", column, (str, type(None)), "the name of a dataset column, or None")
    if column is not None and columns and column not in columns:
        raise _no_column("prompt_id", column, columns)
    column = column or DEFAULT_COLUMN
    if not columns or column in columns:
        return
    if text not in columns:
        raise UnsupportedError(
            f"The train dataset has the columns {list(columns)}, and no {text!r}, from which the "
            f"trainer reads prompts. Rename that column, as in "
            f"dataset.rename_column({columns[0]!r}, {text!r})."
        )
    if {"image", "images"} & set(columns):
        raise UnsupportedError(
            "The train dataset has images, so the text alone does not identify a prompt. Add a "
            f"column {column!r} of "
            "ints or strings, or pass prompt_id= with the name of such a column."
        )


def _no_column(argument: str, column: str, columns: Sequence[str]) -> InputError:
    """The error about an argument that names a missing column."""
    return InputError(
        argument,
        f"the train dataset has no such column{nearest_name(column, columns)} It has "
        f"{list(columns)}.",
        column,
    )


def _columns_of_rows(dataset: Any) -> list[str]:
    """The columns of a dataset's rows, of which its format may hide some, and a transform may make
    others. Empty if they are not known."""
    names = list(getattr(dataset, "column_names", None) or [])
    shown_as = getattr(dataset, "format", None)
    if not isinstance(shown_as, Mapping) or not names or not len(dataset):
        return names
    if shown_as["type"] == "custom":  # `with_transform`
        return list(dataset[0])
    return names if shown_as["output_all_columns"] else list(shown_as["columns"])


class Prompts:
    """Prompt ids of a train dataset, from a column or by hashing the prompt.

    Args:
        dataset: The trainer's train dataset.
        column: The column that holds ids. None: "prompt_id" if the dataset has it, else hashes of
            the prompts.
        text: The column that holds the prompt, as text or chat messages.
        required: Whether to raise if prompts cannot be identified; otherwise `unnamed` is set.

    Raises:
        InputError: the dataset has no column of this name. UnsupportedError: no column holds ids,
            and the rows have images or no prompt text to hash.
    """

    def __init__(
        self,
        dataset: Any,
        column: str | None = None,
        text: str = "prompt",
        *,
        required: bool = True,
    ) -> None:
        self.dataset, self.text, self._required = dataset, text, required
        self._hashes: dict[Id, int] = {}
        columns = self.columns = _columns_of_rows(dataset)
        self.unnamed: UnsupportedError | None = None
        """Why prompts cannot be identified, if ids are not required."""
        try:
            check_columns(columns, column, text)
        except UnsupportedError as error:
            if required:
                raise
            self.unnamed = error
        self._given = column is not None
        self.name = column or DEFAULT_COLUMN
        self.column = self.name if self.name in columns else None
        self.indexable = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        form = getattr(dataset, "format", None)
        made = isinstance(form, Mapping) and form["type"] == "custom"  # `with_transform`
        self._by_row = made or getattr(dataset, "column_names", None) is None

    def follow(self, dataset: Any) -> None:
        """Takes another dataset, with the same arguments. Raises as for the first one."""
        column = self.name if self._given else None
        other = Prompts(dataset, column, self.text, required=self._required)
        vars(self).clear()
        vars(self).update(vars(other))

    def ids(self, rows: Sequence[Mapping[str, Any]]) -> list[Id]:
        """The prompt id of each row of a batch."""
        if self.name in rows[0]:  # a streamed dataset may not know its columns before its first row
            return check_ids([row[self.name] for row in rows], self.name)
        if self._given and self.column is None:  # a streamed dataset
            raise _no_column("prompt_id", self.name, list(rows[0]))
        if self.column is not None:
            raise InputError(
                f"The batch lost the column {self.column!r}. Set "
                "GRPOConfig(remove_unused_columns=False)."
            )
        return [prompt_hash(row[self.text]) for row in rows]

    def unnamed_row(self) -> UnsupportedError | None:
        """The error if the first row's prompt cannot be hashed, for instance because a message has
        an image."""
        try:
            if self.indexable and len(self.dataset):
                self.ids(self.rows([0]))
        except UnsupportedError as error:
            return error
        return None

    @property
    def pool(self) -> Pool:
        """The distinct prompts of the dataset, in its order."""
        return self._listed[0]

    def domains(self, column: str) -> dict[Id, Hashable]:
        """The domain of each distinct prompt, from this column of the dataset.

        Raises:
            UnsupportedError: the rows cannot be indexed. InputError: there is no such column, a
                value cannot name a domain, or a prompt has rows in two domains.
        """
        if not self.indexable:
            raise UnsupportedError(
                f"domain= is for the rows of a dataset, and a {type(self.dataset).__name__} does "
                "not list its rows. Pass a datasets.Dataset."
            )
        if column not in self.readable:
            raise _no_column("domain", column, self.readable)
        domains = list(self._values(column))
        for at, domain in enumerate(domains):
            if not isinstance(domain, (str, int, type(None))):
                raise InputError(
                    f"{column}={short_repr(domain)} in row {at} cannot name a domain: use a str or "
                    "an int."
                )
        for name, rows in self.rows_of_one.items():
            for row in rows:
                if domains[row] != domains[rows[0]]:
                    raise InputError(
                        f"The prompt {name!r} has two domains: {column!r} is {domains[rows[0]]!r} "
                        f"in row {rows[0]} and "
                        f"{domains[row]!r} in row {row}. Give all rows of a prompt one domain."
                    )
        return {
            name: domains[row]
            for name, row in zip(self.pool, self.first_rows_P.tolist(), strict=True)
        }

    @property
    def readable(self) -> Sequence[str]:
        """The columns that can be read: those that are stored, or that a transform makes."""
        return self.columns if self._by_row else getattr(self.dataset, "column_names", None) or []

    def first_values(self, column: str) -> list[Any]:
        """A column in the first row of each prompt of the pool, shape (P,)."""
        return self._values_at(column, self.first_rows_P.tolist())

    def _values_at(self, column: str, rows: Sequence[int]) -> list[Any]:
        if self._by_row:
            return [row[column] for row in self.rows(rows)]
        return list(self.dataset.select_columns([column]).select(rows)[column])

    def _values(self, column: str) -> Iterator[Any]:
        """The column's value in each row, read in chunks to bound memory."""
        total = len(self.dataset)
        chunks = (range(at, min(at + _CHUNK, total)) for at in range(0, total, _CHUNK))
        if self._by_row:
            return (row[column] for chunk in chunks for row in self.rows(chunk))
        stored = self.dataset[column]
        return (x for chunk in chunks for x in stored[chunk.start : chunk.stop])

    @property
    def first_rows_P(self) -> IntArray:
        """The index of the first row of each prompt of `pool`."""
        return self._listed[1]

    @property
    def rows_of_one(self) -> dict[Id, list[int]]:
        """The prompts with several rows, such as one for each accepted answer, and the indices of
        the rows."""
        return self._listed[2]

    @cached_property
    def _listed(self) -> tuple[Pool, IntArray, dict[Id, list[int]]]:
        values = self._values(self.column or self.text)
        ids_P, row_R = factorize(
            check_ids(values, self.name) if self.column else [prompt_hash(x) for x in values]
        )
        first_P = np.unique(row_R, return_index=True)[1]
        several: dict[Id, list[int]] = {}
        for at in np.flatnonzero(np.bincount(row_R)[row_R] > 1).tolist():
            several.setdefault(ids_P[row_R[at]], []).append(at)
        return Pool(ids_P), first_P, several

    def check(self) -> None:
        """Raises `InputError`, which shows both prompts, if rows with the same id have different
        prompts.

        Datasets whose ids are hashes or whose rows cannot be indexed are not checked.
        """
        columns = [name for name in (self.text, *_MORE_COLUMNS) if name in self.readable]
        if self.column is None or not self.indexable or not columns:
            return
        if not self._by_row:  # does not decode images
            content = self.dataset.select_columns(columns).with_format("arrow")
        pairs = [(index, rows[0]) for rows in self.rows_of_one.values() for index in rows[1:]]
        for start in range(0, len(pairs), _CHUNK):
            some = pairs[start : start + _CHUNK]
            wanted = list(dict.fromkeys(index for pair in some for index in pair))
            rows = self.rows(wanted) if self._by_row else content.select(wanted)[:].to_pylist()
            read = dict(zip(wanted, rows, strict=True))
            for index, first in some:
                if read[index] != read[first]:
                    column = next(
                        name for name in columns if read[index][name] != read[first][name]
                    )
                    one, other = read[first][column], read[index][column]
                    raise InputError(
                        f"{self.column}={self.rows([first])[0][self.column]!r} names two prompts "
                        f"of the train dataset: {column!r} is {_shown(one, other)} in row "
                        f"{first} and {_shown(other, one)} in row {index}. Rows with the same "
                        f"{self.column!r} must have the same prompt. If the column "
                        f"{self.column!r} numbers something else, such as templates, rename it, or "
                        "pass prompt_id= with a column that names prompts: without such a column "
                        "each prompt is named by its text."
                    )

    def shared_ids_warning(self) -> str | None:
        """The message about prompts with several rows; None if there are none."""
        several = self.rows_of_one
        if not several:
            return None
        total, merged = len(self.dataset), sum(map(len, several.values()))
        return (
            f"{len(several)} prompts of the train dataset have several rows, {merged} of its "
            f"{total} rows: the rows of a prompt (same {self.column or self.text!r}) share one "
            "belief, and its rollouts are generated from them in turn."
        )

    def rows(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Rows of the dataset, as the trainer's own loader would return them."""
        if hasattr(self.dataset, "__getitems__"):
            return list(self.dataset.__getitems__(list(indices)))
        return [self.dataset[index] for index in indices]

    def rows_in_turn(self, turns_R: Sequence[tuple[Id, int]]) -> list[dict[str, Any]]:
        """A row of the dataset for each rollout, by its prompt and its turn among the prompt's
        rows, from `turns`; rollouts of one row share the object."""
        places, row_R = factorize(self.places_in_turn(turns_R))
        rows = self.rows([int(place) for place in places])
        return [rows[at] for at in row_R.tolist()]

    def places_in_turn(self, turns_R: Sequence[tuple[Id, int]]) -> list[int]:
        """The index of the dataset row of each rollout; the argument is as in `rows_in_turn`."""
        pool, first_P, several = self._listed
        first_R = first_P[pool.find([name for name, _ in turns_R])].tolist()
        return [
            several[name][turn % len(several[name])] if name in several else first
            for (name, turn), first in zip(turns_R, first_R, strict=True)
        ]

    def texts(self, ids_P: Sequence[Id]) -> dict[Id, str]:
        """The text of these prompts by id; empty if `pool` was not read, or the rows have no
        text."""
        if "_listed" not in self.__dict__:
            return {}
        return {name: prompt_text(value) for name, value in self._prompts_of(ids_P)}

    def hashes(self, ids_P: Sequence[Id]) -> dict[Id, int]:
        """A hash of the text of each of these prompts that the dataset has; empty if prompts are
        named by their texts, or have none."""
        if self.column is None or not self.indexable:
            return {}
        new = [name for name in ids_P if name not in self._hashes]
        with suppress(UnsupportedError):  # a message with an image has no hash
            for name, value in self._prompts_of(new):
                self._hashes[name] = int(prompt_hash(value), 16) >> 1  # a signed integer of 64 bits
        return {name: self._hashes[name] for name in ids_P if name in self._hashes}

    def _prompts_of(self, ids_P: Sequence[Id]) -> list[tuple[Id, Any]]:
        """These prompts that the dataset has, and their texts or messages."""
        at_P = self.pool.find(ids_P)
        rows_K = self.first_rows_P[at_P[at_P >= 0]].tolist()
        if not rows_K or self.text not in self.readable:
            return []
        values = self._values_at(self.text, rows_K)
        return list(zip(compress(ids_P, (at_P >= 0).tolist()), values, strict=True))

    @cached_property
    def fingerprint(self) -> str | None:
        """A fingerprint of the dataset, from its number of rows and up to 1,000 ids; None if rows
        cannot be indexed."""
        if not self.indexable:
            return None
        total = len(self.dataset)
        some = np.unique(
            np.linspace(0, total - 1, min(total, _FINGERPRINT_ROWS)).astype(int)
        ).tolist()
        return f"{total}-{prompt_hash(self.ids(self.rows(some)))}"


def _shown(value: Any, other: Any, width: int = 80) -> str:
    """The part of a value's `repr` where it starts to differ from another's.

    >>> _shown("a" * 200 + "b" * 200, "a" * 200 + "c" * 200)
    '...aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb...'
    """
    text, against = repr(value), repr(other)
    if len(text) <= 2 * width:
        return text
    pairs = enumerate(zip(text, against, strict=False))
    same = next((at for at, (x, y) in pairs if x != y), min(len(text), len(against)))
    start = max(0, same - width // 4)
    return "..." * (start > 0) + text[start : start + width] + "..." * (start + width < len(text))
