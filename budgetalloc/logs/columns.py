"""Columns of a log as arrays: numbers as floats or integers, and other cells as codes of distinct
values, so that each is converted and hashed once."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import import_optional
from budgetalloc.logs.records import LARGEST

Part = Any
"""A part of a column: an array of floats, integers or objects, a dictionary array of Arrow, or the
number of rows that lack the column."""


def part_of(values: Any) -> Part:
    """An array of Arrow as a part of a column. Integers and texts stay exact."""
    pa = import_optional("pyarrow", "Reading logs", "logs")
    kind = values.type
    if pa.types.is_dictionary(kind):
        return values if _is_plain(pa, kind.value_type) else part_of(values.dictionary_decode())
    if pa.types.is_floating(kind):
        return values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if pa.types.is_signed_integer(kind) and not values.null_count:
        return values.cast(pa.int64()).to_numpy()
    if _is_plain(pa, kind):
        return values.dictionary_encode()
    cells = values.to_pylist()
    if "extension<arrow.json>" in str(kind):
        cells = [_decoded(cell, kind) for cell in cells]
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


def _is_plain(pa: Any, kind: Any) -> bool:
    test = pa.types
    plain = (test.is_string, test.is_large_string, test.is_integer, test.is_boolean)
    return any(is_kind(kind) for is_kind in plain)


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
            pa = import_optional("pyarrow", "Reading logs", "logs")
            texts = [x if type(x) is str else None for x in cells]
            return pa.array(texts, pa.string()).dictionary_encode()
    except (OverflowError, UnicodeEncodeError):  # large integers, and lone surrogates
        return objects(cells)
    if kinds <= {int, float} and all(type(x) is float or abs(x) <= LARGEST for x in cells):
        return np.array(cells, dtype=np.float64)
    return objects(cells)


def joined(parts: list[Part]) -> Any:
    """The parts of a column as one array: of floats, of integers, categorical, or of objects. A
    row without the column is NaN."""
    parts = [x for x in parts if (x if isinstance(x, int) else len(x))] or parts[:1]
    if len(parts) == 1 and isinstance(parts[0], np.ndarray):
        return parts[0]
    known = [part for part in parts if not isinstance(part, int)]
    kinds = {part.dtype.kind if isinstance(part, np.ndarray) else "codes" for part in known}
    if kinds == {"codes"}:
        return _categorical(parts)
    if kinds == {"i"} and len(known) == len(parts):
        return np.concatenate(known)
    if kinds <= {"i", "f"} and not any(map(_is_large, known)):
        return np.concatenate([np.full(x, np.nan) if isinstance(x, int) else x for x in parts])
    return np.concatenate([_as_objects(part) for part in parts])


def _is_large(part: Part) -> bool:
    return part.dtype.kind == "i" and bool((np.abs(part) > LARGEST).any())


def _as_objects(part: Part) -> NDArray[np.object_]:
    if isinstance(part, int):
        return np.full(part, np.nan, dtype=object)
    if isinstance(part, np.ndarray):
        return objects(part.tolist())
    whole = _categorical([part])
    cells = np.append(objects(whole.categories.tolist()), np.nan)
    return np.asarray(cells[whole.codes])


def codes_of(values: Any) -> FloatArray:
    """A number for each cell, the same for equal cells."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        return np.asarray(pd.Categorical(values).codes, dtype=np.float64)
    return np.asarray(pd.factorize(objects([str(x) for x in values]))[0], dtype=np.float64)


def _categorical(parts: list[Part]) -> pd.Categorical:
    pa = import_optional("pyarrow", "Reading logs", "logs")
    kind = next(part.type for part in parts if not isinstance(part, int))
    chunks = [pa.nulls(x, kind) if isinstance(x, int) else x.cast(kind) for x in parts]
    whole = pa.chunked_array(chunks).unify_dictionaries()
    codes = np.concatenate(
        [x.indices.fill_null(-1).to_numpy(zero_copy_only=False) for x in whole.chunks]
    )
    # a file's own dictionary may hold null, or a value twice
    place, cells = pd.factorize(objects(whole.chunk(0).dictionary.to_pylist()))
    if len(cells) < len(place) or (place[:1] < 0).any():
        codes = np.append(place, -1)[codes]
    return pd.Categorical.from_codes(codes, pd.Index(cells, dtype=object))


def by_code(ids: pd.Series) -> pd.Series:
    """Ids as a categorical column. An int and a str differ."""
    if isinstance(ids.dtype, pd.CategoricalDtype):
        return ids
    codes, names = pd.factorize(ids)
    names = pd.Index(np.asarray(names, dtype=object), dtype=object)
    return pd.Series(pd.Categorical.from_codes(codes, names), ids.index)
