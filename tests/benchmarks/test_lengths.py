"""Length budgets on `chain`: the page has the table of the recorded runs, which can be made again."""

from pathlib import Path

import lengths  # of benchmarks/learning
import pytest
from run import read


def test_the_page_has_the_table():
    page = (Path(__file__).parents[2] / "benchmarks/learning/README.md").read_text(encoding="utf-8")
    rows = read(lengths.OUT)
    assert "\n".join(lengths.table(rows, "uniform").splitlines()[1:]) in page
    assert {row["arm"] for row in rows} <= set(lengths.ARMS)
    assert all(len(row["curve"]) == 1 + lengths.STEPS // 3 for row in rows)


def test_the_table_compares_the_seeds_that_all_arms_have():
    def row(arm, seed, end):
        return {"policy": "uniform", "arm": arm, "seed": seed, "curve": [[0, 0.2], [1500, end], [3000, end]]}

    rows = [row(arm, seed, 0.6 + 0.1 * at + 0.1 * seed) for at, arm in enumerate(lengths.ARMS) for seed in (0, 1)]
    rows.append(row("plain", 2, 0.9))
    title, _, _, plain, schedule, _ = lengths.table(rows, "uniform").splitlines()
    assert title == "uniform, 2 seeds"
    assert plain == "| plain | 200 | 0.650 | 0 | 1,012 |"  # 1500 * 0.3 / 0.4 and * 0.3 / 0.5
    assert schedule.split(" | ")[3] == "+0.075 (+0.075 to +0.075)"  # three quarters of 0.1
    assert lengths.interval([0.1, 0.3]) == "+0.200 (-1.071 to +1.471)"  # t with one degree of freedom: 12.706 * 0.1


@pytest.mark.parametrize("policy", ["uniform", "adaptive"])
def test_a_table_needs_a_seed_with_all_arms(policy):
    assert lengths.table([], policy) == f"{policy}: no seed has all arms"
