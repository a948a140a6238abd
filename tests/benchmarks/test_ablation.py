"""The table of the parts of `adaptive()`."""

import ablation


def row(policy: str, seed: int, mean: float) -> dict:
    curve = [{"rollouts": at, "expected": mean, "pass64": mean + 0.1} for at in (0, 256)]
    return {"policy": policy, "mix": "u_shape", "rate": 3e-4, "seed": seed, "steps": 150, "curve": curve}


ROWS = [row(policy, seed, mean) for policy, mean in (("uniform4", 0.5), ("adaptive", 0.6)) for seed in (0, 1, 100)]


def test_each_part_is_paired_with_the_whole_over_the_seeds_that_all_have():
    parts = [row("own_groups", seed, 0.45) for seed in (0, 1, 2)] + [row("equal_singles", 0, 0.7)]
    assert len(list(ablation.lines(ROWS, parts))) == 2  # one seed is no row
    line, means = list(ablation.lines(ROWS, [*parts, row("equal_singles", 1, 0.6)]))[2:]
    assert line.startswith("| `u_shape` | 2 | 0.500 / 0.600 | 0.450 / 0.550 | 0.650 / 0.750 | 0.600 / 0.700 | +0.150 (")
    assert "| -0.050 (" in line
    assert means == "| mean less uniform's | | | -0.050 | +0.150 | +0.100 | | | |"
