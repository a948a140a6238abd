"""The time of `import budgetalloc` in fresh processes, with those of Python, numpy and imports made only when needed.

    python benchmarks/import_time.py [--repeats 11]

The processes take turns, and the median is shown.
"""

import argparse
import statistics
import subprocess
import sys
import time

STATEMENTS = [
    "pass",
    "import numpy",
    "import budgetalloc",
    "import scipy.optimize",
    "from ortools.sat.python import cp_model",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=11)
    repeats = parser.parse_args().repeats
    took: dict[str, list[float]] = {statement: [] for statement in STATEMENTS}
    for _ in range(repeats + 1):  # the first fills the caches and is left out
        for statement in STATEMENTS:
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True)
            took[statement].append(time.perf_counter() - start)
    base = statistics.median(took["pass"][1:])
    print(f"{'statement':<40}{'seconds':>9}{'less Python':>13}")
    for statement, times in took.items():
        median = statistics.median(times[1:])
        print(f"{statement:<40}{median:>9.3f}{median - base:>13.3f}")


if __name__ == "__main__":
    main()
