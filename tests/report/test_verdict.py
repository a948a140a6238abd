"""The first line of a report: healthy, or what to look at."""

import pandas as pd
import pytest

from budgetalloc import Ledger
from budgetalloc.report import as_html, as_text, report
from budgetalloc.report.verdict import verdict


def run(groups):
    """Steps of two groups with these rewards."""
    rows = [
        (step, name, reward) for step, of in enumerate(groups) for name, rewards in of.items() for reward in rewards
    ]
    return report(Ledger.of_frame(pd.DataFrame(rows, columns=["step", "prompt", "reward"])), policies=())


HALF = {"a": [0, 1, 1, 1], "b": [0, 1, 0, 0]}
WASTED = {"a": [0, 0, 0, 0], "b": [0, 1, 0, 0], "c": [1, 1, 1, 1]}


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([HALF] * 20, "Healthy."),
        ([WASTED] * 20, "Look at 66.7 % of the rollouts without a gradient."),
        ([{"a": [1, 1, 1, 0]}] * 10 + [{"a": [0, 0, 0, 1]}] * 10, "success, which fell from 0.75 to 0.25."),
    ],
)
def test_a_report_begins_with_a_verdict(groups, said):
    seen = run(groups)
    line = verdict(seen)
    assert line.endswith(said)
    assert " ".join(as_text(seen).split()).startswith(" ".join(line.split()))
    assert f'<p class="verdict">{line}</p>'.replace(" %", "\xa0%") in as_html(seen)


def test_what_the_log_leaves_open_comes_first(tmp_path):
    rows = "".join(f"{k // 8},{k},{k % 4 == 0:d}\n" for k in range(32))
    (tmp_path / "c.csv").write_text("step,id,reward\n" + rows)
    assert verdict(report(tmp_path / "c.csv", policies=())).startswith("Look at what the log leaves open (CAREFUL)")
