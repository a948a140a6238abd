"""Temporary replacement of an attribute of the trainer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["patched_attribute"]

_NOTHING = object()


@contextmanager
def patched_attribute(owner: Any, name: str, substitute: Any) -> Iterator[None]:
    """Replaces `owner.name` inside the block and restores it afterwards, unless other code has
    replaced it too.

    >>> class Trainer:
    ...     size = 8
    >>> trainer = Trainer()
    >>> with patched_attribute(trainer, "size", 1):
    ...     trainer.size
    1
    >>> trainer.size, vars(trainer)
    (8, {})
    """
    before = vars(owner).get(name, _NOTHING)
    setattr(owner, name, substitute)
    try:
        yield
    finally:
        if vars(owner).get(name, _NOTHING) is substitute:
            if before is _NOTHING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
