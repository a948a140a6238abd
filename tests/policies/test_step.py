"""One step of a policy: what is refused at the call, and that the step goes on after it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import InputError, policies
from budgetalloc.policies import interface
from budgetalloc.testing import same_state

NAMES = ["a", "b", "c"]


@given(data=st.data(), rollouts=st.integers(6, 24), seed=st.integers(0, 99))
def test_what_was_requested_is_accepted_in_any_portions_and_one_more_is_refused(data, rollouts, seed):
    """In any order, in as many calls as one likes, and without some of it. What is refused leaves no trace."""
    policy, other = ba.thompson(seed=seed), ba.thompson(seed=seed)
    budget = ba.Budget(rollouts=rollouts, floor=0)
    step, plain = policy.begin(NAMES, budget), other.begin(NAMES, budget)
    ids_R = data.draw(st.permutations(step.ids_P.repeat(step.request())))
    assert len(ids_R) == plain.request().sum()
    ids_R = ids_R[: data.draw(st.integers(0, rollouts))]
    cut = data.draw(st.integers(0, len(ids_R)))
    for part in (ids_R[:cut], ids_R[cut:]):
        step.observe(part, [1.0] * len(part))
        plain.observe(part, [1.0] * len(part))
    with pytest.raises(InputError, match=r"were requested in this step|is not a prompt of this step"):
        step.observe([data.draw(st.sampled_from([*NAMES, "zzz"]))] * (rollouts + 1), [0.0] * (rollouts + 1))
    step.end()
    plain.end()
    assert same_state(policy.state_dict(), other.state_dict())


def test_rollouts_come_once_and_the_rest_is_missing():
    step = ba.uniform().begin(NAMES, ba.Budget(rollouts=9))
    assert step.request().tolist() == [3, 3, 3]
    step.observe(["c", "a", "c", "b"], [1.0] * 4)
    with pytest.raises(InputError, match="2 rollouts of 'c' after 2 before, and 3 were requested"):
        step.observe(["c", "c"], [1.0] * 2)
    assert step.missing() == ["a", "a", "b", "b", "c"]
    step.observe(["c", "a", "a"], [1.0] * 3)
    assert step.missing() == ["b", "b"]


def test_a_step_in_rounds_does_not_end_before_its_last_round():
    policy = ba.methods.ar3po()
    step = policy.begin(NAMES, ba.Budget(rollouts=24))
    requested = 0
    while (counts_P := step.request()).any():
        ids_R = step.ids_P.repeat(counts_P)
        requested += len(ids_R)
        if requested < 24:
            with pytest.raises(InputError, match=r"end\(\): ar3po.* decides in rounds, and waits for the rollouts"):
                step.end()
        step.observe(ids_R, [0.0] * len(ids_R))
    assert requested == 24
    step.end()
    assert policy.estimator.step == 1
    with pytest.raises(InputError, match="This step has ended"):
        step.end()


def test_rounds_that_have_spent_the_budget_need_no_last_request():
    policy = ba.methods.on_all_fail(ba.uniform(), list, rollouts=2, share=0.5, fewest=1)
    step = policy.begin(["a"], ba.Budget(rollouts=4))
    requested = 0
    while requested < 4:
        count = step.request().sum()
        step.observe(["a"] * count, [0.0] * count, hinted=step.hinted)
        requested += count
    step.end()
    assert policy.estimator.step == 1


def test_a_step_opens_without_reading_beliefs_and_shows_none_that_it_did_not_read_in_time(monkeypatch):
    """Of several processes only one decides, and the others observe."""
    policy, other = ba.adaptive(), ba.adaptive()
    asked = []
    belief = policy.estimator.belief
    monkeypatch.setattr(policy.estimator, "belief", lambda ids: asked.append(len(list(ids))) or belief(ids))
    for each in (policy, other):
        step = each.begin(ba.Pool(range(1000)), ba.Budget(4, floor=0, min_group=1))
        if each is other:
            step.request()
        else:
            step.observe([3, 3, 5, 7], [1, 0, 1, 0])
            assert step.belief_of([3, 3, 5]).mean.tolist() == [0.5] * 3
            step.end()
            with pytest.raises(InputError, match="This step has ended"):
                _ = step.cold_P
            with pytest.raises(InputError, match="This step has ended"):  # they are no longer those from before it
                step.belief_of([3])
    assert max(asked) < 1000
    step.end()
    assert step.cold_P.all()


@pytest.fixture
def large(monkeypatch):
    """A pool of 1,000 prompts that counts as large: decisions may see about 200 of it."""
    monkeypatch.setattr(interface, "_SEEN", 200)
    return ba.Pool(range(1000))


def with_part(policy, part=8):
    """The policy, with this number of prompts for each rollout in place of its own."""
    return replace(policy, needs=replace(policy.needs, part=part))


def seen_by(policy, pool, budget, **more):
    """The prompts that a decision sees, and the number that is left out."""
    seen = []
    spy = replace(policy, decide=lambda view: seen.append((list(view.ids_P), view.left_out)) or policy.decide(view))
    assert spy.begin(pool, budget, **more).request().sum() == budget.rollouts
    return seen[0]


def test_a_decision_that_draws_sees_a_part_of_a_large_pool_and_another_at_each_step(large):
    budget = ba.Budget(16, floor=0, min_group=1)
    parts = [seen_by(ba.adaptive(seed=1), large, budget, ahead=ahead) for ahead in range(5)]
    for ids, left_out in parts:
        assert len(ids) + left_out == 1000
        assert 190 < len(ids) < 325  # 16 for each rollout, and five deviations
    assert len(set().union(*(ids for ids, _ in parts))) > 500
    of_32, _ = seen_by(ba.adaptive(), large, ba.Budget(32, floor=0, min_group=1))
    assert 430 < len(of_32) < 600
    assert ba.adaptive(explore=0.5).needs.part == 128


def test_a_decision_that_ranks_or_has_a_floor_or_quotas_sees_all(large):
    single = {"min_group": 1, "cap": 1000}
    domain = {"domains_P": ["a"] * 999 + ["b"]}
    quotas = ba.Budget(16, floor=0, quotas={"b": (4, 8)}, **single)
    for policy, budget, more in (
        (ba.knapsack(), ba.Budget(16, floor=0, **single), {}),
        (ba.thompson(), ba.Budget(16, floor=0, **single), {}),
        (ba.adaptive(), ba.Budget(1000, floor=1, **single), {}),
        (ba.adaptive(), quotas, domain),
    ):
        ids, left_out = seen_by(policy, large, budget, **more)
        assert (len(ids), left_out) == (1000, 0)


@pytest.mark.slow
def test_a_part_gives_each_prompt_the_rollouts_that_the_whole_pool_gives_it(large, monkeypatch):
    """The mean of 1,500 decisions, by the kind of prompt: mastered, mixed, never solved, new."""
    policy = with_part(policies.sampled(groups=2))
    kinds = np.repeat(np.arange(4), 250)
    policy.observe(np.repeat(np.arange(750), 4), [1, 1, 1, 1] * 250 + [0, 1, 0, 1] * 250 + [0, 0, 0, 0] * 250)
    budget, means = ba.Budget(16, floor=0, min_group=1), []
    for about in (200, 1000):
        monkeypatch.setattr(interface, "_SEEN", about)
        steps = [policy.begin(large, budget, ahead=ahead).request() for ahead in range(1500)]
        assert {int(counts_P.sum()) for counts_P in steps} == {16}
        means.append(np.bincount(kinds, np.mean(steps, axis=0)))
    part, whole = means
    assert part == pytest.approx(whole, rel=0.04)
    assert whole.min() > 0.4  # every kind is drawn


def test_new_prompts_get_the_groups_of_the_whole_pool_and_outcomes_of_unseen_prompts_change_nothing(large):
    budget = ba.Budget(16, floor=0, min_group=1)
    counts_P = with_part(policies.sampled(groups=2, idle=0.97)).begin(large, budget).request()
    assert set(counts_P[counts_P > 0]) == {4}  # 0.97 ** (1000 / 16) are left at a return, not 0.97 ** (200 / 16)
    step = with_part(ba.adaptive(rounds=3)).begin(large, budget)
    assert step.cold_P.all()
    assert step.cold_P.shape == (1000,)
    step.observe(range(0, 1000, 2), [0.0] * 500)  # a trainer of its own prompts
    requested = 0
    while (wanted := step.request()).any():
        step.observe(large.repeat(wanted), [0.0] * int(wanted.sum()))
        requested += wanted.sum()
    assert requested == 16


def test_a_decision_in_rounds_hears_the_outcomes_of_what_it_sees_and_of_nothing_else(large):
    heard = []

    def decide(view):
        first_P = np.zeros(len(view.ids_P), dtype=np.int64)
        first_P[0] = 8
        seen = yield first_P
        heard.append((seen.n_P.tolist(), [x % 2 == 0 for x in view.ids_P]))

    step = replace(ba.adaptive(), decide=decide).begin(large, ba.Budget(16, floor=0, min_group=1))
    step.observe(range(0, 1000, 2), [0.0] * 500)  # a trainer of its own prompts
    step.observe(large.repeat(step.request()), [0.0] * 8)
    step.request()
    [(scored_P, even_P)] = heard
    assert scored_P == [even_P[0] + 8, *even_P[1:]]
