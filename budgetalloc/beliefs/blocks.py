"""Blocks of a large array that stay in the processor's cache: more arrays cost more to allocate
than to compute."""

from collections.abc import Iterator

__all__ = ["blocks"]


def blocks(length: int, size: int = 2**14) -> Iterator[slice]:
    """Slices of at most `size` elements that cover an array of this length in turn.

    >>> list(blocks(5, size=2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for first in range(0, length, size):
        yield slice(first, min(first + size, length))
