"""Gates by a predicted rate: what passes, what is explored, and what fills the budget."""

import pytest
from policy_steps import chosen

from budgetalloc import Budget, InputError
from budgetalloc.methods import gate, masa

NAN = float("nan")


SEEN = [(["solved"] * 8 + ["half"] * 8 + ["failed"] * 8, [1.0] * 8 + [0.0, 1.0] * 4 + [0.0] * 8)]


IDS = ["solved", "half", "failed", "new"]
EIGHT = Budget(8, floor=0)


def test_only_rates_strictly_between_the_bounds_pass_and_a_cold_prompt_is_not_a_solved_one():
    # Means under Beta(.5, .5): 8.5/9, 4.5/9 and .5/9; exact.
    assert chosen(lambda seed: gate(explore=0.0, seed=seed), SEEN, IDS, EIGHT) == {"half", "new"}
    assert chosen(lambda seed: gate(explore=0.0, lo=0.5, hi=0.99, seed=seed), SEEN, IDS, EIGHT) == {"solved", "new"}
    assert chosen(lambda seed: gate(explore=0.0, lo=0.0, hi=0.5, seed=seed), SEEN, IDS, EIGHT) == {"failed", "new"}


def test_any_predictor_decides_and_what_it_does_not_know_passes():
    rates = {"solved": 0.5, "half": 1.0, "failed": NAN, "new": 0.0}

    def predicted(view):
        return [rates[x] for x in view.ids_P]

    def short(view):
        return [0.5]

    policy = gate(predict=predicted)
    assert "predict=predicted" in policy.name
    assert chosen(lambda seed: gate(explore=0.0, predict=predicted, seed=seed), SEEN, IDS, EIGHT) == {
        "solved",
        "failed",
    }
    with pytest.raises(InputError, match=r"predict gave shape \(1,\)"):
        gate(predict=short).allocate(IDS, Budget(8))


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
    assert chosen(build, SEEN, ["solved", "failed"], EIGHT) == {"solved", "failed"}
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


def test_masa_skips_predictions_of_exactly_0_and_1():
    rates = {"a": 0.0, "b": 1e-3, "c": 0.999, "d": 1.0}
    build = lambda seed: masa(explore=0.0, predict=lambda view: [rates[x] for x in view.ids_P], seed=seed)  # noqa: E731
    assert chosen(build, [], list(rates), Budget(16, floor=0)) == {"b", "c"}
    assert chosen(lambda seed: masa(explore=0.0, seed=seed), SEEN, IDS, Budget(16, floor=0)) == {"half", "new"}
