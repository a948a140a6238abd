"""Interpolated weights: the whole way is the end of the run."""

import doctest
from math import isnan
from typing import Any

import pytest

pytest.importorskip("trl")
import interpolated  # of benchmarks/learning
from train import train

from budgetalloc.cli.testbed import skills


def test_the_coverage_of_a_run_at_a_success() -> None:
    assert doctest.testmod(interpolated).failed == 0
    assert interpolated.coverage_at(0.1, [0.2, 0.4], [0.9, 0.8]) == 0.9
    assert isnan(interpolated.coverage_at(0.5, [0.2, 0.4], [0.9, 0.8]))


def test_the_shares_lie_between_start_and_end() -> None:
    small: dict[str, Any] = {"steps": 3, "prompts": 8, "generations": 4, "learning_rate": 1e-3, "progress": False}
    result = train(seed=1, rows=skills.pool(4), held_out_rows=skills.held_out(1), **small)
    found = interpolated.interpolate(result.trainer)
    assert list(found) == list(interpolated.SHARES)
    assert found[1.0].expected == pytest.approx(result.curve[-1].expected, abs=1e-6)
    away = [abs(found[share].expected - result.curve[0].expected) for share in (0.25, 1.0)]
    assert away[0] < away[1]
