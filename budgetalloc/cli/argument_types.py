"""Parses the values of options; each function raises argparse's own error for an invalid text."""

import argparse
import math
from collections.abc import Callable

__all__ = ["positive", "rate", "weighted", "whole", "workers"]


def whole(low: int = 1, high: int = 10**9) -> Callable[[str], int]:
    """A parser of whole numbers within these bounds.

    >>> whole(0)("12")
    12
    """

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(
                f"{text[:20]!r}: use a whole number from {low} to {high:,}"
            )
        return int(text)

    return parse


positive = whole()


def workers(text: str) -> int | str:
    """A number of processes, or "ray"."""
    return text if text == "ray" else whole(high=1024)(text)


def rate(text: str) -> float:
    """A number that is not negative."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(
            f"{text!r}: use a number that is not negative, such as 3e-4"
        )
    return value


def weighted(text: str) -> tuple[str, float]:
    """A column with its weight, such as `format=0.2`."""
    column, _, weight = text.partition("=")
    try:
        return column, float(weight or 1)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: use a number as the weight, such as {column}=0.5"
        ) from None
