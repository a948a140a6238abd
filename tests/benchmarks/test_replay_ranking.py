"""The figures about replays in the docs are those that the benchmark prints."""

from pathlib import Path

import replay_ranking  # of benchmarks/learning

from budgetalloc.report.replays import LIMITS

ROOT = Path(__file__).parents[2]


def test_what_is_said_of_taught_is_what_the_command_prints():
    lines = replay_ranking.table(replay_ranking.read(replay_ranking.KEPT))
    said = (ROOT / "benchmarks/learning/README.md").read_text(encoding="utf-8")
    assert "\n".join(lines) in said
    cells = {line.split("|")[1].strip(" `"): [x.strip() for x in line.split("|")[2:-1]] for line in lines}
    page = " ".join((ROOT / "docs/own.md").read_text(encoding="utf-8").split())
    for text in (*cells["informative_prompts"], cells["mixed"][0], cells["direction"][0]):
        assert text in page
    assert all(cells[figure][0] in LIMITS[1] for figure in ("informative_prompts", "mixed"))
