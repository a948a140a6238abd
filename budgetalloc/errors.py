"""The errors that budgetalloc raises, and checks of single arguments.

Each error is also a standard exception, therefore `except ValueError` works too.
"""

import difflib
import functools
import importlib
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_F = TypeVar("_F", bound=Callable[..., Any])
MOST = 2**40
"""The default upper limit of integer arguments. Sums of such counts fit into 64 bits."""


def printable(text: str) -> str:
    r"""The text with control characters escaped, because names of files, columns and ids may hold
    terminal escape codes. Newlines and tabs are kept.

    >>> printable("a\x1b[2J\u202e中")
    'a\\x1b[2J\\u202e中'
    """
    if text.isprintable():
        return text
    return "".join(
        x if x.isprintable() or x in "\n\t" else x.encode("unicode_escape").decode() for x in text
    )


def short_repr(value: Any) -> str:
    """The `repr` of a value for an error text, truncated if it is long."""
    try:
        text = repr(value)
    except Exception:  # an int with more digits than Python prints, or a broken __repr__
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:99]} ..."


class BudgetallocError(Exception):
    """The base of all errors of budgetalloc. Its text has no control characters.

    Args:
        text: What is wrong, and what to do instead.
        argument: The name of the argument that is refused, if it is one.
    """

    def __init__(self, *text: object, argument: str | None = None) -> None:
        super().__init__(*(printable(part) if isinstance(part, str) else part for part in text))
        self.argument = argument


class InputError(BudgetallocError, ValueError):
    """An argument of the wrong shape, range or type.

    Args:
        name: The name of the argument, and perhaps the entry that is wrong, such as "ids_P[3]".
        advice: What is wrong, or what to give instead. Left out if `name` is the whole text.
        value: The value, if the text should show it.

    >>> error = InputError("group", "use an integer of at least 1.", 0)
    >>> str(error), error.argument
    ('group=0: use an integer of at least 1.', 'group')
    >>> str(InputError("ids_P[3]", "is empty: give a name."))
    'ids_P[3] is empty: give a name.'
    """

    def __init__(
        self, name: str, advice: str = "", /, *value: object, argument: str | None = None
    ) -> None:
        if advice:
            argument = re.split(r"[\[=]", name)[0]
            name += "".join(f"={short_repr(x)}:" for x in value) + f" {advice}"
        super().__init__(name, argument=argument)


class BudgetError(BudgetallocError, ValueError):
    """A budget that cannot be spent. The text names the bound that fails and a feasible value."""

    def __init__(self, *text: object, argument: str = "budget") -> None:
        super().__init__(*text, argument=argument)


class StateError(BudgetallocError, ValueError):
    """A saved state that does not fit the object it is loaded into."""

    def __init__(self, *text: object, argument: str = "state") -> None:
        super().__init__(*text, argument=argument)


class UnsupportedError(BudgetallocError, NotImplementedError):
    """A trainer, version or option that budgetalloc does not support. The text says why and what to
    do."""


def refuse(refused: Mapping[str, Any], before: str = "", after: str = "") -> None:
    """Raises `UnsupportedError` with the first of these texts whose condition is true.

    >>> refuse({"tools": [], "images": True}, "Trees do not work with ", ".")
    Traceback (most recent call last):
    budgetalloc.errors.UnsupportedError: Trees do not work with images.
    """
    for what, applies in refused.items():
        if applies:
            raise UnsupportedError(f"{before}{what}{after}")


@contextmanager
def prefix_errors(setting: str, argument: str | None = None) -> Iterator[None]:
    """Errors of budgetalloc inside begin with this text, and may be about this argument."""
    try:
        yield
    except BudgetallocError as error:
        raise type(error)(f"{setting}{error}", argument=argument or error.argument) from error


def import_optional(library: str, needed_for: str, extra: str, more: str = "") -> Any:
    """Imports an optional library, or raises `UnsupportedError`, which says how to install it.

    Args:
        library: The module, such as "ray" or "pyarrow.parquet".
        needed_for: What needs it.
        extra: The extra of budgetalloc that installs it.
        more: What to do instead, as the end of the text.
    """
    try:
        return importlib.import_module(library)
    except ImportError as error:
        name = library.partition(".")[0]
        raise UnsupportedError(
            f"{needed_for} needs {name} ({error}): {installing(extra)}.{more}"
        ) from error


def installing(extra: str) -> str:
    """How to install an extra of budgetalloc, from an index or in a clone."""
    end = f"[{extra}]'"
    return f"pip install 'budgetalloc{end}, or in a clone of the repository pip install '.{end}"


def nearest_name(word: object, known: Collection[Any]) -> str:
    """The end of a sentence about an unknown word: the nearest known word, or a full stop. Case and
    hyphens do not matter.

    >>> nearest_name("knapsak", ["uniform", "knapsack"])
    ', did you mean knapsack?'
    >>> nearest_name("zzz", ["uniform", "knapsack"])
    '.'
    """
    by_spelling = {_spelling(x): x for x in reversed([*known])}
    near = difflib.get_close_matches(_spelling(word), by_spelling, n=1, cutoff=0.5)
    return f", did you mean {by_spelling[near[0]]}?" if near else "."


def _spelling(word: object) -> str:
    return str(word).lower().replace("-", "_")


def check_known(word: object, known: Collection[Any], said: str, argument: str = "") -> None:
    """Raises `InputError`, which suggests the nearest of all known words, unless this is one of
    them.

    Args:
        word: What was given.
        known: All words.
        said: What was given, as the text calls it, such as "flor=".
        argument: The name of the argument, for `BudgetallocError.argument`.

    >>> check_known("flor", ("floor", "cap"), "flor=")
    Traceback (most recent call last):
    budgetalloc.errors.InputError: flor= is unknown, did you mean floor? Use one of floor, cap.
    """
    if word not in known:
        raise InputError(
            f"{said} is unknown{nearest_name(word, known)} Use one of "
            f"{', '.join(map(str, known))}.",
            argument=argument or str(word),
        )


def keywords(function: _F) -> _F:
    """A function, or a class, whose unknown keyword arguments raise `InputError` with the nearest
    known one, instead of Python's TypeError.

    >>> keywords(lambda *, n=1, rounds=1: rounds)(round=3)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    budgetalloc.errors.InputError: <lambda>(round=) is unknown, did you mean rounds? Use one of ...
    """
    if isinstance(function, type):
        made: Any = function
        made.__init__ = keywords(made.__init__)
        made.__init__.__name__ = made.__name__
        return function
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    known = known[known[:1] == ("self",) :]

    @functools.wraps(function)
    def called(*args: Any, **given: Any) -> Any:
        for name in given:
            if name not in known:
                check_known(name, known, f"{called.__name__}({name}=)")
        return function(*args, **given)

    return called  # type: ignore[return-value]


def check_integer(name: str, value: Any, low: int, high: int = MOST) -> int:
    """The value as an int in [low, high]. Raises `InputError` for anything else, True and False
    included.

    >>> check_integer("group", np.int64(8), 1)
    8
    """
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or not low <= value <= high:
        no_limit = high == MOST and (not is_integer or value < low)
        allowed = f"of at least {low}" if no_limit else f"from {low} to {high}"
        raise InputError(name, f"use an integer {allowed}.", value)
    return int(value)


def check_seed(value: Any, name: str = "seed") -> int:
    """A seed: an integer from 0 to 2^63 - 1, which every generator accepts."""
    return check_integer(name, value, 0, 2**63 - 1)


def is_number(value: Any) -> bool:
    """Whether the value is one finite real number; True and False are not numbers."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int that no float can hold
        return False


def check_number(
    name: str, value: Any, low: float, high: float, *, without: tuple[float, ...] = ()
) -> float:
    """The value as a float in [low, high], but not in `without`. Raises `InputError` for anything
    else.

    >>> check_number("share", 0.5, 0, 1, without=(0, 1))
    0.5
    """
    if not is_number(value) or not low <= value <= high or value in without:
        left = "(" if low in without or low == -math.inf else "["
        right = ")" if high in without or high == math.inf else "]"
        raise InputError(name, f"use a number in {left}{low:g}, {high:g}{right}.", value)
    return float(value)


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Raises `InputError` unless the value is one of the allowed names."""
    if not isinstance(value, str) or value not in allowed:
        raise InputError(name, f"use one of {allowed}{nearest_name(value, allowed)}", value)


def check_flag(name: str, value: Any) -> bool:
    """The value as a bool. Raises `InputError` for anything but True and False."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(name, "use True or False.", value)
    return bool(value)


def check_function(name: str, value: Any, what: str) -> None:
    """Raises `InputError` unless the value is callable. `what` describes its arguments."""
    if not callable(value):
        raise InputError(name, f"give a function {what}.", value)


def check_type(name: str, value: Any, kind: type | tuple[type, ...], what: str) -> None:
    """Raises `InputError` unless the value is an instance of `kind`. `what` says what to give."""
    if not isinstance(value, kind):
        kind_of = type(value).__name__
        raise InputError(f"{name}={short_repr(value)}", f"is of type {kind_of}: give {what}.")


def check_rng(rng: Any) -> None:
    """Raises `InputError` unless this is a random number generator."""
    if isinstance(rng, type) or not callable(getattr(rng, "random", None)):
        raise InputError("rng", "give a generator such as np.random.default_rng(0).", rng)


def check_list(name: str, values: Any, what: str) -> list[Any]:
    """The entries of any iterable except a string. Raises `InputError` for anything else.

    >>> check_list("budgets", (512, 1024), "a list of token limits")
    [512, 1024]
    """
    try:
        if isinstance(values, (str, bytes, bytearray, memoryview)):
            raise TypeError
        return list(values)
    except TypeError as error:  # numbers, None, arrays of no dimension
        raise InputError(name, f"give {what}.", values) from error


def _of_torch(values: Any) -> Any:
    """Tensors of torch, alone or in a list, as arrays: of any dtype, on any device, with a gradient
    or without."""
    if isinstance(values, (list, tuple)) and values and hasattr(values[0], "detach"):
        return [_of_torch(x) for x in values]
    return values.detach().cpu().double().numpy() if hasattr(values, "detach") else values


def check_array(name: str, values: Any, what: str, *, copy: bool = True) -> NDArray[np.float64]:
    """Numbers of any shape as floats, None as NaN. Raises `InputError` for text, rows of unequal
    lengths and objects.

    With `copy=False`, an array of floats is returned unchanged. Use this for large arrays that are
    only read.

    >>> check_array("rewards_R", [1, None], "one number per rollout")
    array([ 1., nan])
    """
    try:
        array = np.asarray(_of_torch(values))
        text = array.dtype.kind == "O" and any(isinstance(x, (str, bytes)) for x in array.flat)
        no_list = isinstance(values, (bytes, bytearray, memoryview, dict))
        if array.dtype.kind not in "biufO" or text or no_list:
            raise TypeError(f"not numbers, but {array.dtype}")
        return array.astype(np.float64, copy=copy)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(name, f"give {what}.", values) from error
