"""Prompt ids: checks, keys for a pseudo-random order that is the same in every process, rows in
arrays that grow, and a pool of prompts that is checked once and used at every step."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any, overload
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_list, short_repr

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
    raise InputError(name, f"is {short_repr(value)} {of}: a prompt id is an int or a str.")


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


def first_places(place_R: IntArray) -> tuple[IntArray, IntArray]:
    """As `factorize`, of numbers.

    >>> first_places(np.array([7, 3, 7]))
    (array([7, 3]), array([0, 1, 0]))
    """
    found_G, first_G, at_R = np.unique(place_R, return_index=True, return_inverse=True)
    order_G = np.argsort(first_G)
    return found_G[order_G], np.argsort(order_G)[at_R]


def text_id(prompt: Any) -> str:
    """The id of a prompt without an id column: a hash of its text or chat messages, the same in
    every process. Raises `InputError` for what JSON cannot represent: the `repr` of an object may
    hold a memory address or omit content.

    >>> text_id("2 + 2 ="), text_id([{"role": "user", "content": "2 + 2 ="}])
    ('4d4db5bbabf3998a', '5423f57e2469bbd3')
    """
    try:
        text = json.dumps(prompt, sort_keys=True, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        what = f"use text or chat messages, which JSON can hold ({error})."
        raise InputError("prompt", what, prompt) from error
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def stable_key(value: Id) -> int:
    """A 64-bit hash of the id that is the same in every process and on every machine. 1 and "1"
    differ."""
    # JSON allows lone surrogates
    text = f"{type(value).__name__}:{value}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def stable_keys(ids_P: Iterable[Id]) -> UInt64Array:
    """`stable_key` of each id, shape (P,), in half the time.

    >>> (stable_keys([1, "1"]) == [stable_key(1), stable_key("1")]).all()
    np.True_
    """
    empty, digests = hashlib.blake2b(digest_size=8), []
    for value in ids_P:
        digest = empty.copy()  # faster than a new one
        digest.update(f"{type(value).__name__}:{value}".encode(errors="surrogatepass"))
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


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


def blocks(length: int, size: int = 2**14) -> list[slice]:
    """Slices of at most `size` elements that cover an array of this length in turn.

    >>> blocks(5, size=2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    starts = range(0, length, size)
    return list(map(slice, starts, [*starts[1:], length]))


def rows_to_read(at_P: IntArray, known: int) -> tuple[slice | IntArray, IntArray]:
    """The rows to read for these prompts, and the place of each prompt among them, -1 if it has no
    row.

    If fewer prompts are asked about than are known, only their rows are read.
    """
    if at_P.size >= known:
        return slice(known), at_P
    seen_P = at_P >= 0
    return at_P[seen_P], np.where(seen_P, np.cumsum(seen_P) - 1, -1)


class Index:
    """Rows of distinct ids, counted from 0 in the order in which the ids were added.

    >>> index = Index(["a", "b"])
    >>> index.add(["b", "c"]), index.find(["c", "x", "c"]), index.ids
    (array([1, 2]), array([ 2, -1,  2]), ['a', 'b', 'c'])
    """

    def __init__(self, ids: list[Id] | None = None) -> None:
        self.ids: list[Id] = [] if ids is None else ids
        self._row: dict[Id, int] = dict(zip(self.ids, range(len(self.ids)), strict=True))

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, ids_V: Sequence[Id]) -> IntArray:
        """The rows of these distinct ids; new ids are added at the end."""
        new = [x for x in ids_V if x not in self._row]
        self._row.update(zip(new, range(len(self.ids), len(self.ids) + len(new)), strict=True))
        self.ids += new
        return self.rows(ids_V)

    def find(self, ids: Iterable[Any], name: str = "ids_P") -> IntArray:
        """The row of each id, -1 where it was never added; ids may repeat."""
        return ids.rows_in(self) if isinstance(ids, Pool) else self.rows(check_ids(ids, name))

    def rows(self, ids: Sequence[Id]) -> IntArray:
        """As `find`, unchecked."""
        return np.fromiter(map(self._row.get, ids, repeat(-1)), dtype=np.int64, count=len(ids))


class _Listed(Index):
    """An index that does not grow. It caches the keys of its ids and their rows in other
    indexes."""

    def __init__(self, ids: list[Id]) -> None:
        super().__init__(ids)
        self.rows_in: WeakKeyDictionary[Index, tuple[int, IntArray]] = WeakKeyDictionary()

    @cached_property
    def keys(self) -> UInt64Array:
        return stable_keys(self.ids)


class Pool(Sequence[Id]):
    """Distinct prompts, checked and hashed once. Pass it as `ids_P` if every step can choose among
    many prompts.

    Every function that takes a list of ids also takes a pool, and returns the same result, to the
    bit. A decision over a pool reads arrays instead of looking up ids, which is many times as fast
    (`benchmarks/scale_of_pool.py`). A pool does not change and can be shared between policies.

    Args:
        ids: The prompts, each once, at least one.

    Raises:
        InputError: no prompt, a repeated id, or an id that is neither an int nor a str.

    >>> import budgetalloc as ba
    >>> pool, policy = ba.Pool(["a", "b", "c"]), ba.adaptive()
    >>> policy.allocate(pool, ba.Budget(rollouts=8, floor=0)).sum()
    np.int64(8)
    >>> pool, pool.take([2, 0])
    (Pool(['a', 'b', 'c']), Pool(['c', 'a']))
    """

    def __init__(self, ids: Iterable[Any], name: str = "ids") -> None:
        listed = check_ids(ids, name)
        check_distinct(listed, name)
        self._all = _Listed(listed)
        # this pool's prompts, as rows of `_all`; None: all of them
        self._at: IntArray | None = None

    @classmethod
    def of(cls, ids_P: Iterable[Any], name: str = "ids_P") -> "Pool":
        """The pool itself if it is one, else a pool of these ids."""
        return ids_P if isinstance(ids_P, Pool) else cls(ids_P, name)

    def take(self, at_K: ArrayLike) -> "Pool":
        """The prompts at these places, each at most once, in this order."""
        part = Pool.__new__(Pool)
        at = np.asarray(at_K, dtype=np.int64)
        part._all, part._at = self._all, at if self._at is None else self._at[at]
        return part

    def __len__(self) -> int:
        return len(self._all.ids) if self._at is None else len(self._at)

    def __iter__(self) -> Iterator[Id]:
        if self._at is None:
            return iter(self._all.ids)
        return map(self._all.ids.__getitem__, self._at.tolist())

    @overload
    def __getitem__(self, at: int) -> Id: ...
    @overload
    def __getitem__(self, at: slice) -> "Pool": ...
    def __getitem__(self, at: int | slice) -> "Id | Pool":
        if isinstance(at, slice):
            return self.take(np.arange(len(self))[at])
        return self._all.ids[at if self._at is None else int(self._at[at])]

    def __eq__(self, other: object) -> bool:
        """Whether the other is a pool or a list with the same ids in the same order."""
        return isinstance(other, (Pool, list)) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if len(self) <= 20:
            return f"Pool({list(self)})"
        return f"Pool({list(self[:3])} and {len(self) - 3:,} more)"

    def __reduce__(self) -> tuple[type["Pool"], tuple[list[Id]]]:
        return Pool, (list(self),)  # caches stay in the process

    def repeat(self, counts_P: IntArray) -> list[Id]:
        """The prompt of each rollout: every prompt repeated by its count.

        >>> Pool(["a", "b", "c"]).repeat(np.array([2, 0, 1]))
        ['a', 'a', 'c']
        """
        at_K = np.flatnonzero(counts_P != 0)  # negative counts too, for which np.repeat raises
        at_R = np.repeat(at_K if self._at is None else self._at[at_K], counts_P[at_K])
        return list(map(self._all.ids.__getitem__, at_R.tolist()))

    @property
    def keys_P(self) -> UInt64Array:
        """The stable key of each prompt (`stable_key`)."""
        return self._all.keys if self._at is None else self._all.keys[self._at]

    def find(self, ids_R: Iterable[Any], name: str = "ids_R") -> IntArray:
        """The place of each id among these prompts, -1 where it is not one of them."""
        return self.places(check_ids(ids_R, name))

    def places(self, ids_R: Sequence[Id]) -> IntArray:
        """As `find`, unchecked."""
        at_R = self._all.rows(ids_R)
        return at_R if self._at is None else np.where(at_R < 0, -1, self._place_P[at_R])

    @cached_property
    def _place_P(self) -> IntArray:
        """The place in this pool of each prompt of `_all`, -1 if it was not taken."""
        place_P = np.full(len(self._all), -1)
        place_P[self._at] = np.arange(len(self))
        return place_P

    def rows_in(self, index: Index) -> IntArray:
        """The row of each prompt in an index, -1 where it has none. Only ids added there since the
        last call are looked up."""
        every, ids = self._all, index.ids
        known, rows_P = every.rows_in.get(index, (0, None))
        if rows_P is None:
            rows_P = index.rows(every.ids)
        elif known < len(ids):
            at_V = every.rows(ids[known:])
            rows_P[at_V[at_V >= 0]] = known + np.flatnonzero(at_V >= 0)
        every.rows_in[index] = len(ids), rows_P
        return rows_P if self._at is None else rows_P.take(self._at)
