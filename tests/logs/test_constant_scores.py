"""A reward function that became constant is named in the report."""

import numpy as np

from budgetalloc.logs.completions import constant_scores


def test_a_reward_function_that_became_constant_is_named_and_no_other():
    rng, step_R = np.random.default_rng(0), np.repeat(np.arange(40), 8)
    coin_R = rng.integers(0, 2, 320).astype(float)
    dead_R = np.where(step_R < 25, coin_R, 0.0)
    scores = {
        "dead": dead_R,
        "silent at last": np.where(step_R < 38, dead_R, np.nan),
        "varies": coin_R,
        "never varied": np.ones(320),
        "rare": np.where(np.isin(step_R, (3, 9)), -1.0, 0.0),
        "just now": np.where(step_R < 31, coin_R, 0.0),
        "never scored": np.full(320, np.nan),
    }
    order_R = rng.permutation(320)
    lines = constant_scores(step_R[order_R], {name: scores_R[order_R] for name, scores_R in scores.items()})
    assert [line.split(" varied")[0] for line in lines] == [
        f"The reward function {x}" for x in ("dead", "silent at last")
    ]
    assert "is 0 for every rollout since step 25" in lines[0]
    assert constant_scores([], {"accuracy": []}) == []
