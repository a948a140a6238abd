"""A policy's state in one file, which is written whole or not at all and read without unpickling."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.errors import StateError, shown

_FORMAT = "budgetalloc state"


def save_state(path: str | os.PathLike[str], state: dict[str, Any], about: dict[str, Any] | None = None) -> None:
    """Writes `policy.state_dict()` to an `.npz` file. A crash leaves the old file or the new one, never a part of one.

    Args:
        path: The file; its folder is made if it is missing.
        state: Arrays, and anything JSON can hold.
        about: Facts in JSON types that are saved with the state, such as the name of the dataset.

    >>> import budgetalloc as ba, tempfile
    >>> policy = ba.adaptive()
    >>> policy.observe(["a", "a"], [1, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_state(f"{folder}/state.npz", policy.state_dict(), {"dataset": "gsm8k"})
    ...     state, about = load_state(f"{folder}/state.npz")
    >>> state["ids"], state["evidence"], about
    (['a'], array([[1., 1.]]), {'dataset': 'gsm8k'})
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    arrays = {key: value for key, value in state.items() if isinstance(value, np.ndarray)}
    rest = {key: value for key, value in state.items() if key not in arrays}
    meta = json.dumps({"format": _FORMAT, "state": rest, "about": about or {}, "arrays": sorted(arrays)})
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            packed = {"meta": np.frombuffer(meta.encode(), dtype=np.uint8), **arrays}
            np.savez(file, allow_pickle=False, **packed)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(
                error.errno,
                f"{os.strerror(error.errno)}: a policy's state could not be written; the previous content of the file "
                "is unchanged. Free some space and resume from the last checkpoint",
                str(path),
            ) from error
        raise


def check_state(state: Any) -> None:
    """Raises `StateError` unless this is a dict with names as keys, as `state_dict` gives it."""
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        raise StateError(f"state={shown(state)}: give what `state_dict()` returned or `load_state` read.")


def load_state(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads what `save_state` wrote: `(state, about)`. Raises `StateError` for a damaged or foreign file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        meta = json.loads(arrays.pop("meta").tobytes())
        if sorted(arrays) != meta.get("arrays", sorted(arrays)):  # a damaged archive may list fewer than it holds
            raise ValueError(f"it holds the arrays {sorted(arrays)}, and {meta['arrays']} were saved")
        known = meta["format"] == _FORMAT
        state, about = {**meta["state"], **arrays}, meta["about"]
    except FileNotFoundError:
        raise
    except Exception as error:  # numpy, zipfile and json raise nearly anything on a damaged file
        raise StateError(
            f"{path} is damaged or was not written by budgetalloc ({type(error).__name__}: {error}). Resume from "
            "another checkpoint, or delete the file to start with cold beliefs."
        ) from error
    if not known:
        raise StateError(
            f"{path} has format {meta['format']!r}, expected {_FORMAT!r}: it is not a state of budgetalloc."
        )
    return state, about
