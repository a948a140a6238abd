"""Prompt ids: checks, and keys for a pseudo-random order that is the same in every process."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from budgetalloc.errors import InputError, check_list, shown

__all__ = [
    "Id",
    "UInt64Array",
    "blocks",
    "check_distinct",
    "check_ids",
    "factorize",
    "shuffled_order",
    "stable_key",
    "text_id",
]

Id = int | str
UInt64Array = NDArray[np.uint64]


def check_ids(ids: Iterable[Any], name: str) -> list[Id]:
    """The ids as plain `int` and `str`. Raises `InputError` for anything else.

    >>> check_ids(np.array([3, 4]), "ids_P")
    [3, 4]
    """
    if isinstance(ids, str):
        raise InputError(
            f"{name}={ids!r}", f"is one string: give a list of ids, such as [{ids!r}]."
        )
    if isinstance(ids, np.ndarray) and ids.ndim == 1:
        ids = ids.tolist()
    listed = check_list(name, ids, "a list of ids, each an int or a str")
    if set(map(type, listed)) <= {int, str}:  # the fast path for the usual case
        return listed
    return [_plain_id(value, f"{name}[{at}]") for at, value in enumerate(listed)]


def _plain_id(value: Any, name: str) -> Id:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    if hasattr(value, "as_py"):  # a scalar of Arrow
        return _plain_id(value.as_py(), name)
    if hasattr(value, "detach") and not value.ndim and not value.is_floating_point():
        return _plain_id(value.item(), name)  # a scalar of torch
    of = f"of type {type(value).__name__}"
    raise InputError(name, f"is {shown(value)} {of}: a prompt id is an int or a str.")


def check_distinct(ids_P: Sequence[Id], name: str) -> None:
    """Raises `InputError` unless there is at least one id and no id is repeated."""
    if not ids_P:
        raise InputError(name, "is empty: give at least one prompt id.")
    if len(set(ids_P)) < len(ids_P):
        twice = next(x for x, count in Counter(ids_P).items() if count > 1)
        what = "give each prompt once, because its count is for all its rows."
        raise InputError(name, f"holds the id {twice!r} twice: {what}")


def factorize(ids_R: Sequence[Id]) -> tuple[list[Id], NDArray[np.int64]]:
    """The distinct ids in order of first appearance, and for each row the place of its id among
    them.

    >>> factorize(["b", "a", "b"])
    (['b', 'a'], array([0, 1, 0]))
    """
    place: dict[Id, int] = {}
    group_R = [place.setdefault(x, len(place)) for x in ids_R]
    return list(place), np.array(group_R, dtype=np.int64)


def text_id(prompt: Any, unknown: Callable[[Any], Any] | None = None) -> str:
    """The id of a prompt without an id column: a hash of its text or chat messages, the same in
    every process.

    Args:
        prompt: Plain text, or chat messages.
        unknown: Called with a part that JSON cannot represent. Without it, such a part raises
            `InputError`.

    >>> text_id("2 + 2 ="), text_id([{"role": "user", "content": "2 + 2 ="}])
    ('4d4db5bbabf3998a', '5423f57e2469bbd3')
    """
    try:
        text = json.dumps(prompt, sort_keys=True, ensure_ascii=False, default=unknown)
    except (TypeError, ValueError, RecursionError) as error:
        what = f"use text or chat messages, which JSON can hold ({error})."
        raise InputError("prompt", what, prompt) from error
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@lru_cache(maxsize=2**17)  # every step may have the same list of ids
def stable_key(value: Id) -> int:
    """A 64-bit hash of the id that is the same in every process and on every machine. 1 and "1"
    differ."""
    # JSON allows lone surrogates
    text = f"{type(value).__name__}:{value}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def shuffled_order(
    keys_P: UInt64Array, seed: int, step: int, about: int | None = None
) -> NDArray[np.int64]:
    """A pseudo-random order of the prompts, which depends on seed, step and the set of keys, not on
    their order.

    Draws and ties in this order do not depend on the order of the caller's list, and are fair over
    steps. Of more than `about` prompts only about so many are returned, the first of the order;
    each is among them equally often.

    >>> keys_P = np.arange(1000, dtype=np.uint64)
    >>> first = shuffled_order(keys_P, seed=0, step=0, about=100)
    >>> len(first), (first == shuffled_order(keys_P, seed=0, step=0)[: len(first)]).all()
    (103, np.True_)
    """
    salt = np.random.default_rng([seed, step]).integers(2**64, dtype=np.uint64)
    hash_P = np.empty_like(keys_P)
    for block in blocks(len(keys_P)):
        # The finalizer of splitmix64 (Steele et al., 2014) scatters similar keys.
        hash_B = keys_P[block] ^ salt
        hash_B ^= hash_B >> np.uint64(30)
        hash_B *= np.uint64(0xBF58476D1CE4E5B9)
        hash_B ^= hash_B >> np.uint64(27)
        hash_B *= np.uint64(0x94D049BB133111EB)
        hash_P[block] = hash_B ^ (hash_B >> np.uint64(31))
    if about is None or about >= len(hash_P):
        return np.argsort(hash_P)
    first_K = np.flatnonzero(hash_P < np.uint64(2**64 * about // len(hash_P)))
    return first_K[np.argsort(hash_P[first_K])]


def blocks(length: int, size: int = 2**14) -> Iterator[slice]:
    """Slices of at most `size` elements that cover an array of this length in turn.

    >>> list(blocks(5, size=2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for first in range(0, length, size):
        yield slice(first, min(first + size, length))
