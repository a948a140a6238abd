"""Quotas against enumeration, and the greedy and drawn counts under them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import Budget, BudgetError, InputError, Point, certify, greedy, mixed_group
from budgetalloc.solvers.domains import Domains, totals_of_domains

NAMES = ["math", "code", "chat", None]


@st.composite
def quotas_of_prompts(draw, most_prompts=6, groups=4):
    """A budget with quotas, and the domain of each prompt; the quotas may be impossible."""
    prompts, quantum, group = draw(st.integers(1, most_prompts)), draw(st.integers(1, 3)), draw(st.integers(1, groups))
    floor = draw(st.sampled_from([0, group]))
    low = -(-group // quantum) * quantum
    cap = low + draw(st.integers(0, 8))
    top = cap // quantum * prompts
    portions = draw(st.integers(low // quantum * prompts if floor else 1, top))
    budget = Budget(rollouts=quantum * portions, floor=floor, cap=cap, quantum=quantum, min_group=group)
    domains = [draw(st.sampled_from(NAMES)) for _ in range(prompts)]
    quotas = {}
    for name in sorted({x for x in domains if x is not None}):
        low = draw(st.integers(0, budget.rollouts // 2))
        quotas[name] = (low, low + draw(st.integers(0, budget.rollouts)))
    return replace(budget, quotas=quotas), domains


def holds(counts_P, budget, domains):
    """Whether counts keep every bound of a budget."""
    assert counts_P.sum() == budget.rollouts
    assert np.isin(counts_P, budget.grid()).all()
    for name, (fewest, most) in budget.quotas.items():
        assert fewest <= sum(n for n, d in zip(counts_P.tolist(), domains, strict=True) if d == name) <= most


def possible(budget, domains):
    """Every list of counts within the bounds, by enumeration."""
    for counts in itertools.product(budget.grid().tolist(), repeat=len(domains)):
        by_name = {name: sum(n for n, d in zip(counts, domains, strict=True) if d == name) for name in budget.quotas}
        inside = all(low <= by_name[name] <= high for name, (low, high) in budget.quotas.items())
        if sum(counts) == budget.rollouts and inside:
            yield counts


@settings(max_examples=50, deadline=None)
@given(quotas_of_prompts(most_prompts=4), st.integers(0, 2**32 - 1))
def test_quotas_are_kept_where_any_counts_keep_them_and_refused_where_none_do(made, seed):
    budget, domains = made
    rng = np.random.default_rng(seed)
    values_PN = mixed_group(Point(rng.random(len(domains))), budget.grid())
    if next(possible(budget, domains), None) is None:
        with pytest.raises(BudgetError, match=r"no counts satisfy all constraints|no set of groups"):
            greedy(values_PN, None, budget, domains_P=domains)
        with pytest.raises(BudgetError, match="no counts satisfy all constraints"):
            totals_of_domains(rng.random(len(domains)), Domains.of(domains, budget), rng)
        return
    holds(greedy(values_PN, None, budget, domains_P=domains), budget, domains)
    parts = Domains.of(domains, budget)
    total_D = totals_of_domains(rng.random(len(domains)), parts, rng)
    assert total_D.sum() == budget.rollouts
    assert (total_D >= parts.low_D).all()
    assert (total_D <= parts.high_D).all()
    assert all(parts.fits(at, total) for at, total in enumerate(total_D.tolist()))


@settings(max_examples=50, deadline=None)
@given(quotas_of_prompts(most_prompts=4), st.lists(st.floats(0, 48), min_size=4, max_size=4))
def test_the_nearest_totals_that_can_be_spent(made, wanted):
    budget, domains = made
    sums = {
        tuple(sum(n for n, d in zip(counts, domains, strict=True) if (d if d in budget.quotas else None) == name)
        for name in [*budget.quotas, None])
        for counts in possible(budget, domains)
    }  # fmt: skip
    if not sums:
        return
    parts = Domains.of(domains, budget)
    wanted_D = np.array(wanted[: len(parts.rows_D)])
    chosen_D = parts.spendable(wanted_D)
    distances = [sum((a - b) ** 2 for a, b in zip(total, wanted_D, strict=False)) for total in sums]
    assert tuple(chosen_D.tolist()) in {total[: len(chosen_D)] for total in sums}
    assert ((chosen_D - wanted_D) ** 2).sum() == pytest.approx(min(distances))


@settings(max_examples=50, deadline=None)
@given(quotas_of_prompts(groups=1), st.integers(0, 2**32 - 1), st.sampled_from([1.0, 0.5]))
def test_greedy_is_optimal_for_concave_values_where_rollouts_are_given_one_portion_at_a_time(made, seed, tie):
    """Against HiGHS, whose answer is proved; equal gains (`tie`) included."""
    budget, domains = made
    rng = np.random.default_rng(seed)
    gains_PN = -np.sort(-np.ceil(rng.random((len(domains), budget.counts)) / tie * 4) * tie, axis=1)
    values_PN = np.cumsum(gains_PN, axis=1) - (gains_PN[:, :1] if budget.fewest == 0 else 0.0)
    try:
        best = certify(values_PN, None, budget, domains_P=domains)
    except BudgetError:
        return
    counts_P = greedy(values_PN, None, budget, domains_P=domains)
    holds(counts_P, budget, domains)
    value = values_PN[np.arange(len(domains)), np.searchsorted(budget.grid(), counts_P)].sum()
    assert best.optimal
    assert value == pytest.approx(best.value, abs=1e-9)


def test_groups_under_quotas_are_nearly_optimal():
    """With groups of 4 or none the totals come from concave hulls: little is lost, and never a quota."""
    lost = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        domains = [NAMES[at] for at in rng.integers(0, 4, 24)]
        budget = Budget(96, floor=0, cap=12, min_group=4, quotas={"math": (30, 40), "code": (7, 21)})
        values_PN = mixed_group(Point(rng.random(24)), budget.grid())
        counts_P = greedy(values_PN, None, budget, domains_P=domains)
        holds(counts_P, budget, domains)
        best = certify(values_PN, None, budget, domains_P=domains, time_limit=60)
        value = values_PN[np.arange(24), np.searchsorted(budget.grid(), counts_P)].sum()
        lost.append(1 - value / best.value)
    assert max(lost) < 0.02
    assert np.mean(lost) < 0.005


def test_quotas_that_do_not_bind_change_nothing():
    budget = Budget(64, floor=2, cap=16)
    values_PN = mixed_group(Point(np.linspace(0.05, 0.95, 12)), budget.grid())
    loose = Budget(64, floor=2, cap=16, quotas={"math": (0, 64), "code": (10, 1000)})
    domains = ["math", "code", "chat"] * 4
    assert greedy(values_PN, None, loose, domains_P=domains).tolist() == greedy(values_PN, None, budget).tolist()


def test_totals_follow_the_weights_and_their_expectation_is_exact():
    budget = Budget(10, floor=0, min_group=1, quotas={"math": (0, 4), "code": (2, 10)})
    domains = ["math", "math", "code", "chat"]
    weights_P = np.array([30.0, 30.0, 1.0, 29.0])  # of 10: 6.7, 0.1, 3.2; within the quotas: 4, 2, 4
    parts, rng = Domains.of(domains, budget), np.random.default_rng(0)
    assert totals_of_domains(weights_P, parts, rng).tolist() == [4, 2, 4]
    free = Domains.of(domains, Budget(10, floor=0, min_group=1, quotas={"math": (0, 10), "code": (0, 10)}))
    drawn = np.array([totals_of_domains(weights_P, free, rng) for _ in range(4000)])
    assert drawn.mean(axis=0) == pytest.approx(10 * np.array([60, 1, 29]) / 90, abs=0.03)
    assert np.ptp(drawn, axis=0).max() == 1


def test_a_domain_that_no_prompt_has_is_named():
    with pytest.raises(InputError, match="quotas name 'maths', which is the domain of no prompt"):
        Domains.of(["math"], Budget(8, quotas={"maths": (0, 8)}))


def test_totals_far_from_what_was_wanted():
    """The first window around what is wanted, of 2 rollouts, holds no totals that add up."""
    budget = Budget(600, floor=0, min_group=1, cap=400, quotas={"math": (0, 600)})
    assert Domains.of(["math", "code"] * 3, budget).spendable([0, 0]).tolist() == [300, 300]
    assert Domains.of(["math", "code"] * 3, budget).spendable([500, 0]).tolist() == [550, 50]


def test_weights_that_are_all_zero_are_equal():
    parts = Domains.of(["math"] * 3 + ["code"], Budget(8, floor=0, min_group=1, quotas={"math": (0, 8)}))
    assert totals_of_domains(np.zeros(4), parts, np.random.default_rng(0)).tolist() == [6, 2]


def test_domains_are_required_for_quotas():
    with pytest.raises(InputError, match="domains_P=None: quotas need the domain"):
        Domains.of(None, Budget(8, quotas={"math": (0, 8)}))
