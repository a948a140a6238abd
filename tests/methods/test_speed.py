"""SPEED: who is continued, and the bias of that."""

import numpy as np
import pytest
from policy_steps import play

from budgetalloc import Budget
from budgetalloc.methods.speed import speed

NAN = float("nan")


def test_speed_continues_exactly_the_prompts_whose_screening_was_mixed():
    ids, rng = list(range(400)), np.random.default_rng(0)
    for seed in range(5):
        counts, rewards = play(speed(seed=seed), ids, Budget(1024, floor=0), rng.random(400).round(), rng)
        assert counts.sum() == 1024
        assert set(counts.sum(axis=0).tolist()) == {0, 4}  # rates of 0 and 1: nothing is mixed
        counts, rewards = play(speed(seed=seed), ids, Budget(1024, floor=0), rng.random(400), rng)
        assert counts.sum() == 1024
        mixed = [0 < sum(r[:4]) < 4 for r in rewards.values()]
        total = counts.sum(axis=0)
        odd = [x for x in ids if total[x] != (24 if mixed[x] else 4 * (total[x] > 0))]
        assert len(odd) <= 1  # the prompt at which the budget ends


def test_speed_screening_mean_of_the_continued_is_biased_as_its_docstring_says():
    p, k, kept = 0.1, 4, []
    expected = (p - p**k) / (1 - p**k - (1 - p) ** k)
    assert expected == pytest.approx(0.2906, abs=1e-4)
    rng = np.random.default_rng(1)
    for seed in range(40):
        _, rewards = play(speed(seed=seed), list(range(200)), Budget(1024, floor=0), [p] * 200, rng)
        kept += [np.mean(r[:k]) for x, r in rewards.items() if len(r) == 24]
    assert abs(np.mean(kept) - expected) < 4 * np.std(kept) / len(kept) ** 0.5
    assert expected - p > 20 * np.std(kept) / len(kept) ** 0.5  # the bias is far larger than what the test could miss


def test_speed_rewards_that_are_missing_do_not_qualify():
    step = speed(init=2, cont=4).begin(["a", "b", "c"], Budget(12, floor=0))
    first = step.request()
    ids_R = [x for x, n in zip("abc", first.tolist(), strict=True) for _ in range(n)]
    step.observe(ids_R, [NAN] * len(ids_R))
    assert not step.request()[first > 0].any()
