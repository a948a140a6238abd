"""Parses the values of options; each function raises argparse's own error for an invalid text."""

import argparse
import math

__all__ = ["natural", "positive", "rate", "weighted", "workers"]


def positive(text: str, most: int = 10**9) -> int:
    """A whole number from 1."""
    value = natural(text, most)
    if not value:
        raise argparse.ArgumentTypeError("0: use at least 1")
    return value


def workers(text: str) -> int | str:
    """A number of processes, or "ray"."""
    return text if text == "ray" else positive(text, most=1024)


def natural(text: str, most: int = 2**32 - 1) -> int:
    """A whole number from 0."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r}: use a whole number that is not negative")
    if len(text) > 10 or int(text) > most:
        raise argparse.ArgumentTypeError(f"{text[:20]}: use at most {most:,}")
    return int(text)


def rate(text: str) -> float:
    """A number that is not negative."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: use a number that is not negative, such as 3e-4")
    return value


def weighted(text: str) -> tuple[str, float]:
    """A column with its weight, such as `format=0.2`."""
    column, _, weight = text.partition("=")
    try:
        return column, float(weight or 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: use a number as the weight, such as {column}=0.5") from None
