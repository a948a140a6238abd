"""`budgetalloc methods`: the table of every allocation method."""

import argparse
import itertools
import json
import textwrap
from collections.abc import Sequence

from budgetalloc.methods.table import METHODS, SECTIONS, published

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Prints the table, or the same as JSON."""
    names = ("name", "decides", "formula", "source", "checked", "starves", "note")
    rows = [
        {name: getattr(method, name) for name in names} | {"needs": method.needs()}
        for method in METHODS
    ]
    print(json.dumps(rows, indent=1) if args.json else _table())


def _table(width: int = 120) -> str:
    """The table in plain text, with lines of at most `width` characters."""
    sizes = [max(len(m.name) for m in METHODS), 0, 16, 17, 26]
    sizes[1] = width - sum(sizes) - 2 * (len(sizes) - 1)
    lines = [f"{len(METHODS)} methods, {published()} of them published."]
    titles = ("method", "rule", "source", "checked against", "asks of a trainer")
    for decides, what in SECTIONS.items():
        cells = [
            (m.name, m.formula, m.source, m.checked, m.asks())
            for m in METHODS
            if m.decides == decides
        ]
        lines += [
            "",
            f"{decides.capitalize()}: {what[0].lower()}{what[1:]}",
            "",
            *_wrapped(titles, sizes),
        ]
        lines += [line for cell in cells for line in _wrapped(cell, sizes)]
    return "\n".join(lines)


def _wrapped(cells: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """One row of a table, on as many lines as its longest cell needs."""
    parts = [textwrap.wrap(text, size) for text, size in zip(cells, sizes, strict=True)]
    lines = itertools.zip_longest(*parts, fillvalue="")
    return [
        "  ".join(f"{part:<{size}}" for part, size in zip(line, sizes, strict=True)).rstrip()
        for line in lines
    ]
