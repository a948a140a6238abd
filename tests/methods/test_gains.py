"""Spending by gains per rollout."""

import numpy as np

from budgetalloc import Budget, Policy
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.methods.gains import spend_gains, token_prices


def counts(gains_P, starts_P, high, budget, costs_P=None):
    """Of prompts with constant gains."""

    def decide(view):
        price_P = token_prices(view)
        prices = {x: (gain, start) for x, gain, start in zip(range(9), gains_P, starts_P, strict=False)}
        gain_P = np.array([prices[x][0] for x in view.ids_P]) / price_P
        start_P = np.array([prices[x][1] for x in view.ids_P])
        return spend_gains(lambda counts_N: np.repeat(gain_P[:, None], counts_N.size, axis=1), start_P, high, view)

    return Policy("test", decide, BetaEstimator()).allocate(range(len(gains_P)), budget, costs_P).tolist()


def test_first_shares_then_gains_then_all_alike():
    gains_P, starts_P = [0.01, 0.05, 1e-20], [2, 2, 4]
    assert counts(gains_P, starts_P, 6, Budget(rollouts=8)) == [2, 2, 4]
    assert counts(gains_P, starts_P, 6, Budget(rollouts=11)) == [2, 5, 4]
    assert counts(gains_P, starts_P, 6, Budget(rollouts=14)) == [4, 6, 4]
    assert counts(gains_P, starts_P, 6, Budget(rollouts=17)) == [6, 6, 5]  # a gain of nothing is before a full group
    assert counts(gains_P, starts_P, 6, Budget(rollouts=30)) == [10, 10, 10]


def test_first_shares_are_ranked_whatever_a_token_costs():
    """Floors cost 102 tokens and shares 204; a gain of the cheap prompt alone is worth more per token than a share."""
    spent = [(184, [8, 5, 3]), (204, [4, 4, 4]), (230, [8, 6, 4])]
    for tokens, wanted in spent:
        budget = Budget(rollouts=None, tokens=tokens, cap=8)
        assert counts([0.1, 0.1, 0.1], [4, 4, 4], 8, budget, [1, 10, 40]) == wanted
