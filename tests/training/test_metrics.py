"""The metrics of a step, against sums over its groups by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.beliefs.expected import Sums
from budgetalloc.training.batch import Batch, Round
from budgetalloc.training.metrics import describe
from budgetalloc.training.scoring import Measure
from budgetalloc.training.success import Rule
from budgetalloc.values import mixed_group

rollouts = st.tuples(st.sampled_from(["a", "b", 7]), st.sampled_from([0.0, 1.0, np.nan]))
made = st.lists(rollouts, min_size=1, max_size=6)
rounds_with_hints = st.lists(st.tuples(made, st.booleans()), min_size=1, max_size=4)
KEYS = ("frac_mixed", "frac_all_pass", "frac_all_fail", "frac_mixed_predicted")


def as_round(rows, hinted):
    rewards_R = np.array([reward for _, reward in rows])
    return Round([name for name, _ in rows], rewards_R, rewards_R[:, None], rewards_R, np.ones(len(rows), int), hinted)


@given(rounds_with_hints)
def test_the_shares_of_groups_are_those_of_their_rollouts_without_a_hint(rounds):
    policy = ba.knapsack()
    policy.observe(["a", "a", 7], [1, 0, 1])
    step = policy.begin(["a", "b", 7], ba.Budget(rollouts=6))
    measure = Measure(Rule(), (0.0, 1.0), ("reward",), slope=1.0)
    batch = Batch.of([as_round(*each) for each in rounds], step, measure, Sums(), trainer_step=0)
    metrics = describe(batch)
    groups = {}
    for name, reward, hinted in zip(batch.ids_R, batch.rewards_R.tolist(), batch.hinted_R.tolist(), strict=True):
        groups.setdefault(name, [])
        if not hinted:
            groups[name].append(reward)
    met = {name: rewards for name, rewards in groups.items() if rewards}
    scored = {name: [x for x in rewards if not np.isnan(x)] for name, rewards in met.items()}
    scored = {name: rewards for name, rewards in scored.items() if rewards}
    assert batch.first_G.tolist() == [batch.ids_R.index(name) for name in groups]
    if not scored or max(map(len, met.values())) == 1:
        assert not set(KEYS) & set(metrics)
        return
    chances = [mixed_group(policy.belief([name]), [len(met[name])])[0, 0] for name in scored]
    expected = {
        "frac_mixed": np.mean([len(set(rewards)) > 1 for rewards in scored.values()]),
        "frac_all_pass": np.mean([min(rewards) == 1 for rewards in scored.values()]),
        "frac_all_fail": np.mean([max(rewards) == 0 for rewards in scored.values()]),
        "frac_mixed_predicted": np.mean(chances),
        "count/min": min(map(len, met.values())),
        "count/mean": np.mean(list(map(len, met.values()))),
        "count/max": max(map(len, met.values())),
        "prompts": len(groups),
    }
    assert {key: metrics[key] for key in expected} == pytest.approx(expected)
