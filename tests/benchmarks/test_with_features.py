"""The table of runs with features of texts beside the default's and uniform's."""

import with_features


def row(policy: str, seed: int, mean: float) -> dict:
    curve = [{"rollouts": at, "expected": mean, "pass64": mean + 0.1} for at in (0, 256)]
    return {"policy": policy, "mix": "u_shape", "rate": 3e-4, "seed": seed, "steps": 150, "curve": curve}


ROWS = [row("uniform4", seed, 0.5) for seed in (0, 1, 2, 100)]
ROWS += [row("uniform", seed, 0.4) for seed in (0, 1, 2, 100)]
ROWS += [row("adaptive", seed, 0.6) for seed in (0, 1, 100)]


def test_gains_are_paired_over_the_seeds_that_all_three_have():
    text = [row("adaptive_text", seed, mean) for seed, mean in ((0, 0.65), (1, 0.75), (2, 0.1), (100, 0.1))]
    text.append(row("adaptive", 0, 0.0))  # of the same file, and not the table's
    (line,) = list(with_features.lines(ROWS, text))[2:]
    assert line.startswith("| `u_shape` | 2 | 0.500 / 0.600 | 0.600 / 0.700 | 0.700 / 0.800 | +0.100 (")
    assert "| +0.200 (" in line


def test_another_variant_has_a_table_of_the_same_kind():
    head, _, line = with_features.lines(
        ROWS, [row("adaptive_singles", seed, 0.7) for seed in (0, 1)], "adaptive_singles"
    )
    assert "| `adaptive_singles` |" in head
    assert "| +0.100 (" in line


def test_one_seed_is_no_row():
    assert len(list(with_features.lines(ROWS, [row("adaptive_text", 0, 0.7)]))) == 2
