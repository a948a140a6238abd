"""A policy's state in one file, written atomically and read without unpickling."""

import json
import os
import secrets
import zipfile
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import Id, check_ids
from budgetalloc.errors import InputError, StateError, check_array, shown

__all__ = [
    "arrays_in",
    "check_state",
    "distinct_ids",
    "lists_of",
    "load_state",
    "reading",
    "save_state",
    "unchanged_on_error",
]

_FORMAT = "budgetalloc state"


def save_state(
    path: str | os.PathLike[str], state: dict[str, Any], about: dict[str, Any] | None = None
) -> None:
    """Writes `policy.state_dict()` to an `.npz` file. After a crash, the file is either the old one
    or the new one.

    Several threads and processes may save to the same path. The file is then complete and written
    by one of them. A killed process can leave a temporary file, whose name begins with a dot and
    the name of the path.

    Args:
        path: The file. A missing folder is created.
        state: Arrays, and anything JSON can hold.
        about: Facts in JSON types that are saved with the state, such as the name of the dataset.

    Raises:
        StateError: the state is not a dict, or holds something that is neither an array of numbers
            nor JSON.
        OSError: the file cannot be written. Its previous content is unchanged.

    >>> import budgetalloc as ba, tempfile
    >>> policy = ba.adaptive()
    >>> policy.observe(["a", "a"], [1, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_state(f"{folder}/state.npz", policy.state_dict(), {"dataset": "gsm8k"})
    ...     state, about = load_state(f"{folder}/state.npz")
    >>> state["ids"], state["evidence"], about
    (['a'], array([[1., 1.]]), {'dataset': 'gsm8k'})
    """
    check_state(state)
    target = _path(path)
    arrays = {key: value for key, value in state.items() if isinstance(value, np.ndarray)}
    objects = [key for key, value in arrays.items() if value.dtype.hasobject]
    rest = {key: value for key, value in state.items() if key not in arrays}
    try:
        if objects or "meta" in arrays:
            raise TypeError(f"the arrays {objects or ['meta']} cannot be saved")
        meta = json.dumps(
            {"format": _FORMAT, "state": rest, "about": about or {}, "arrays": sorted(arrays)}
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise StateError(
            f"The state cannot be saved: use arrays of numbers and what JSON can hold ({error})."
        ) from error
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(8)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:  # only a new file, through no link
            packed = {"meta": np.frombuffer(meta.encode(), dtype=np.uint8), **arrays}
            np.savez(file, allow_pickle=False, **packed)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        if not isinstance(error, FileExistsError):
            with suppress(OSError):
                temporary.unlink()
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(
                error.errno,
                f"{os.strerror(error.errno)}: a policy's state could not be written; the previous "
                "content of the file "
                "is unchanged. Free some space and resume from the last checkpoint, or give this "
                "user write permission "
                "for the folder",
                str(path),
            ) from error
        raise


def check_state(state: Any) -> None:
    """Raises `StateError` unless this is a dict with strings as keys."""
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        raise StateError(
            f"state={shown(state)}: give what `state_dict()` returned or `load_state` read."
        )


def lists_of(arrays: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    """Arrays of numbers as lists that JSON can hold: NaN is None.

    >>> lists_of({"sums": np.array([[1.0, 2.0]]), "mean": np.array([np.nan])})
    {'sums': [[1.0, 2.0]], 'mean': [None]}
    """
    lists = {}
    for key, array in arrays.items():
        numbers = array.astype(object)
        numbers[np.isnan(array)] = None
        lists[key] = numbers.tolist()
    return lists


def distinct_ids(ids: Any) -> list[Id]:
    """The prompt ids of a saved state. Raises `InputError` if they are no ids, or one is
    repeated."""
    listed = check_ids(ids, "ids")
    if len(set(listed)) < len(listed):
        raise InputError(f"{len(listed)} ids, of which {len(set(listed))} are distinct")
    return listed


def arrays_in(
    state: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    whole: Container[str] = (),
    nan: Container[str] = (),
) -> dict[str, NDArray[np.float64]]:
    """Entries of a saved state as new arrays of floats. JSON lists are read too, with None as NaN.

    Args:
        state: The state.
        shapes: The shape of each wanted entry.
        whole: The entries that hold whole numbers.
        nan: The entries that may hold NaN.

    Raises:
        KeyError: an entry is missing. Use it within `reading`.
        InputError: an entry has another shape, or a number that is not finite or not whole.

    >>> arrays_in({"mean": [None, 0.5], "step": 3}, {"mean": (2,), "step": ()}, whole=["step"], nan=["mean"])
    {'mean': array([nan, 0.5]), 'step': array(3.)}
    """
    arrays = {}
    for key, shape in shapes.items():
        array = check_array(key, state[key], "numbers")
        if not array.size and 0 in shape:  # lists without entries have no shape
            array = array.reshape(shape)
        known = array[~np.isnan(array)] if key in nan else array
        sound = array.shape == shape and np.isfinite(known).all()
        if not sound or (key in whole and (abs(known) >= 2**53).any() | (known % 1 != 0).any()):
            kind = "whole" if key in whole else "finite"
            raise InputError(f"{key} does not hold {kind} numbers of shape {shape}")
        arrays[key] = array
    return arrays


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turns an error about an entry of a saved state into a `StateError`, which says what the state
    is of."""
    try:
        yield
    except StateError:
        raise
    # InputError is a ValueError
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StateError(
            f"The state of the {what} is damaged, or another policy saved it "
            f"({type(error).__name__}: {error}). Resume "
            "from another checkpoint."
        ) from error


@contextmanager
def unchanged_on_error(*parts: Any) -> Iterator[None]:
    """Restores these objects, with `state_dict` and `load_state_dict`, if the block raises an
    error."""
    before = [part.state_dict() for part in parts]
    try:
        yield
    except BaseException:
        for part, state in zip(parts, before, strict=True):
            part.load_state_dict(state)
        raise


def load_state(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads `(state, about)` from a file that `save_state` wrote.

    Nothing is unpickled. Compressed arrays are refused, therefore all arrays together are never
    larger than the file.

    Raises:
        FileNotFoundError: there is no such file.
        StateError: the file is damaged, foreign or not readable. The text says which, and what to
            do.
    """
    target = _path(path)
    try:
        if target.exists() and not target.is_file():  # reading a pipe or a device may wait for ever
            raise StateError(
                f"{path} is not a regular file: give the path of a file that `save_state` wrote."
            )
        with target.open("rb") as file:
            arrays = _arrays(file)
        meta = json.loads(arrays.pop("meta").tobytes())
        known = meta["format"] == _FORMAT
        # a damaged archive may list fewer than it holds
        if known and sorted(arrays) != meta["arrays"]:
            raise ValueError(
                f"it holds the arrays {sorted(arrays)}, but {meta['arrays']} were saved"
            )
        state, about = {**meta["state"], **arrays}, dict(meta["about"])
    except (FileNotFoundError, StateError):
        raise
    except OSError as error:
        raise StateError(
            f"{path} cannot be read ({error.strerror or error}). The file itself may be intact: "
            "check its permissions "
            "and the disk."
        ) from error
    # zipfile, numpy and json raise many kinds of errors on a damaged file
    except Exception as error:
        raise StateError(
            f"{path} is damaged or was not written by budgetalloc ({type(error).__name__}: "
            f"{error}). Resume from "
            "another checkpoint, or delete the file to start with cold beliefs."
        ) from error
    if not known:
        raise StateError(
            f"{path} has format {shown(meta['format'])}, expected {_FORMAT!r}: it is not a state "
            "of budgetalloc."
        )
    return state, about


def _path(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path)
    except TypeError as error:
        raise StateError(f"path={shown(path)}: give the path of a file.") from error


def _arrays(file: IO[bytes]) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file. Their sizes are checked against the file's size before any array
    is read."""
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if any(
            x.compress_type != zipfile.ZIP_STORED or x.file_size != x.compress_size for x in members
        ):
            raise ValueError("it is compressed, which save_state never does")
        if sum(x.file_size for x in members) > os.fstat(file.fileno()).st_size:
            raise ValueError("its listed arrays are larger than the file")
        names = [x.filename.removesuffix(".npy") for x in members]
        if len(set(names)) < len(names):
            raise ValueError(f"it holds an array twice: {names}")
        arrays = {}
        for name, member in zip(names, members, strict=True):
            with archive.open(member) as content:
                arrays[name] = npy.read_array(content, allow_pickle=False)
                if content.read():  # at the end, zipfile compares the checksum
                    raise ValueError(f"{name} is longer than its header says")
        return arrays
