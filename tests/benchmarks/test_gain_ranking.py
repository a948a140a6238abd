"""What a report foretells: the figures in the docs are those that the benchmark prints."""

import json
from pathlib import Path

import gain_ranking  # of benchmarks/learning

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "learning"


def test_the_table_of_the_docs_is_what_the_command_prints():
    runs = json.loads((FOLDER / "gain_ranking.json").read_text())
    said = (FOLDER / "README.md").read_text()
    table = [line for line in said.splitlines() if line.count("|") == 4 and " to " in line]
    labels = {"wasted": "without gradient", "explained": "variance", "all_fail": "all failed"}
    labels |= {"never_solved": "never solved", "success": "mean success"}
    printed = [dict(zip(gain_ranking.FIGURES, gain_ranking.ranked(runs[which]), strict=True)) for which in runs]
    for figure, label in labels.items():
        row = next(line for line in table if label in line)
        for column, lines in zip(row.split("|")[2:4], printed, strict=True):
            assert column.strip() == lines[figure].split("|")[2].strip().replace("+", ""), figure
    assert printed[0]["foreseen"] == "| foreseen | 0 on every mix |"
    assert [len(of_mixes) for of_mixes in runs.values()] == [12, 12]
