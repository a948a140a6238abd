"""Trees and plain groups: the page has the table of the recorded runs, which can be made again."""

import doctest
from pathlib import Path

import trees  # of benchmarks/learning
from run import read


def test_the_page_has_the_table():
    page = (Path(__file__).parents[2] / "benchmarks/learning/README.md").read_text(encoding="utf-8")
    rows = read(trees.OUT)
    assert trees.table(rows) in page
    assert {(row["arm"], row["seed"]) for row in rows} <= {(arm, seed) for arm in trees.ARMS for seed in trees.SEEDS}
    assert all(len(row["curve"]) == 1 + trees.STEPS // 5 for row in rows)


def test_the_numbers_of_a_curve():
    assert doctest.testmod(trees).failed == 0
