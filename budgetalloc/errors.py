"""The errors that budgetalloc raises, and checks of single arguments that raise them.

Each error is also a standard exception, so `except ValueError` keeps working.
"""

import math
from typing import Any

import numpy as np


def printable(text: str) -> str:
    r"""The text without control characters: names of files, columns and ids may hold escape codes of a terminal.

    Lines and tabs stay; everything else that does not print is escaped as in `repr`.

    >>> printable("a\x1b[2J\u202e中")
    'a\\x1b[2J\\u202e中'
    """
    if text.isprintable():
        return text
    return "".join(x if x.isprintable() or x in "\n\t" else x.encode("unicode_escape").decode() for x in text)


class BudgetallocError(Exception):
    """Base of every error raised on purpose by budgetalloc. Its text holds no control characters."""

    def __init__(self, *texts: object) -> None:
        super().__init__(*(printable(text) if isinstance(text, str) else text for text in texts))


class BudgetError(BudgetallocError, ValueError):
    """A budget that cannot be spent; the text names the bound that fails and a value that would hold."""


class InputError(BudgetallocError, ValueError):
    """An argument of the wrong shape, range or type."""


class StateError(BudgetallocError, ValueError):
    """A saved state that does not fit the object it is loaded into."""


class UnsupportedError(BudgetallocError, NotImplementedError):
    """A trainer, version or option that budgetalloc does not serve; the text says why and what to do."""


def check_integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """An integer in [low, high]; raises `InputError` for anything else, True and False included.

    >>> check_integer("group", np.int64(8), 1)
    8
    """
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or value < low or (high is not None and value > high):
        allowed = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise InputError(f"{name}={value!r}: use an integer {allowed}.")
    return int(value)


def check_number(name: str, value: Any, low: float, high: float, *, without: tuple[float, ...] = ()) -> float:
    """A finite number in [low, high], but none of `without`; raises `InputError` for anything else.

    >>> check_number("share", 0.5, 0, 1, without=(0, 1))
    0.5
    """
    fits = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not fits or not math.isfinite(value) or not low <= value <= high or value in without:
        left, right = (
            "(" if low in without or low == -math.inf else "[",
            ")" if high in without or high == math.inf else "]",
        )
        raise InputError(f"{name}={value!r}: use a number in {left}{low:g}, {high:g}{right}.")
    return float(value)


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Raises `InputError` unless the value is one of the names allowed."""
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{name}={value!r}: use one of {allowed}.")
