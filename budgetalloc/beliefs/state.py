"""The state of what learns: attributes that are saved and restored, and a file of them, which is
written atomically and read without unpickling."""

import copy
import json
import math
import os
import re
import secrets
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, ClassVar, TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.ids import Id, Index, check_ids
from budgetalloc.budget import IntArray
from budgetalloc.errors import (
    InputError,
    StateError,
    check_array,
    check_flag,
    check_integer,
    check_number,
    check_type,
    short_repr,
)

_FORMAT = "budgetalloc state 2"
_T = TypeVar("_T")
# numpy parses headers as Python, and CPython below 3.13 may fail where threads parse (gh-106905)
_ONE_READER = threading.Lock()


class Stateful:
    """What has a state: the attributes that a subclass names in `saved`.

    They may be arrays, numbers, flags, texts, tuples and dicts of these, objects with a state of
    their own, and a `Table`, whose entries are put among those of the object. The entry of
    `_mean_D` is called "mean". A restored value has the type and the shape of the present one;
    integers are at least 0.

    >>> class Shares(Stateful):
    ...     saved = ("steps", "_mean_D")
    ...     def __init__(self):
    ...         self.steps, self._mean_D = 3, np.zeros(2)
    >>> shares = Shares()
    >>> shares.load_state_dict({"steps": 4, "mean": [0.25, 0.75]})
    >>> shares.state_dict()
    {'steps': 4, 'mean': array([0.25, 0.75])}
    """

    saved: ClassVar[Sequence[str]] = ()
    """The names of the attributes."""
    may_be_nan: ClassVar[Sequence[str]] = ()
    """Those whose numbers may be NaN."""

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, without settings. `load_state_dict` restores it to the bit."""
        state: dict[str, Any] = {}
        for name in self.saved:
            value = getattr(self, name)
            state |= value.state_dict() if isinstance(value, Table) else {_key(name): _kept(value)}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replaces what was learned by a saved state.

        Raises:
            StateError: the state does not fit. Nothing has changed then.
        """
        check_state(state)
        restored = copy.copy(self)
        with reading(type(self).__name__.strip("_")):
            for name in self.saved:
                value, key = getattr(self, name), _key(name)
                entry = state if isinstance(value, Table) else state[key]
                vars(restored)[name] = _like(value, entry, key, name in self.may_be_nan)
            restored.check_restored()
        vars(self).update(vars(restored))

    def check_restored(self) -> None:
        """Raises `InputError` if restored values contradict each other, and brings up to date what
        follows from them. Called before anything is replaced."""


class Table(Stateful):
    """Numbers of each prompt: columns with a row for each id, in the order in which the ids came.

    Args:
        columns: The number or the row of numbers that a new prompt has in each column. A column
            that starts as NaN may keep it.
        lowest: The lowest number of a column, 0 if it has no entry.

    >>> table = Table({"visits": 0, "mean": np.nan})
    >>> rows = table.add(["a", "b"])
    >>> table["visits"][rows] += 1
    >>> table.find(["b", "new"]), table.state_dict()
    (array([ 1, -1]), {'ids': ['a', 'b'], 'visits': array([1, 1]), 'mean': array([nan, nan])})
    """

    def __init__(
        self, columns: Mapping[str, ArrayLike], lowest: Mapping[str, float] | None = None
    ) -> None:
        self.index = Index()
        self._new = {name: np.asarray(value) for name, value in columns.items()}
        self._lowest = dict(lowest or {})
        self._columns = {
            name: np.zeros((0, *new.shape), new.dtype) for name, new in self._new.items()
        }

    def __len__(self) -> int:
        return len(self.index.ids)

    def __getitem__(self, column: str) -> NDArray[Any]:
        return self._columns[column][: len(self.index.ids)]

    @property
    def ids(self) -> list[Id]:
        """The prompts, in the order of their rows."""
        return self.index.ids

    def find(self, ids: Any) -> IntArray:
        """The row of each id, -1 where it has none; ids may repeat."""
        return self.index.find(ids)

    def add(self, ids_V: Sequence[Id]) -> IntArray:
        """The rows of these distinct ids; new ids are added at the end."""
        at_V = self.index.add(ids_V)
        for name, column in self._columns.items():
            rows = len(self.index.ids)
            if rows > len(column):  # doubling the length keeps the total cost linear
                more = max(rows - len(column), len(column))
                empty = np.repeat(self._new[name][None], more, axis=0)
                self._columns[name] = np.concatenate([column, empty])
        return at_V

    def state_dict(self) -> dict[str, Any]:
        return {"ids": list(self.ids)} | {name: self[name].copy() for name in self._columns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with reading("prompts"):
            ids = check_ids(state["ids"], "ids")
            if len(set(ids)) < len(ids):
                raise InputError(f"{len(ids)} ids, of which {len(set(ids))} are distinct")
            columns = {}
            for name, new in self._new.items():
                like = np.broadcast_to(new, (len(ids), *new.shape))
                columns[name] = _like(like, state[name], name, bool(np.isnan(new).any()))
                if (columns[name] < self._lowest.get(name, 0)).any():
                    raise InputError(f"{name}={columns[name].min():g} is too small", argument=name)
        self.index, self._columns = Index(ids), columns


def _key(name: str) -> str:
    """The key of an attribute in a state: its name without the suffix of its shape."""
    return re.sub(r"^_|_[A-Z0-9]+$", "", name)


def _kept(value: Any) -> Any:
    """A copy of a value for a state."""
    if isinstance(value, Stateful):
        return value.state_dict()
    if isinstance(value, dict):
        return {key: _kept(inside) for key, inside in value.items()}
    return [_kept(inside) for inside in value] if isinstance(value, tuple) else copy.copy(value)


def _like(value: Any, entry: Any, key: str, nan: bool) -> Any:
    """An entry of a state as a value of the same type and shape as the present one."""
    if isinstance(value, Stateful):
        return loaded(value, entry)
    if isinstance(value, dict):
        return {name: _like(inside, entry[name], name, nan) for name, inside in value.items()}
    if isinstance(value, tuple):
        return tuple(_like(x, y, key, nan) for x, y in zip(value, entry, strict=True))
    if isinstance(value, bool):
        return check_flag(key, entry)
    if isinstance(value, int):
        return check_integer(key, entry, 0)
    if isinstance(value, float):
        return math.nan if nan and entry != entry else check_number(key, entry, -np.inf, np.inf)
    if not isinstance(value, np.ndarray):  # None or a text
        check_type(key, entry, (str, type(None)), "a text or None")
        return entry
    array = check_array(key, entry, "numbers")
    array = array.reshape(value.shape) if not array.size and not value.size else array
    known = array[~np.isnan(array)] if nan else array
    if array.shape != value.shape or not np.isfinite(known).all():
        raise InputError(key, f"does not hold finite numbers of shape {value.shape}.")
    most = {"b": 1, "i": 2**53 - 1}.get(value.dtype.kind)
    if most is not None and ((known < 0) | (known > most) | (known % 1 != 0)).any():
        raise InputError(key, f"does not hold whole numbers from 0 to {most}.")
    return array.astype(value.dtype)


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
        state: Arrays and anything JSON can hold, also in dicts.
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
    >>> state["ids"], state["step"], about
    (['a'], 1, {'dataset': 'gsm8k'})
    """
    check_state(state)
    target = _path(path)
    arrays: dict[str, NDArray[Any]] = {}
    paths: list[list[str]] = []

    def without_arrays(part: dict[str, Any], keys: tuple[str, ...] = ()) -> dict[str, Any]:
        rest = {}
        for key, value in part.items():
            if isinstance(value, dict):
                rest[key] = without_arrays(value, (*keys, key))
            elif isinstance(value, np.ndarray):
                name = "/".join((*keys, key))
                if value.dtype.hasobject or name in arrays or name == "meta":
                    raise TypeError(f"the array {name} cannot be saved")
                arrays[name] = value
                paths.append([*keys, key])
            else:
                rest[key] = value
        return rest

    try:
        rest = without_arrays(state)
        meta = json.dumps({"format": _FORMAT, "state": rest, "about": about or {}, "arrays": paths})
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
        if not isinstance(error, OSError) or error.errno is None:
            raise
        raise OSError(
            error.errno,
            f"{os.strerror(error.errno)}: a policy's state could not be written; the previous "
            "content of the file is unchanged. Free some space and resume from the last "
            "checkpoint, or give this user write permission for the folder",
            str(path),
        ) from error


def check_state(state: Any) -> None:
    """Raises `StateError` unless this is a dict with strings as keys."""
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        what = "give what `state_dict()` returned or `load_state` read."
        raise StateError(f"state={short_repr(state)}: {what}")


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
            f"({type(error).__name__}: {error}). Resume from another checkpoint."
        ) from error


def loaded(part: _T, state: Any) -> _T:
    """A copy of what has a state, with this state, and all else shared. Loading replaces attributes
    and changes none of their values, so the object itself is as it was.

    >>> empty = Table({"visits": 0})
    >>> loaded(empty, {"ids": ["a"], "visits": [2]})["visits"], len(empty)
    (array([2]), 0)
    """
    made = copy.copy(part)
    made.load_state_dict(state)  # type: ignore[attr-defined]
    return made


def load_state(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads `(state, about)` from a file that `save_state` wrote.

    Nothing is unpickled.

    Raises:
        FileNotFoundError: there is no such file.
        StateError: the file is damaged, foreign or not readable. The text says which, and what to
            do.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_state(f"{folder}/rates.npz", {"rate": np.array([0.25, 0.5])})
    ...     load_state(f"{folder}/rates.npz")
    ({'rate': array([0.25, 0.5 ])}, {})
    """
    target = _path(path)
    if target.exists() and not target.is_file():  # reading a pipe or a device may wait for ever
        what = "is not a regular file: give the path of a file that `save_state` wrote."
        raise StateError(f"{path} {what}")
    try:
        with target.open("rb") as file, _ONE_READER:
            arrays = _arrays(file)
        meta = json.loads(arrays.pop("meta").tobytes())
        if meta["format"] != _FORMAT:
            raise StateError(
                f"{path} has format {short_repr(meta['format'])}, expected {_FORMAT!r}: another "
                "version of budgetalloc wrote it, or another program."
            )
        # a damaged archive may list fewer than it holds
        names = ["/".join(keys) for keys in meta["arrays"]]
        if sorted(arrays) != sorted(names):
            raise ValueError(f"it holds the arrays {sorted(arrays)}, but {names} were saved")
        for name, (*folders, key) in zip(names, meta["arrays"], strict=True):
            part = meta["state"]
            for folder in folders:
                part = part[folder]
            part[key] = arrays[name]
        return meta["state"], dict(meta["about"])
    except (FileNotFoundError, StateError):
        raise
    except OSError as error:
        raise StateError(
            f"{path} cannot be read ({error.strerror or error}). The file itself may be intact: "
            "check its permissions and the disk."
        ) from error
    # zipfile, numpy and json raise many kinds of errors on a damaged file
    except Exception as error:
        raise StateError(
            f"{path} is damaged or was not written by budgetalloc ({type(error).__name__}: "
            f"{error}). Resume from another checkpoint, or delete the file to start with cold "
            "beliefs."
        ) from error


def _path(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path)
    except TypeError as error:
        raise StateError(f"path={short_repr(path)}: give the path of a file.") from error


def _arrays(file: IO[bytes]) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file, whose checksums are compared."""
    arrays = {}
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            with archive.open(name) as content:
                arrays[name.removesuffix(".npy")] = npy.read_array(content, allow_pickle=False)
                if content.read():  # at the end, zipfile compares the checksum
                    raise ValueError(f"{name} is longer than its header says")
    return arrays
