"""The exact solvers against enumeration, under every constraint, and their bound."""

import itertools
import re
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from budgetalloc import (
    Budget,
    BudgetError,
    InputError,
    Point,
    UnsupportedError,
    certify,
    greedy,
    highs,
    mixed_group,
    ortools,
    pass_at_n,
)
from budgetalloc.solvers import exact
from budgetalloc.solvers.exact import _whole_tokens

needs_ortools = pytest.mark.skipif(find_spec("ortools") is None, reason="OR-Tools is not installed")


def enumerate_best(values_PN, budget, costs_P=None, domains_P=None, max_prompts=None):
    """The best value over every choice that satisfies every constraint, or None."""
    grid, best = budget.grid(), None
    for choice in itertools.product(range(grid.size), repeat=len(values_PN)):
        counts = grid[list(choice)]
        ok = budget.rollouts is None or counts.sum() == budget.rollouts
        ok = ok and (budget.tokens is None or counts @ np.asarray(costs_P) <= budget.tokens * (1 + 1e-12))
        ok = ok and (max_prompts is None or (counts > 0).sum() <= max_prompts)
        for domain, (fewest, most) in (budget.quotas or {}).items():
            ok = ok and fewest <= counts[[d == domain for d in domains_P]].sum() <= most
        if ok:
            value = float(values_PN[np.arange(len(choice)), list(choice)].sum())
            best = value if best is None else max(best, value)
    return best


@pytest.mark.parametrize("by", ["highs", pytest.param("ortools", marks=needs_ortools)])
@given(st.integers(0, 2**32 - 1))
@example(900)  # costs of 0.3 and 1.8 that fill a budget of 9 exactly
@settings(max_examples=60, deadline=None)
def test_against_enumeration_under_every_constraint(by, seed):
    rng = np.random.default_rng(seed)
    prompts = int(rng.integers(1, 4))
    floor = int(rng.integers(0, 3))
    rollouts = None if rng.random() < 0.3 else int(rng.integers(1, 13))
    tokens = float(rng.integers(5, 80)) if rollouts is None or rng.random() < 0.5 else None
    budget = Budget(rollouts=rollouts, tokens=tokens, floor=floor, cap=int(rng.integers(2, 7)), min_group=max(1, floor))
    values_PN = np.cumsum(rng.random((prompts, 7)), axis=1)[:, : budget.grid().size]
    if values_PN.shape[1] < budget.grid().size or not budget.grid().size:
        return
    costs_P = rng.integers(1, 9, prompts) * rng.choice([1.0, 0.3]) if tokens else None
    constraints = {}
    if rng.random() < 0.5:
        low = int(rng.integers(0, 5))
        constraints = {"domains_P": list("aba")[:prompts]}
        budget = replace(budget, quotas={"a": (low, low + int(rng.integers(0, 8)))})
    if floor == 0 and rng.random() < 0.5:
        constraints["max_prompts"] = int(rng.integers(1, 4))
    if tokens and seed % 2:  # beyond the tokens that HiGHS has exactly
        costs_P, tokens = costs_P * 1_000_003, tokens * 1_000_003
        budget = replace(budget, tokens=tokens)
    best = enumerate_best(values_PN, budget, costs_P, **constraints)
    if best is None:
        with pytest.raises(BudgetError):
            certify(values_PN, costs_P, budget, **constraints, by=by)
        return
    solution = certify(values_PN, costs_P, budget, **constraints, by=by)
    assert solution.optimal
    assert solution.value == pytest.approx(best, abs=1e-6)
    assert solution.value <= solution.bound + 1e-12
    assert best <= solution.bound + 1e-9
    assert solution.bound == pytest.approx(best, abs=1e-6)
    assert np.isin(solution.counts_P, budget.grid()).all()
    assert rollouts is None or solution.counts_P.sum() == rollouts
    assert tokens is None or solution.counts_P @ costs_P <= tokens * (1 + 1e-12)


@pytest.mark.parametrize("solve", [highs, pytest.param(ortools, marks=needs_ortools)])
def test_tokens_keep_their_precision_in_a_large_budget(solve):
    """1,024 rollouts of thousands of tokens: rounding costs to a millionth of the budget would lose whole rollouts."""
    budget = Budget(rollouts=None, tokens=4_000_000_000, floor=1, min_group=1, cap=3)
    values_PN = pass_at_n(Point([0.4, 0.5]), budget.grid())
    assert solve(values_PN, [1_000_000_001, 333_333_333], budget).tolist() == [3, 2]
    assert solve(values_PN, [1_000_000_000.5, 333_333_333.5], budget).tolist() == [3, 2]
    assert solve(values_PN, [1_000_000_000, 333_333_333], budget).tolist() == [3, 3]
    assert solve(values_PN, [999_999_999.5, 333_333_333.5], budget).tolist() == [3, 3]


@needs_ortools
def test_no_time_at_all():
    budget = Budget(rollouts=64, floor=2, cap=32)
    values_PN = mixed_group(Point(np.linspace(0, 1, 16)), budget.grid())
    given = {"time_limit": 1e-6, "by": "ortools"}
    with pytest.raises(BudgetError, match=r"CP-SAT found no counts within time_limit=1e-06 s\. Allow more time"):
        certify(np.pad(values_PN, ((0, 0), (1, 0))), None, replace(budget, floor=0), max_prompts=8, **given)
    uneven_PN, uneven = np.pad(values_PN, ((0, 0), (1, 0))), replace(budget, floor=0)
    solution = certify(uneven_PN, None, uneven, **given)
    assert (solution.counts_P == greedy(uneven_PN, None, uneven)).all()  # the answer where the search has none
    assert (solution.bound, solution.optimal) == (np.inf, False)


GRID = Budget(rollouts=16, floor=0, cap=8)
FLAT = np.zeros((4, GRID.grid().size))
DOMAINS = ["a", "a", "b", "b"]


@needs_ortools
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_the_fewest_tokens_that_suffice(seed):
    """With too few tokens for its rollouts, the error names how many are enough: they are, and one fewer is not."""
    rng = np.random.default_rng(seed)
    floor = int(rng.choice([0, 2]))
    cap = int(rng.integers(3, 6))
    rollouts = int(rng.integers(6, 3 * cap + 1))
    values_PN = np.zeros((3, Budget(rollouts=rollouts, floor=floor, cap=cap).grid().size))
    costs_P = rng.integers(1, 2000, 3) * 1009
    with pytest.raises(BudgetError, match=r"Use tokens=\d+ or more") as caught:
        certify(values_PN, costs_P, Budget(rollouts=rollouts, tokens=1, floor=floor, cap=cap))
    enough = int(re.search(r"Use tokens=(\d+)", str(caught.value))[1])
    counts_P = ortools(values_PN, costs_P, Budget(rollouts=rollouts, tokens=enough, floor=floor, cap=cap))
    assert counts_P @ costs_P == enough
    with pytest.raises(BudgetError, match=f"Use tokens={enough} or more"):
        certify(values_PN, costs_P, Budget(rollouts=rollouts, tokens=enough - 1, floor=floor, cap=cap))


@pytest.mark.parametrize(
    ("costs_P", "tokens", "prices", "limit"),
    [
        ([3.0, 5.0], 80.0, [3, 5], 80),
        ([0.3, 1.8], 9.0, [3, 18], 90),
        ([0.3, 1e300], 9.0, [3, 190], 90),  # a cost above the budget becomes twice the budget plus 1
        ([0.000001, 2.0], 3.0, [1, 2_000_000], 3_000_000),
        ([1 / 3, 1.0], 2.0, [166_666_666_667, 500_000_000_000], 10**12),  # rounded up
        ([1 / 3, 1e300], 2.0, [166_666_666_667, 2 * 10**12], 10**12),
        ([0.5, 1.0], 1e12, [1, 1], 10**12),  # too many tokens for a decimal: multiples of one
        ([0.5, 1.0], 2e11, [3, 5], 10**12),  # and of a fifth
        ([2e-7, 1.0], 1.0, [200_000, 10**12], 10**12),  # seven decimals
        ([3.0, 5.0], 9.5, [3, 5], 9),
    ],
)
def test_tokens_become_integers(costs_P, tokens, prices, limit):
    price_P, most = _whole_tokens(np.array(costs_P), tokens)
    assert (price_P.tolist(), most) == (prices, limit)


@pytest.mark.parametrize(
    ("budget", "constraints", "text", "absent"),
    [
        (GRID, {"quotas": {"a": (20, 30)}}, r"\['a'\]=\(20, 30\) cannot hold for 2 prompts, .* 0 to 16", "Loosen"),
        (GRID, {"quotas": {"a": (9, 16), "b": (10, 16)}}, "quotas ask for 19 rollouts: use rollouts=19", "Loosen"),
        (GRID, {"quotas": {"a": (1, 16), "b": (15, 16)}}, "Loosen quotas", "quotas ask for"),  # groups of 2 and more
        (GRID, {"quotas": {"a": (2, 2)}, "max_prompts": 2}, r"Loosen quotas, max_prompts\.$", "max_prompts=2 allows"),
        (GRID, {"quotas": {"a": (16, 16), "b": (2, 16)}}, "quotas ask for 18 rollouts", "cannot hold"),
        (Budget(16, cap=8), {"quotas": {"a": (0, 3)}}, "cannot hold for 2 prompts, which take 4 to 16", "Loosen"),
        (Budget(16, cap=8), {"quotas": {"a": (0, 4), "b": (0, 4)}}, "quotas allow 8 rollouts", "cannot hold"),
        (
            Budget(20, floor=0, cap=8),
            {"quotas": {"a": (0, 2)}},
            "allow 2 rollouts, and the other prompts take 16: use rollouts=18, or higher quotas",
            "Loosen",
        ),
        (Budget(16, floor=0, cap=8, min_group=4), {"quotas": {"a": (3, 3)}}, "groups of 4 to 8", "Loosen"),
        (GRID, {"quotas": {"a": (0, 0)}, "max_prompts": 1}, "max_prompts=1 allows 8 rollouts", "quotas allow"),
        (GRID, {"max_prompts": 0}, "max_prompts=0 allows 0 rollouts: use max_prompts=2", "Loosen"),
    ],
)
def test_only_infeasible_constraints_are_named(budget, constraints, text, absent):
    budget = replace(budget, quotas=constraints.pop("quotas", None))
    with pytest.raises(BudgetError, match=text) as caught:
        certify(np.zeros((4, budget.grid().size)), None, budget, domains_P=DOMAINS, **constraints)
    assert absent not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"max_prompts": -1}, "max_prompts=-1"),
        ({"max_prompts": 0.5}, "max_prompts=0.5"),
        ({"time_limit": 0}, "time_limit=0"),
        ({"time_limit": 1e6 + 1}, "time_limit="),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**31}, "seed=2147483648"),
        ({"by": "cp-sat"}, r"by='cp-sat': use one of \('highs', 'ortools', 'price'\)"),
    ],
)
def test_a_bad_setting_is_named(given, text):
    with pytest.raises(InputError, match=text):
        certify(FLAT, None, GRID, **given)


def test_the_options_of_highs_and_a_search_that_ends_early(monkeypatch):
    import scipy.optimize

    passed, milp = [], scipy.optimize.milp

    def recording(*args, **given):
        passed.append(given["options"])
        result = milp(*args, **given)
        if len(passed) == 1:
            return result
        result.status, result.mip_dual_bound = 1, None if len(passed) == 3 else result.mip_dual_bound - 1.0
        result.x = None if len(passed) == 3 else result.x
        return result

    monkeypatch.setattr(scipy.optimize, "milp", recording)
    values_PN = mixed_group(Point([0.5, 0.1, 0.2, 0.3]), GRID.grid())
    whole = certify(values_PN, None, GRID)
    cut = certify(values_PN, None, GRID, time_limit=2.0)
    assert passed == [{"time_limit": 10.0, "mip_rel_gap": 1e-9}, {"time_limit": 2.0, "mip_rel_gap": 1e-9}]
    assert (whole.optimal, cut.optimal) == (True, False)
    assert cut.bound == pytest.approx(whole.bound + values_PN.max() / 1e3)
    with pytest.raises(BudgetError, match=r"HiGHS found no counts within time_limit=10 s\. Allow more time"):
        certify(values_PN, [1.0] * 4, replace(GRID, tokens=20.0), max_prompts=4)


def test_tokens_beyond_the_precision_of_highs_are_cut_off(monkeypatch):
    """Costs of 10 digits: HiGHS allows 3 rollouts each, a billionth too expensive, until they are excluded."""
    import scipy.optimize

    passed, milp = [], scipy.optimize.milp

    def recording(*args, constraints, **given):
        passed.append(constraints.A.shape[0])
        return milp(*args, constraints=constraints, **given)

    monkeypatch.setattr(scipy.optimize, "milp", recording)
    budget = Budget(rollouts=None, tokens=4_000_000_000, floor=1, min_group=1, cap=3)
    values_PN = pass_at_n(Point([0.4, 0.5]), budget.grid())
    solution = certify(values_PN, [1_000_000_001, 333_333_333], budget)
    assert passed == [3, 4]
    assert solution.counts_P.tolist() == [3, 2]
    assert solution.optimal
    assert solution.value <= solution.bound < solution.value + 1e-6
    monkeypatch.setattr(exact, "_CUTS", 1)
    careful = certify(values_PN, [1_000_000_001, 333_333_333], budget)
    assert careful.counts_P.tolist() == [3, 2]
    assert not careful.optimal
    assert careful.bound == pytest.approx(values_PN[:, 2].sum())  # of the first search, in which 3 rollouts each fit
    monkeypatch.setattr(exact, "_CUTS", 0)  # nothing is cut off: the lower limit alone
    assert certify(values_PN, [1_000_000_001, 333_333_333], budget).counts_P.tolist() == [3, 2]


def test_without_ortools_its_solver_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ortools.sat.python.cp_model", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'budgetalloc\[ortools\]'.*solver=ba\.highs"):
        ortools(FLAT, None, GRID)
    assert highs(FLAT, None, GRID).sum() == 16
