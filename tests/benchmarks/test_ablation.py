"""The table of the parts of `adaptive()`."""

import ablation
from test_with_features import ROWS, row


def test_each_part_is_paired_with_the_whole_over_the_seeds_that_all_have():
    parts = [row("own_groups", seed, 0.45) for seed in (0, 1, 2)] + [row("equal_singles", 0, 0.7)]
    assert len(list(ablation.lines(ROWS, parts))) == 2  # one seed is no row
    line, means = list(ablation.lines(ROWS, [*parts, row("equal_singles", 1, 0.6)]))[2:]
    assert line.startswith("| `u_shape` | 2 | 0.500 / 0.600 | 0.450 / 0.550 | 0.650 / 0.750 | 0.600 / 0.700 | +0.150 (")
    assert "| -0.050 (" in line
    assert means == "| mean less uniform's | | | -0.050 | +0.150 | +0.100 | | | |"
