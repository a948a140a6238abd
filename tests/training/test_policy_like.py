"""What an argument that takes a policy may be."""

import pytest

import budgetalloc as ba
from budgetalloc.errors import InputError
from budgetalloc.training.policy_like import policy_of


@pytest.mark.parametrize("given", ["thompson", ba.thompson, lambda seed: ba.thompson(seed=seed)])
def test_an_argument_may_be_a_policy_a_name_or_a_function(given):
    policy = policy_of(given, seed=4)
    assert (policy.name, policy.seed) == (ba.thompson(seed=4).name, 4)
    assert policy_of(policy) is policy


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("adaptve", r"policy 'adaptve' is unknown, did you mean adaptive\?"),
        ("dump", r"rival='dump' needs the function domain_of=.*methods.dump\(domain_of=\.\.\.\)"),
        (5, r"rival=5 is of type int: give a policy such as ba.adaptive\(\), a name such as 'adaptive', or a function"),
        (ba, "rival=<module 'budgetalloc'.* is of type module: give a policy"),
        (ba.methods.on_all_fail, "rival=<function on_all_fail .* was called and raised TypeError, .*missing"),
        (ba.Policy, "rival=<class .*Policy'> was called and raised TypeError, .*missing"),
        (lambda: 3, "returned 3 of type int: give a policy"),
    ],
)
def test_what_is_no_policy_is_shown(given, message):
    with pytest.raises(InputError, match=message):
        policy_of(given, "rival")
