"""Forecasts of success: bins and scores that are right by hand."""

import numpy as np
import pytest

from budgetalloc.report.forecast import Forecast, share


def forecast(p_R, success_R):
    return Forecast.of(np.array(success_R, float), np.array(p_R, float), logged=0)


def test_a_perfect_forecast_explains_all_and_a_constant_one_nothing():
    assert forecast([1.0, 0.0, 1.0], [1, 0, 1]).explained == 1
    assert forecast([0.5, 0.5], [1, 0]).explained == 0


def test_tenths_hold_what_fell_into_them():
    rows = forecast([0.05, 0.07, 0.95], [0, 1, 1]).deciles()
    assert [row["rollouts"] for row in rows] == [2, 1]
    assert rows[0]["predicted"] == pytest.approx(0.06)
    assert [row["success"] for row in rows] == [0.5, 1.0]


def test_scores_of_nothing_are_nan():
    nothing = forecast([], [])
    assert np.isnan([nothing.brier, nothing.explained, nothing.surprise, share(0, 0)]).all()
    assert nothing.deciles() == []
