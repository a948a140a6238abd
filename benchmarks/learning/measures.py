"""Measures of runs besides their mean success: the second table of each mix. Runs without the measures are left out.

All figures are means over the table's seeds at the end of the run, except the baselines', which are means over the
points of the run. The prompts of "lost", "gained" and of the quartiles are the held-out ones: see `by_difficulty`.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

HEAD = (
    *("policy", "seeds", "pass@8", "pass@64", "by quartile of the base model, hardest first", "lost", "gained"),
    *("entropy", "baseline error", "variance explained", "tokens", "seconds"),
)


def by_difficulty(start_P: ArrayLike, end_P: ArrayLike) -> dict[str, Any]:
    """Success at the start and at the end, by quartile of the start, hardest first; prompts lost and gained.

    A prompt is lost if its probability falls from at least 0.5 to below 0.25; gained is the reverse.

    >>> by_difficulty([0.1, 0.2, 0.6, 0.9], [0.7, 0.2, 0.1, 1.0])
    {'quartiles': [[0.1, 0.7], [0.2, 0.2], [0.6, 0.1], [0.9, 1.0]], 'lost': 1, 'gained': 1, 'prompts': 4}
    """
    start, end = np.asarray(start_P, dtype=np.float64), np.asarray(end_P, dtype=np.float64)
    quarters = [at for at in np.array_split(np.argsort(start, kind="stable"), 4) if at.size]
    high, low = 0.5, 0.25
    return {
        "quartiles": [[round(float(p[at].mean()), 4) for p in (start, end)] for at in quarters],
        "lost": int(np.sum((start >= high) & (end < low))),
        "gained": int(np.sum((start < low) & (end >= high))),
        "prompts": len(start),
    }


def lines(rows_by_policy: dict[str, list[dict[str, Any]]]) -> list[str]:
    """A Markdown table, a line a policy, of the rows that have the measures; none if no row has."""
    recorded = {name: [row for row in rows if "quartiles" in row] for name, rows in rows_by_policy.items()}
    table = ["| " + " | ".join((name, *cells(rows))) + " |" for name, rows in recorded.items() if rows]
    return [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|", *table] if table else []


def cells(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """The cells of one policy's runs after its name.

    >>> end = {"pass8": 0.9, "pass64": 0.95, "entropy": 0.1, "tokens": 1280, "seconds": 40.0}
    >>> curve = [{"baseline_error": None, "explained": None}, {"baseline_error": 0.04, "explained": 0.5, **end}]
    >>> " | ".join(cells([{"curve": curve, "quartiles": [[0, 0.5], [1, 1]], "lost": 2, "gained": 1, "prompts": 10}]))
    '1 | 0.900 | 0.950 | 0.00 to 0.50, 1.00 to 1.00 | 20.0 % | 10.0 % | 0.10 | 0.0400 | 0.50 | 1,280 | 40'
    """

    def at_end(name: str) -> float:
        return float(np.mean([row["curve"][-1][name] for row in rows]))

    def over_run(name: str, digits: int) -> str:
        values = [point[name] for row in rows for point in row["curve"] if point[name] is not None]
        return f"{np.mean(values):.{digits}f}" if values else "unknown"

    quartiles = np.mean([row["quartiles"] for row in rows], axis=0)
    lost, gained = (np.mean([row[name] / row["prompts"] for row in rows]) for name in ("lost", "gained"))
    return (
        str(len(rows)),
        f"{at_end('pass8'):.3f}",
        f"{at_end('pass64'):.3f}",
        ", ".join(f"{start:.2f} to {end:.2f}" for start, end in quartiles),
        f"{lost:.1%}".replace("%", " %"),
        f"{gained:.1%}".replace("%", " %"),
        f"{at_end('entropy'):.2f}",
        over_run("baseline_error", 4),
        over_run("explained", 2),
        f"{at_end('tokens'):,.0f}",
        f"{at_end('seconds'):.0f}",
    )
