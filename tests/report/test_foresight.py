"""Forecasts of waste: the chance of equal rewards, and scores that are right by brute force."""

from itertools import product

import numpy as np
import pytest

from budgetalloc import Beta
from budgetalloc.report.foresight import BINS, Foresight, bin_of, equal_chance, share


def foresight(p_G, wasted_G):
    """Of single groups of eight."""
    p_G, wasted_G = np.array(p_G, float), np.array(wasted_G, int)
    counts = [np.bincount(bin_of(p_G), weights=x, minlength=BINS) for x in (np.ones(len(p_G)), wasted_G, p_G)]
    groups_B, wasted_B = counts[0].astype(int), counts[1].astype(int)
    brier = float(((p_G - wasted_G) ** 2).mean()) if len(p_G) else float("nan")
    return Foresight(groups_B, wasted_B, counts[2], 8 * groups_B, 8 * wasted_B, brier, 0.5, 3, 1, 8)


def test_the_chance_of_equal_rewards_is_that_of_drawing_them():
    belief = Beta([0.5, 2.0, 7.0], [0.5, 3.0, 1.0])
    rng = np.random.default_rng(0)
    for at, n in enumerate([2, 5, 8]):
        rate_D = rng.beta(belief.alpha_P[at], belief.beta_P[at], 200_000)
        drawn = (rate_D**n + (1 - rate_D) ** n).mean()
        assert equal_chance(belief, [2, 5, 8])[at] == pytest.approx(drawn, abs=0.005)


def test_the_area_under_the_curve_counts_pairs():
    rng = np.random.default_rng(1)
    p_G = rng.random(60)
    wasted_G = rng.random(60) < p_G
    pairs = [
        (1.0 if bin_of(np.array([p]))[0] > bin_of(np.array([q]))[0] else 0.5)
        if bin_of(np.array([p]))[0] >= bin_of(np.array([q]))[0]
        else 0.0
        for p, q in product(p_G[wasted_G], p_G[~wasted_G])
    ]
    assert foresight(p_G, wasted_G).auc == pytest.approx(np.mean(pairs))


def test_a_perfect_forecast_has_skill_one_and_a_constant_one_none():
    assert foresight([1.0, 0.0, 1.0], [1, 0, 1]).skill == 1
    assert foresight([0.5, 0.5], [1, 0]).skill == 0


def test_a_group_is_called_from_ninety_per_cent_on():
    forecast = foresight([0.8999, 0.9, 0.95, 1.0], [1, 1, 0, 1])
    assert forecast.called() == {"groups": 3, "wasted": 2, "rollouts": 24, "wasted_rollouts": 16}
    assert forecast.called(0.5)["groups"] == 4


def test_tenths_hold_what_fell_into_them():
    rows = foresight([0.05, 0.07, 0.95], [0, 1, 1]).deciles()
    assert [row["groups"] for row in rows] == [2, 1]
    assert rows[0]["predicted"] == pytest.approx(0.06)
    assert [row["wasted"] for row in rows] == [0.5, 1.0]


def test_nothing_predicted_is_not_a_number():
    nothing = foresight([], [])
    assert np.isnan([nothing.auc, nothing.skill, nothing.base, share(0, 0)]).all()
    assert nothing.deciles() == []
