"""Gates by prediction (MASA, PVPO) and by screening (SPEED)."""

import numpy as np
import pytest

from budgetalloc import Budget, InputError, UnsupportedError
from budgetalloc.policies.gates import gate, masa, pvpo, pvpo_route, speed

NAN = float("nan")


def chosen(build, history, ids, budget=None, seeds=60):
    """The prompts that are ever met, over many seeds of the same history."""
    met = set()
    for seed in range(seeds):
        policy = build(seed=seed)
        for ids_R, rewards_R in history:
            policy.observe(ids_R, rewards_R)
        counts_P = policy.allocate(ids, budget or Budget(8, floor=0))
        assert counts_P.sum() == (budget or Budget(8)).rollouts
        met |= {x for x, n in zip(ids, counts_P.tolist(), strict=True) if n}
    return met


SEEN = [(["solved"] * 8 + ["half"] * 8 + ["failed"] * 8, [1.0] * 8 + [0.0, 1.0] * 4 + [0.0] * 8)]
IDS = ["solved", "half", "failed", "new"]


def test_only_rates_strictly_between_the_bounds_pass_and_a_cold_prompt_is_not_a_solved_one():
    # Means under Beta(.5, .5): 8.5/9, 4.5/9 and .5/9; exact.
    assert chosen(lambda seed: gate(explore=0.0, seed=seed), SEEN, IDS) == {"half", "new"}
    assert chosen(lambda seed: gate(explore=0.0, lo=0.5, hi=0.99, seed=seed), SEEN, IDS) == {"solved", "new"}
    assert chosen(lambda seed: gate(explore=0.0, lo=0.0, hi=0.5, seed=seed), SEEN, IDS) == {"failed", "new"}


def test_any_predictor_decides_and_what_it_does_not_know_passes():
    rates = {"solved": 0.5, "half": 1.0, "failed": NAN, "new": 0.0}

    def predicted(view):
        return [rates[x] for x in view.ids_P]

    policy = gate(predict=predicted)
    assert "predict=predicted" in policy.name
    assert chosen(lambda seed: gate(explore=0.0, predict=predicted, seed=seed), SEEN, IDS) == {"solved", "failed"}
    with pytest.raises(InputError, match=r"predict=short gave shape \(1,\)"):
        gate(predict=_short).allocate(IDS, Budget(8))


def _short(view):
    return [0.5]


_short.__name__ = "short"


def test_a_prompt_outside_passes_with_the_chance_to_explore():
    # One group for two prompts. "solved" is explored with 0.4 and then wins the draw of the order with 1/2: 0.2.
    runs, met = 800, 0
    for seed in range(runs):
        policy = gate(explore=0.4, seed=seed)
        policy.observe(*SEEN[0])
        met += policy.allocate(["solved", "half"], Budget(8, floor=0))[0] > 0
    assert abs(met / runs - 0.2) < 4 * (0.2 * 0.8 / runs) ** 0.5


def test_where_too_few_pass_or_none_the_budget_goes_to_others_at_random():
    build = lambda seed: gate(explore=0.0, seed=seed)  # noqa: E731
    assert chosen(build, SEEN, ["solved", "failed"]) == {"solved", "failed"}
    for seed in range(20):
        policy = build(seed)
        policy.observe(*SEEN[0])
        counts = dict(zip(IDS[:3], policy.allocate(IDS[:3], Budget(16, floor=0)).tolist(), strict=True))
        assert counts["half"] == 8
        assert sorted(counts.values()) == [0, 8, 8]


def test_with_a_floor_all_keep_it_and_those_that_pass_fill_up_first():
    policy = gate(explore=0.0)
    policy.observe(*SEEN[0])
    counts = dict(zip(IDS, policy.allocate(IDS, Budget(20, floor=2)).tolist(), strict=True))
    assert counts == {"solved": 2, "half": 8, "failed": 2, "new": 8}


def test_a_gate_opens_again_when_what_was_learned_is_forgotten():
    history = [*SEEN, (["solved"] * 8, [0.0, 1.0] * 4), (["solved"] * 8, [0.0, 1.0] * 4)]
    assert "solved" in chosen(lambda seed: gate(explore=0.0, seed=seed), history, ["solved", "failed", "half"])


def test_masa_shuts_out_predictions_of_exactly_0_and_1():
    rates = {"a": 0.0, "b": 1e-3, "c": 0.999, "d": 1.0}
    build = lambda seed: masa(explore=0.0, predict=lambda view: [rates[x] for x in view.ids_P], seed=seed)  # noqa: E731
    assert chosen(build, [], list(rates), Budget(16, floor=0)) == {"b", "c"}
    assert chosen(lambda seed: masa(explore=0.0, seed=seed), SEEN, IDS, Budget(16, floor=0)) == {"half", "new"}


def test_pvpo_routes_by_the_reference_mean():
    assert pvpo_route([0.0, 1e-9, 1 - 1e-9, 1.0, NAN]).tolist() == ["demonstrate", "keep", "keep", "drop", "keep"]
    reference = {"solved": 1.0, "half": 0.5, "failed": 0.0}
    two = Budget(2, floor=0)
    assert chosen(lambda seed: pvpo(reference=reference, explore=0.0, seed=seed), [], IDS, two) == {"half", "new"}
    shown = lambda seed: pvpo(reference=reference, explore=0.0, demonstrations=True, seed=seed)  # noqa: E731
    assert chosen(shown, [], IDS, two) == {"half", "failed", "new"}


def test_pvpo_without_a_reference_goes_by_enough_own_rollouts_in_a_row_also_in_groups_of_one():
    one = Budget(1, floor=0, min_group=1)
    build = lambda seed: pvpo(enough=3, explore=0.0, group=1, seed=seed)  # noqa: E731
    twice, thrice = [(["x", "y", "z"], [1.0, 0.0, 1.0])] * 2, [(["x", "y", "z"], [1.0, 0.0, 1.0])] * 3
    assert chosen(build, twice, ["x", "y"], one) == {"x", "y"}
    assert chosen(build, thrice, ["x", "y", "new"], one) == {"new"}
    turned = [*thrice, (["x", "y", "z"], [0.0, NAN, 1.0])]  # x fails once; y without a reward; z goes on
    assert chosen(build, turned, ["x", "y", "z"], one) == {"x"}
    graded = [(["x"] * 4 + ["y"] * 4, [0.5] * 4 + [1.0] * 4)]
    assert chosen(build, graded, ["x", "y"], one) == {"x"}


def test_pvpo_a_success_ends_a_run_of_failures_and_starts_its_own():
    policy = pvpo()
    for reward in (0.0, 0.0, 1.0):
        policy.observe(["x", "x"], [reward] * 2)
    assert policy.memory.recall(["x"])["run"].tolist() == [2.0]
    policy.observe(["x"] * 3, [0.0] * 3)
    assert policy.memory.recall(["x"])["run"].tolist() == [-3.0]


def play(policy, ids, budget, rates, rng):
    """One step: the counts of its rounds, and each prompt's rewards."""
    step, counts, rewards = policy.begin(ids, budget), [], {x: [] for x in ids}
    while (counts_P := step.request()).any():
        ids_R = [x for x, n in zip(ids, counts_P.tolist(), strict=True) for _ in range(n)]
        rewards_R = (rng.random(len(ids_R)) < np.array([rates[x] for x in ids_R])).astype(float)
        for x, reward in zip(ids_R, rewards_R.tolist(), strict=True):
            rewards[x].append(reward)
        step.observe(ids_R, rewards_R)
        counts.append(counts_P)
    step.end()
    return np.array(counts), rewards


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
        assert len(odd) <= 1  # whom the end of the budget meets


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


def test_speed_needs_a_budget_in_rollouts():
    with pytest.raises(UnsupportedError, match="speed spends rollouts only"):
        speed().begin(["a"], Budget(None, tokens=100, cap=8), costs_P=[1.0]).request()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: gate(group=0), "group=0"),
        (lambda: gate(lo=1.0), "lo=1.0"),
        (lambda: gate(lo=0.5, hi=0.5), "hi=0.5"),
        (lambda: gate(hi=1.5), "hi=1.5"),
        (lambda: gate(explore=-1), "explore=-1"),
        (lambda: masa(explore=2), "explore=2"),
        (lambda: pvpo(enough=0), "enough=0"),
        (lambda: pvpo(reference={"a": 2.0}), r"reference\['a'\]=2.0"),
        (lambda: speed(init=1), "init=1"),
        (lambda: speed(cont=0), "cont=0"),
    ],
)
def test_a_bad_setting_is_named(make, text):
    with pytest.raises(InputError, match=text):
        make()
