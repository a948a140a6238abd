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


def test_masa_skips_predictions_of_exactly_0_and_1():
    rates = {"a": 0.0, "b": 1e-3, "c": 0.999, "d": 1.0}
    build = lambda seed: masa(explore=0.0, predict=lambda view: [rates[x] for x in view.ids_P], seed=seed)  # noqa: E731
    assert chosen(build, [], list(rates), Budget(16, floor=0)) == {"b", "c"}
    assert chosen(lambda seed: masa(explore=0.0, seed=seed), SEEN, IDS, Budget(16, floor=0)) == {"half", "new"}
