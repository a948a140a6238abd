"""Budgets in tokens and with quotas, and the batches that methods draw."""

import numpy as np
import pytest
from policy_steps import observe, seen

from budgetalloc import Budget
from budgetalloc.policies.published.across_prompts.dart import dart
from budgetalloc.policies.published.across_prompts.e3 import e3
from budgetalloc.policies.published.across_prompts.gvm import gvm
from budgetalloc.policies.published.across_prompts.vip import vip
from budgetalloc.policies.published.which_prompts.brorl import brorl
from budgetalloc.policies.published.which_prompts.drive import drive


@pytest.mark.parametrize("build", [e3, dart, brorl, drive], ids=lambda build: build.__name__)
@pytest.mark.parametrize("floor", [0, 2])
def test_tokens_and_quotas_are_served(build, floor):
    policy = build()
    observe(policy, {k: (k % 5) / 4 for k in range(12)})
    costs = np.linspace(10, 40, 12)
    counts = policy.allocate(list(range(12)), Budget(None, tokens=1500, cap=16, floor=floor), costs)
    assert 1400 < counts @ costs <= 1500
    domains = ["math"] * 6 + ["code"] * 6
    quotas = {"math": (60, 64), "code": (0, 40)}
    counts = policy.allocate(list(range(12)), Budget(96, cap=16, floor=floor, quotas=quotas), domains_P=domains)
    assert counts.sum() == 96
    assert 60 <= counts[:6].sum() <= 64


@pytest.mark.parametrize("make", [vip, gvm])
def test_without_a_floor_a_batch_is_drawn_and_every_prompt_has_its_turn(make):
    policy, met = seen(make(group=8), [0.5, 0.0, 1.0] + [0.5] * 10), np.zeros(40)
    for _ in range(60):
        counts_P = policy.allocate(range(40), Budget(64, floor=0))
        assert (counts_P > 0).sum() == 8
        met += counts_P > 0
        policy.observe([], [])
    assert met.min() >= 3  # 12 on average


@pytest.mark.parametrize("make", [vip, gvm])
def test_a_drawn_prompt_has_at_least_the_smallest_group(make):
    policy = make(prior=(1e-4, 1e-4), discount=1.0)
    policy.observe(["half"] * 8 + ["solved"] * 8 + ["hopeless"] * 8, [0, 1] * 4 + [1] * 8 + [0] * 8)
    counts_P = policy.allocate(["half", "solved", "hopeless"], Budget(24, floor=0, min_group=4))
    assert counts_P.min() == 4
