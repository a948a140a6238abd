"""Random generators of many keys at once, each with the stream that NumPy gives to its key."""

from typing import Any

import numpy as np
from numpy.random import PCG64, Generator
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import UInt64Array

# constants of NumPy's SeedSequence (O'Neill, 2015), whose streams NumPy keeps in all versions
_INIT_A, _MULT_A, _INIT_B, _MULT_B = 0x43B0D7E5, 0x931E8875, 0x8B51F9DD, 0x58F38DED
_LEFT, _RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_Words = NDArray[np.uint32]


def generators(seed: int, keys_P: UInt64Array, sweep: int) -> list[Generator]:
    """`np.random.default_rng([seed, key, sweep])` for each key of at least 2^32.

    The seeds of all keys are mixed together, because NumPy takes most of its time for that.

    >>> generators(7, np.array([2**40], dtype=np.uint64), 3)[0].random()
    0.9714190503654925
    >>> np.random.default_rng([7, 2**40, 3]).random()
    0.9714190503654925
    """
    low_P, high_P = keys_P.astype(np.uint32), (keys_P >> np.uint64(32)).astype(np.uint32)
    words = [*_words_of(seed), low_P, high_P, *_words_of(sweep)]
    mixed = _Hash(_INIT_A, _MULT_A)
    pool = [mixed(word) for word in words[:4]]
    for source in range(len(words)):
        for at in range(4):
            if source != at:
                value = mixed(pool[source] if source < 4 else words[source])
                pool[at] = _scattered(_LEFT * pool[at] - _RIGHT * value)
    state = _Hash(_INIT_B, _MULT_B)
    state_P8 = np.stack([state(pool[at % 4]) for at in range(8)], axis=1)
    words_P4 = state_P8.astype("<u4").view("<u8")
    # PCG64 takes any ISeedSequence, which NumPy's types do not say
    return [Generator(PCG64(_Mixed(words))) for words in words_P4]  # type: ignore[arg-type]


class _Mixed(ISeedSequence):
    """The words of one key, as a generator asks for them."""

    def __init__(self, words: UInt64Array) -> None:
        self.words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return self.words


class _Hash:
    """The hash of SeedSequence, whose constant changes at each call."""

    def __init__(self, constant: int, factor: int) -> None:
        self.constant, self.factor = constant, factor

    def __call__(self, words: _Words) -> _Words:
        words = words ^ np.uint32(self.constant)
        self.constant = self.constant * self.factor % 2**32
        return _scattered(words * np.uint32(self.constant))


def _scattered(words: _Words) -> _Words:
    return words ^ (words >> np.uint32(16))


def _words_of(number: int) -> list[_Words]:
    """The number in words of 32 bits, the lowest first, as arrays, which overflow silently."""
    count = max(-(-number.bit_length() // 32), 1)
    return list(np.array([[number >> 32 * at & 0xFFFFFFFF] for at in range(count)], np.uint32))
