"""Every method of the table keeps the rules that a policy must keep. A new method is one row there."""

from functools import partial

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc import policies, testing, values
from budgetalloc.methods.table import METHODS
from budgetalloc.testing.conformance import IDS

SLOW = (testing.survives, testing.starves_no_prompt)
CHECKS = [
    pytest.param(check, marks=[pytest.mark.slow] * (check in SLOW), id=check.__name__) for check in testing.CHECKS
]


def with_hints(seed, policy, rollouts, share):
    """Hints for the prompts whose id ends with an even digit."""
    hint = lambda ids: [x for x in ids if str(x)[-1] in "02468"]  # noqa: E731
    return ba.methods.on_all_fail(policy(seed=seed), hint, rollouts=rollouts, unhinted=1, share=share, fewest=1)


def with_a_second_round(seed, policy):
    return policies.sequential(policy(seed=seed), share=0.4)


def with_retries(seed, policy):
    return policies.retrying(policy(seed=seed))


def that_grows(seed, policy, **settings):
    return policies.growing(policy(seed=seed), **settings)


OTHER_SETTINGS = (
    partial(policies.knapsack, belief="mean", value=values.success_gain),
    partial(ba.methods.ar3po, stages=4),
    partial(ba.methods.reinforce_ada, quota="positive", stages=3),
    partial(ba.methods.dapo, order="thompson"),
    partial(ba.methods.knapsack_rl, low=3, high=5, surplus="effective"),
    partial(ba.methods.coba_rl, high=4),
    partial(ba.methods.cero, high=3, saturation=2.0),
    partial(ba.methods.vip, form="dr_grpo"),
    partial(ba.methods.cures, first=0),
    partial(ba.methods.hora, pilot=1),
    partial(ba.methods.xrpo, base=3, rounds=3, bonus="linear", clock="steps"),
    partial(ba.methods.xrpo, base=6, rounds=5),
    partial(ba.adaptive, features=ba.Features(IDS, np.eye(4)[np.arange(len(IDS)) % 4])),
    partial(with_hints, policy=ba.uniform, rollouts=2, share=0.3),
    partial(with_hints, policy=ba.adaptive, rollouts=4, share=0.05),
    partial(with_hints, policy=ba.methods.dapo, rollouts=3, share=0.9),
    partial(with_a_second_round, policy=ba.adaptive),
    partial(with_retries, policy=policies.sampled),
    partial(with_a_second_round, policy=ba.methods.ar3po),
    partial(that_grows, policy=ba.uniform),
    partial(that_grows, policy=ba.adaptive, first=1, most=3),
)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_method_keeps_the_rules(method, check):
    if check is testing.starves_no_prompt and method.starves:
        pytest.skip("its paper leaves prompts out for good")
    check(method.build)


@pytest.mark.parametrize("floor", [0, 2])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_method_keeps_tokens_and_quotas_or_says_that_it_decides_in_rounds(method, floor):
    costs_P, math_P = 10.0 * np.arange(1, len(IDS) + 1), np.arange(len(IDS)) % 3 > 0
    domains_P = ["math" if math else "code" for math in math_P]
    quotas = {"math": (20 + 10 * floor, 24 + 10 * floor), "code": (0, 96)}
    for budget, given in (
        (ba.Budget(None, tokens=9000.0, cap=16, floor=floor), {"costs_P": costs_P}),
        (ba.Budget(96, cap=16, floor=floor, quotas=quotas), {"domains_P": domains_P}),
    ):
        step = testing.trained(method.build).begin(IDS, budget, **given)
        if method.in_rounds():
            with pytest.raises(ba.UnsupportedError, match="spends rollouts only"):
                step.request()
            continue
        counts_P = step.request()
        assert budget.rollouts in (None, counts_P.sum())
        assert budget.tokens is None or budget.tokens / 3 <= counts_P @ costs_P <= budget.tokens
        assert budget.tokens or quotas["math"][0] <= counts_P[math_P].sum() <= quotas["math"][1]


def settings_of(build):
    return ",".join([build.func.__name__, *(str(getattr(x, "__name__", x)) for x in build.keywords.values())])


@pytest.mark.parametrize("check", [check for check in testing.CHECKS if check not in SLOW], ids=lambda x: x.__name__)
@pytest.mark.parametrize("build", OTHER_SETTINGS, ids=settings_of)
def test_other_settings_keep_the_rules(build, check):
    check(build)
