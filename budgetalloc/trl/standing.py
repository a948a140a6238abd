"""Standing in for an attribute of the trainer for a time, and giving back what was there."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NOTHING = object()


@contextmanager
def standing_in(owner: Any, name: str, substitute: Any) -> Iterator[None]:
    """`owner.name` is the substitute inside the block; afterwards what was there before, on the object or its class.

    What somebody else has put there inside the block stays.

    >>> class Trainer:
    ...     size = 8
    >>> trainer = Trainer()
    >>> with standing_in(trainer, "size", 1):
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
