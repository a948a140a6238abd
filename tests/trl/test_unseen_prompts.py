"""A first epoch without history is reported once, with TRL's real trainer."""

import pytest
from conftest import trained

import budgetalloc as ba


@pytest.mark.parametrize(("policy", "reports"), [(ba.knapsack, 1), (ba.uniform, 0), (ba.thompson, 0)])
def test_a_first_epoch_of_many_steps_is_reported_for_policies_of_the_batch(build, caplog, policy, reports, monkeypatch):
    monkeypatch.setattr("budgetalloc.training.session._COLD_STEPS", 2)
    trained(build(max_steps=2), policy())
    assert caplog.text.count("had been seen before") == reports
