"""Which part of `adaptive()` gains what: the choice of prompts, the posterior baseline in single rollouts, or both.

    python benchmarks/learning/ablation.py

`own_groups` chooses prompts as `adaptive()` does, in groups of at least 4 with their own mean as the baseline.
`equal_singles` draws single rollouts of random prompts, and has the baseline. Both are in `ablation.jsonl`, at the
learning rate of `adaptive()`; their own rates were not tuned. Cells are mean success and pass@64.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from run import read
from table import best_uniform, current, of_table, with_interval
from with_features import results

HERE = Path(__file__).parent
PARTS = ("own_groups", "equal_singles")


def lines(rows: list[dict[str, Any]], parts: list[dict[str, Any]]) -> Iterator[str]:
    """The lines of the table, from the table's rows and those of the parts, and one of means over the mixes."""
    names = "best uniform | choice alone | baseline alone | both: `adaptive()`"
    yield f"| mix | seeds | {names} | both less choice alone | both less baseline alone | pass@64 less baseline alone |"
    yield "|---" * 9 + "|"
    gains = []
    for mix in dict.fromkeys(row["mix"] for row in parts):
        of_mix = of_table(rows, mix)
        uniform = best_uniform(rows, mix, {row["policy"] for row in of_mix if row["policy"].startswith("uniform")})
        of_parts = [row for row in parts if row["mix"] == mix]
        by_name = [
            {row["seed"]: row for row in source if row["policy"] == name}
            for source, name in ((of_mix, uniform), *((of_parts, part) for part in PARTS), (of_mix, "adaptive"))
        ]
        seeds = sorted(set.intersection(*map(set, by_name)))
        if len(seeds) < 2:
            continue
        plain, choice, singles, both = (results(runs, seeds) for runs in by_name)
        cells = [f"{mean.mean():.3f} / {pass64.mean():.3f}" for mean, pass64 in (plain, choice, singles, both)]
        cells += [with_interval(gain) for gain in (both[0] - choice[0], both[0] - singles[0], both[1] - singles[1])]
        gains.append([(part[0] - plain[0]).mean() for part in (choice, singles, both)])
        yield f"| `{mix}` | {len(seeds)} | {' | '.join(cells)} |"
    if gains:
        choice_gain, singles_gain, both_gain = (f"{x:+.3f}" for x in np.mean(gains, axis=0))
        yield f"| mean less uniform's | | | {choice_gain} | {singles_gain} | {both_gain} | | | |"


if __name__ == "__main__":
    print("\n".join(lines(current(read(HERE / "results.jsonl")), read(HERE / "ablation.jsonl"))))
