"""Set-ups of TRL's own tests with the callback attached: streams, and reward functions that are partials.

Environments, tools and images: test_row_shapes.py. Reward functions of every kind: test_reward_functions.py.
"""

import pytest
from conftest import rows, trained

import budgetalloc as ba

POLICIES = {"uniform": ba.uniform, "knapsack": ba.knapsack, "adaptive": ba.adaptive}


@pytest.fixture(params=POLICIES)
def policy(request):
    return POLICIES[request.param](seed=1)


@pytest.mark.parametrize("columns", ["known", "unknown"])
def test_streams(build, policy, columns):
    """Over more than one pass; a generator's columns are not known before its first row."""
    data = rows(12).to_iterable_dataset()
    if columns == "unknown":
        data = data.map(lambda row: row)
        assert data.column_names is None
    trainer = trained(build(data, max_steps=5), policy, candidates=1).trainer
    assert trainer.state.global_step == policy.estimator.step == 5
    assert set(policy.state_dict()["ids"]) == set(range(12))
