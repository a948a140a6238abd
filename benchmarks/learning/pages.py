"""Writes the tables and sentences that the scripts print into the pages that show them.

    python benchmarks/learning/pages.py            # after new runs in one of the files of results
    python benchmarks/learning/pages.py --check    # fails if a page is out of date

A table is found by its header row within its section, a sentence by the text before its first colon. The rest of a
page is written by hand and also states figures, so read it again. `benchmarks/methods.py --write --keep` does the same
for METHODS.md.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import harm
import with_features
from mixes import MIXES, SHAPES
from run import read
from table import HERE, Row
from verdict import rivals, verdict

ROOT = HERE.parents[1]
BENCHMARK, EVIDENCE = "benchmarks/learning/README.md", "docs/evidence.md"
SHARES = 0, 10, 12, 11  # columns of the long table that the table of the evidence lacks
GAINS = 0, 9, 10
SIZES = 0, 1, 9, 10, 11
EVEN = 0, 1, 7, 8  # columns that compare with uniform groups
RIVALS = 0, 2, 3, 4, 5


def printed(rows: list[Row], folder: Path = HERE) -> Iterator[tuple[str, str, str]]:
    """The path of a page, the heading of a section, and the tables and sentences that belong there."""
    own = [*rows, *(run for run in read(folder / "table.jsonl") if run["mix"] in MIXES)]
    yield EVIDENCE, "## Twelve mixes of tasks", verdict(own, "adaptive", short=True)
    shapes = [pool for pool in harm.pools(read(folder / "table.jsonl"), "adaptive") if pool.name in SHAPES]
    yield EVIDENCE, "## Pools of other shapes", harm.table(shapes)
    long = verdict(own, "adaptive")
    left_out = [line for line in long.splitlines() if line.startswith("- **Left out**")]
    yield BENCHMARK, "## Does the default help or hurt?", "\n".join([table(long, SHARES), "", *left_out])
    others = [*read(folder / "graded.jsonl"), *read(folder / "scheduled.jsonl")]
    yield BENCHMARK, "## Other rewards", table(verdict(others, "sampled"), GAINS)
    yield BENCHMARK, "## Published methods", table(rivals(own, "adaptive"), RIVALS)
    sizes = [*(row for row in own if row["mix"] == "u_shape"), *read(folder / "sizes.jsonl")]
    yield "benchmarks/scale/README.md", "## One language at four sizes", table(verdict(sizes, "adaptive"), SIZES)
    rounds = read(folder / "rounds.jsonl")
    counted = [line for line in verdict([*rows, *rounds], "adaptive_3").splitlines() if line.startswith("- **")]
    given = rows, rounds, "adaptive_3"
    yield EVIDENCE, "## Three generations a step", "\n".join([with_features.over_mixes(*given), *counted[:4]])
    given = rows, read(folder / "even.jsonl"), "even_3"
    found = "\n".join(with_features.lines(*given))
    less = with_features.over_mixes(*given, base="uniform")
    yield BENCHMARK, "## Coverage", f"{table(found, EVEN)}\n\n{less}"
    yield EVIDENCE, "## Coverage", less


def table(text: str, columns: Sequence[int]) -> str:
    """The table of a text, with these columns only.

    >>> print(table("Of it:\\n| a | b | c |\\n|---|---|---|\\n| 1 | 2 | 3 |\\n- more", (0, 2)))
    | a | c |
    |---|---|
    | 1 | 3 |
    """
    lines = []
    for line in text.splitlines():
        if line.startswith("|---"):
            lines.append("|---" * len(columns) + "|")
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            lines.append(f"| {' | '.join(cells[at] for at in columns)} |")
    return "\n".join(lines)


def replaced(page: str, heading: str, text: str) -> str:
    """The page with the tables and sentences of this text in the section, each in the place of the one before."""
    lines = page.split("\n")
    if heading not in lines:
        raise SystemExit(f"No section {heading!r} on the page: add it.")
    first = lines.index(heading) + 1
    last = next((at for at in range(first, len(lines)) if lines[at].startswith("## ")), len(lines))
    before, section, after = lines[:first], lines[first:last], lines[last:]
    start = 0  # tables of a section come in the order in which they are printed
    for block in text.strip().split("\n\n"):
        new = block.split("\n")
        if new[0].startswith("|"):
            if new[0] not in section[start:]:
                raise SystemExit(f"No table in {heading!r} begins with the row {new[0]!r}: add this row.")
            at = section.index(new[0], start)
            end = next((k for k in range(at, len(section)) if not section[k].startswith("|")), len(section))
            section[at:end] = new
            start = at + len(new)
            continue
        for line in new:
            lead = line.partition(":")[0] + ":"
            places = [at for at, old in enumerate(section) if old.startswith(lead)]
            if len(places) != 1:
                raise SystemExit(f"{len(places)} lines in {heading!r} begin with {lead!r}: there should be one.")
            section[places[0]] = line
    return "\n".join([*before, *section, *after])


def written(rows: list[Row], root: Path = ROOT) -> dict[str, str]:
    """The pages as they should be, by their paths."""
    pages: dict[str, str] = {}
    for page, heading, text in printed(rows):
        pages[page] = replaced(pages.get(page) or (root / page).read_text(encoding="utf-8"), heading, text)
    return pages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if a page is out of date")
    check = parser.parse_args().check
    old = [
        (page, text)
        for page, text in written(read(HERE / "results.jsonl")).items()
        if text != (ROOT / page).read_text(encoding="utf-8")
    ]
    for page, text in old:
        print(f"{page} {'is out of date' if check else 'was written'}")
        if not check:
            (ROOT / page).write_text(text, encoding="utf-8")
    sys.exit(check and bool(old))


if __name__ == "__main__":
    main()
