"""One step of the shared regression: against a general optimiser, and without a look at the prompt's own outcomes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from budgetalloc import Beta
from budgetalloc.beliefs.regression import fitted, left_out_means


def a_step(seed, prompts=40, features=3):
    rng = np.random.default_rng(seed)
    x_GK = np.column_stack([np.ones(prompts), rng.normal(size=(prompts, features))])
    belief_G = Beta(rng.uniform(0.5, 8, prompts), rng.uniform(0.5, 8, prompts))
    trials_G = rng.integers(1, 9, prompts).astype(float)
    return x_GK, belief_G, rng.binomial(trials_G.astype(int), 0.7).astype(float), trials_G


@pytest.mark.parametrize("seed", range(5))
def test_the_move_maximises_the_penalised_likelihood(seed):
    x_GK, belief_G, successes_G, trials_G = a_step(seed)
    precision = np.diag([0.5, 2.0, 2.0, 2.0])
    share_G = 1 / (1 + trials_G / (belief_G.alpha_P + belief_G.beta_P))

    def loss(move):
        logit = np.log(belief_G.alpha_P / belief_G.beta_P) + x_GK @ move
        likelihood = share_G * (successes_G * logit - trials_G * np.logaddexp(0, logit))
        return -likelihood.sum() + move @ precision @ move / 2

    best = minimize(loss, np.zeros(4), tol=1e-10).x
    move, after = fitted(x_GK, belief_G, successes_G, trials_G, precision)
    assert move == pytest.approx(best, abs=2e-3)
    assert (np.linalg.eigvalsh(after - precision) > 0).all()  # outcomes only add information


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_one_sided_outcomes_move_a_belief_far_but_not_without_end(outcome):
    belief_G = Beta(np.full(50, 0.3), np.full(50, 0.3))
    move, _ = fitted(np.ones((50, 1)), belief_G, np.full(50, 8 * outcome), np.full(50, 8.0), np.eye(1) / 4)
    assert np.isfinite(move).all()
    assert 2 < abs(move[0]) < 10
    assert (move[0] > 0) == bool(outcome)


@given(seed=st.integers(0, 10**6), prompt=st.integers(0, 39))
@settings(max_examples=40, deadline=None)
def test_no_mean_depends_on_the_prompts_own_outcomes(seed, prompt):
    x_GK, belief_G, successes_G, trials_G = a_step(seed)
    before = left_out_means(x_GK, belief_G, successes_G, trials_G, np.eye(4))
    changed_G = successes_G.copy()
    changed_G[prompt] = trials_G[prompt] - changed_G[prompt]
    after = left_out_means(x_GK, belief_G, changed_G, trials_G, np.eye(4))
    assert after[prompt] == before[prompt]
    if changed_G[prompt] != successes_G[prompt]:
        assert (after != before).any()  # the others do depend on it


def test_a_single_prompt_keeps_its_belief():
    belief = Beta([2.0], [3.0])
    assert left_out_means(np.ones((1, 1)), belief, np.ones(1), np.ones(1), np.eye(1)) == pytest.approx([0.4])
