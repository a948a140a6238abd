"""Length budgets on `chain` and `verbose`: the page has the tables of the recorded runs, which can be made again."""

from pathlib import Path

import lengths  # of benchmarks/learning
import pytest
from run import read


@pytest.mark.parametrize("policy", lengths.POLICIES)
@pytest.mark.parametrize("mix", lengths.MIXES)
def test_the_page_has_the_table(mix, policy):
    page = (Path(__file__).parents[2] / "benchmarks/learning/README.md").read_text(encoding="utf-8")
    rows = [row for row in read(lengths.OUT) if (row["mix"], row["policy"]) == (mix, policy)]
    setting = lengths.MIXES[mix]
    assert "\n".join(lengths.table(rows, mix, policy).splitlines()[1:]) in page
    assert {row["arm"] for row in rows} <= set(setting.arms)
    assert all(len(row["curve"]) == 1 + setting.steps // setting.every for row in rows)


def test_the_table_compares_the_seeds_that_all_arms_have():
    def row(arm, seed, end):
        curve = [[0, 0.2], [1920, end], [5760, end]]  # 5 and 10 tokens of each of the 384 rollouts of three steps
        return {"mix": "chain", "policy": "uniform", "arm": arm, "seed": seed, "curve": curve}

    arms = lengths.MIXES["chain"].arms
    rows = [row(arm, seed, 0.6 + 0.1 * at + 0.1 * seed) for at, arm in enumerate(arms) for seed in (0, 1)]
    rows.append(row("plain", 2, 0.9))
    title, _, _, plain, schedule, *_ = lengths.table(rows, "chain", "uniform").splitlines()
    assert title == "chain, uniform, 2 seeds"
    assert plain == "| plain | 5.0, 10.0 | 5,760 | 0.650 | 0 | 1,280 |"  # 1920 * 0.3 / 0.45
    assert schedule.split(" | ")[4] == "+0.083 (+0.083 to +0.083)"  # five sixths of 0.1
    assert lengths.gain([[0, 0.2], [100, 0.6]], [[0, 0.2], [200, 0.6]]) == pytest.approx(0.4 - 0.3)
    assert lengths.interval([0.1, 0.3]) == "+0.200 (-1.071 to +1.471)"  # t with one degree of freedom: 12.706 * 0.1


@pytest.mark.parametrize("policy", lengths.POLICIES)
def test_a_table_needs_a_seed_with_all_arms(policy):
    assert lengths.table([], "verbose", policy) == f"verbose, {policy}: no seed has all arms"
