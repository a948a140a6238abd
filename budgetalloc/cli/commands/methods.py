"""`budgetalloc methods`: the table of every allocation method."""

import argparse
import itertools
import json
import textwrap

from budgetalloc.methods.table import METHODS, SECTIONS, published

_TITLES = ("method", "what it does", "source", "checked against", "asks of a trainer")


def run(args: argparse.Namespace) -> None:
    """Prints the table, or the same as JSON."""
    if args.json:
        names = ("name", "decides", "summary", "formula", "source", "checked", "starves", "note")
        rows = [{name: getattr(m, name) for name in names} | {"needs": m.needs()} for m in METHODS]
        print(json.dumps(rows, indent=1))
        return
    print(f"{len(METHODS)} methods, {published()} of them published.")
    names_width = max(len(m.name) for m in METHODS)
    widths = (names_width, 53 - names_width, 16, 17, 26)  # 120 with two blanks between them
    for decides, what in SECTIONS.items():
        print(f"\n{decides.capitalize()}: {what[0].lower()}{what[1:]}\n")
        cells_of = [
            (m.name, m.summary, m.source, m.checked, m.asks())
            for m in METHODS
            if m.decides == decides
        ]
        for cells in (_TITLES, *cells_of):
            parts = [textwrap.wrap(text, width) for text, width in zip(cells, widths, strict=True)]
            for line in itertools.zip_longest(*parts, fillvalue=""):
                padded = (f"{part:<{width}}" for part, width in zip(line, widths, strict=True))
                print("  ".join(padded).rstrip())
