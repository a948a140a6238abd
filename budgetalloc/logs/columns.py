"""Columns of a log as arrays: numbers as floats or integers, and other cells as codes of distinct
values, so that each is converted and hashed once."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.logs.records import LARGEST, arrow

TEXTS = ("string", "large_string")
_FLOATS = ("halffloat", "float", "double")
_SIGNED = tuple(f"int{bits}" for bits in (8, 16, 32, 64))
_PLAIN = (*TEXTS, *_SIGNED, *(f"u{kind}" for kind in _SIGNED), "bool")

Part = Any
"""A part of a column: an array of floats, integers or objects, a dictionary array of Arrow, or the
number of rows that lack the column."""


class _Numbers(dict[Any, int]):
    """Numbers distinct values in the order in which they come, None as -1."""

    def __init__(self, names: list[Any]) -> None:
        super().__init__({None: -1})
        self._names = names

    def __missing__(self, value: Any) -> int:
        self[value] = len(self._names)
        self._names.append(value)
        return self[value]


class Column:
    """A column while its parts are read. A text is held once."""

    def __init__(self) -> None:
        self._parts: list[Any] = []  # arrays, those of 32 bits with codes, or a number of rows
        self._names: list[Any] = []  # what the codes stand for
        self._codes: dict[str, _Numbers] = {}  # by the type of the values

    def add(self, part: Part) -> None:
        if not isinstance(part, (int, np.ndarray)):
            kind, values = str(part.type.value_type), part.dictionary
            texts = kind in TEXTS  # faster than `to_pylist`
            cells = values.to_numpy(zero_copy_only=False) if texts else values.to_pylist()
            codes = self._codes.setdefault(kind, _Numbers(self._names))
            place = np.array([*map(codes.__getitem__, cells), -1], dtype=np.int32)
            at_R = part.indices
            at_R = at_R.cast("int64").fill_null(-1) if part.null_count else at_R
            part = place[at_R.to_numpy()]
        self._parts.append(part)

    def array(self) -> Any:
        """The column as one array: of floats, of integers, categorical, or of objects. A row
        without the column is NaN."""
        parts = [x for x in self._parts if (x if isinstance(x, int) else len(x))] or self._parts[:1]
        known = [part for part in parts if not isinstance(part, int)]
        kinds = {part.dtype.name for part in known}
        if kinds == {"int32"}:
            names = pd.Index(objects(self._names), dtype=object)
            return pd.Categorical.from_codes(_filled(parts, -1, np.int32), names)
        if kinds == {"int64"} and len(known) == len(parts):
            return np.concatenate(known)
        if kinds <= {"int64", "float64"} and not any(map(_is_large, known)):
            return _filled(parts, np.nan, np.float64)
        cells = np.append(objects(self._names), np.nan)
        parts = [cells[x] if getattr(x, "dtype", None) == np.int32 else x for x in parts]
        return _filled(parts, np.nan, object)


def _filled(parts: list[Any], none: float, kind: Any) -> Any:
    """The parts as one array, with `none` in rows that lack the column."""
    whole = (np.full(x, none, kind) if isinstance(x, int) else x for x in parts)
    return np.concatenate([*whole], dtype=kind)


def part_of(values: Any) -> Part:
    """An array of Arrow as a part of a column. Integers and texts stay exact; a date or a UUID is
    its text, as in CSV."""
    kind = str(values.type)
    if kind.startswith("dictionary<"):
        plain = str(values.type.value_type) in _PLAIN
        return values if plain else part_of(values.dictionary_decode())
    if kind in _FLOATS:
        return values.cast("float64").to_numpy(zero_copy_only=False)
    if kind in _SIGNED and not values.null_count:
        return values.cast("int64").to_numpy()
    if kind in _PLAIN:
        return values.dictionary_encode()
    if kind.startswith("date"):
        return values.cast("string").dictionary_encode()
    cells = values.to_pylist()
    if kind == "extension<arrow.uuid>":
        texts = [None if cell is None else str(cell) for cell in cells]
        return arrow().array(texts, "string").dictionary_encode()
    if "extension<arrow.json>" in kind:
        cells = [_decoded(cell, values.type) for cell in cells]
    return objects(cells)


def _decoded(cell: Any, kind: Any) -> Any:
    """A cell in which the JSON text of `datasets`' type Json, at any depth, is the value itself."""
    if str(kind) == "extension<arrow.json>":
        return json.loads(cell) if isinstance(cell, str) else cell
    if isinstance(cell, list):
        return [_decoded(x, kind.value_type) for x in cell]
    if isinstance(cell, dict):
        return {name: _decoded(x, kind.field(name).type) for name, x in cell.items()}
    return cell


def objects(cells: Sequence[Any]) -> NDArray[np.object_]:
    """The cells as an array of objects, lists too."""
    return np.fromiter(cells, dtype=object, count=len(cells))


def part_of_cells(cells: Sequence[Any]) -> Part:
    """Cells of JSON as a part of a column. A missing key is NaN, and null is None."""
    kinds = set(map(type, cells))
    try:
        if kinds == {int}:
            return np.array(cells, dtype=np.int64)
        if str in kinds and all(type(x) is str or x != x for x in cells):
            texts = [x if type(x) is str else None for x in cells]
            return arrow().array(texts, "string").dictionary_encode()
    except (OverflowError, UnicodeEncodeError):  # large integers, and lone surrogates
        return objects(cells)
    if kinds <= {int, float} and all(type(x) is float or abs(x) <= LARGEST for x in cells):
        return np.array(cells, dtype=np.float64)
    return objects(cells)


def frame_of_columns(columns: Mapping[str, Any]) -> pd.DataFrame:
    """The frame of columns and of arrays, in their order. A column is freed as it is added."""
    arrays = {name: x.array() if isinstance(x, Column) else x for name, x in columns.items()}
    # pandas takes objects for texts otherwise, and refuses lone surrogates
    return pd.DataFrame({name: pd.Series(x, dtype=x.dtype) for name, x in arrays.items()})


def _is_large(part: Part) -> bool:
    return part.dtype.kind == "i" and bool((np.abs(part) > LARGEST).any())


def codes_of(values: Any) -> FloatArray:
    """A number for each cell, the same for equal cells."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        return np.asarray(pd.Categorical(values).codes, dtype=np.float64)
    return np.asarray(pd.factorize(objects([str(x) for x in values]))[0], dtype=np.float64)


def by_code(ids: pd.Series) -> pd.Series:
    """Ids as a categorical column. An int and a str differ."""
    if isinstance(ids.dtype, pd.CategoricalDtype):
        return ids
    codes, names = pd.factorize(ids)
    names = pd.Index(np.asarray(names, dtype=object), dtype=object)
    return pd.Series(pd.Categorical.from_codes(codes, names), ids.index)
