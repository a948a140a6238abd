"""PAC: the utility and the Gaussian belief of its Algorithm 1, by brute force, and the draws of categories."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import Budget
from budgetalloc.methods.pac import one_by_one, pac

FIRST = lambda prompt: prompt[0]  # noqa: E731
STEPS = st.lists(
    st.dictionaries(st.sampled_from(["a1", "a2", "b1", "c1"]), st.integers(0, 4), min_size=1), min_size=1, max_size=9
)


def algorithm_1(history, window, inflation):
    """mu and s2 of each category, all statistics recomputed from the whole history after every step."""
    belief, log = {}, []
    for visits in history:
        by_category = {}
        for x, wins in visits.items():
            m = wins / 4
            by_category.setdefault(x[0], []).append((2 * np.sqrt(m * (1 - m)), m))
        log.append(by_category)
        for c in by_category:
            belief.setdefault(c, (0.0, 1.0))
        recent = log[-window:]
        sizes, slopes = {}, {}
        for c in belief:
            at = [k for k, step in enumerate(recent) if c in step]
            sizes[c] = np.mean([np.mean([a for a, _ in recent[k][c]]) for k in at]) if at else 0.0
            means = [np.mean([m for _, m in recent[k][c]]) for k in at]
            places = [k / max(len(recent) - 1, 1) for k in at]
            slopes[c] = np.polyfit(places, means, 1)[0] if len(at) >= 3 else 0.0
        total = sum(abs(x) for x in slopes.values()) + 1e-9
        for c, (mu, s2) in belief.items():
            u = (1 + slopes[c] / total) * sizes[c]
            rho = len(by_category.get(c, [])) / len(visits) * len(belief)
            eta = 1 / s2 + rho
            belief[c] = ((mu / s2 + rho * u) / eta, 1 / eta + inflation)
    return belief


@given(history=STEPS, window=st.sampled_from([1, 3, 16]))
@settings(max_examples=25, deadline=None)
def test_the_belief_is_that_of_algorithm_1(history, window):
    policy = pac(domain_of=FIRST, window=window, inflation=0.02)
    for visits in history:
        policy.observe([x for x in visits for _ in range(4)], [float(k < visits[x]) for x in visits for k in range(4)])
    for c, (mu, s2) in algorithm_1(history, window, 0.02).items():
        assert policy.memory.numbers[f"mu:{c}"] == pytest.approx(mu, abs=1e-6)
        assert policy.memory.numbers[f"s2:{c}"] == pytest.approx(s2, abs=1e-9)
    kept = [key for key in policy.memory.numbers if key.startswith("size:")]
    assert len(kept) <= 3 * window


def test_each_slot_takes_the_best_category_that_has_a_prompt_left():
    draws_SC = np.array([[0.1, 0.9], [0.1, 0.9], [0.9, 0.8]])
    assert one_by_one(draws_SC, np.array([0, 0, 1])).tolist() == [2, 0, 1]
    assert one_by_one(draws_SC[:1], np.array([0, 1, 0])).tolist() == [1, 0, 2]


def drawn_first(build, ids, seeds):
    """How often the only group goes to category a, over policies of other seeds."""
    return sum(ids[int(np.argmax(build(k).allocate(ids, Budget(rollouts=8, floor=0))))][0] == "a" for k in range(seeds))


def test_the_first_steps_draw_categories_uniformly_and_later_ones_by_their_worth():
    ids = ["a1", "b1", "b2", "b3"]

    def build(cold):
        def make(seed):
            policy = pac(domain_of=FIRST, cold=cold, inflation=1e-6, seed=seed)
            for _ in range(8):
                policy.observe(["a1"] * 8 + ["b1"] * 8, [1] * 8 + [0, 1] * 4)
            return policy

        return make

    assert drawn_first(build(50), ids, 100) == pytest.approx(50, abs=4 * np.sqrt(25))  # not by its share of prompts
    assert drawn_first(build(0), ids, 100) < 30
