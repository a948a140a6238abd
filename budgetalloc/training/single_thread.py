"""A guard for objects that one process and one thread at a time may use."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from budgetalloc.errors import InputError


class Exclusive:
    """A context manager around each call of an object; refuses a fork, and a thread while another
    one is inside.

    A copy, by `copy` or by pickling, belongs to the process and the thread that use it.

    >>> guard = Exclusive()
    >>> with guard("begin()"), guard("end()"):
    ...     pass
    Traceback (most recent call last):
    budgetalloc.errors.InputError: end() while another thread is in this session: let one thread
    drive it at a time.
    """

    def __init__(self) -> None:
        self._process, self._one = os.getpid(), threading.Lock()

    def __reduce__(self) -> tuple[type["Exclusive"], tuple[()]]:
        return Exclusive, ()

    @contextmanager
    def __call__(self, call: str) -> Iterator[None]:
        """Raises `InputError`, with the name of the call, where it is refused."""
        if os.getpid() != self._process:
            raise InputError(
                f"{call} in a fork of process {self._process}: make a session in each process."
            )
        if not self._one.acquire(blocking=False):
            raise InputError(
                f"{call} while another thread is in this session: let one thread drive it at a "
                "time."
            )
        try:
            yield
        finally:
            self._one.release()
