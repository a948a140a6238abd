"""What an argument that takes a policy may be."""

import pytest

import budgetalloc as ba
from budgetalloc.errors import InputError
from budgetalloc.training.policy_like import resolve_policy


@pytest.mark.parametrize("given", ["thompson", ba.thompson, lambda seed: ba.thompson(seed=seed)])
def test_an_argument_may_be_a_policy_a_name_or_a_function(given):
    policy = resolve_policy(given, seed=4)
    assert (policy.name, policy.seed) == (ba.thompson(seed=4).name, 4)
    assert resolve_policy(policy) is policy


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
        resolve_policy(given, "rival")


OWN = "import budgetalloc as ba\n\n"
OWN += "def mine(*, seed=0):\n    return ba.knapsack(discount=0.5, seed=seed)\n\n"
OWN += "built = mine()\nthree = 3\n\ndef other():\n    return 3\n"


def test_a_name_may_lead_to_a_function_in_a_file_or_a_module(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    policy = resolve_policy(f"{tmp_path}/mine.py:mine", seed=7)
    assert (policy.name, policy.seed) == (ba.knapsack(discount=0.5, seed=7).name, 7)
    assert resolve_policy("budgetalloc.policies.sampled", groups=1).name == ba.policies.sampled(groups=1).name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("gone.py:mine", "rival='gone.py:mine': there is no file gone.py"),
        ("mine.py:thirds", "rival='mine.py:thirds': mine.py has no thirds"),
        ("mine.py:built", "rival='mine.py:built' is a policy: name a function that builds it"),
        ("mine.py:three", "rival='mine.py:three' is of type int: give a policy"),
        ("mine.py:other", "rival='mine.py:other' returned 3 of type int"),
        ("mine.py", "rival='mine.py' cannot be loaded, ModuleNotFoundError: .*: write file.py:function"),
        ("broken.py:mine", "rival='broken.py:mine' cannot be loaded, ZeroDivisionError: division by zero"),
        ("budgetalloc.thirds", "rival='budgetalloc.thirds' cannot be loaded, AttributeError: .*'thirds'"),
    ],
)
def test_an_error_about_a_file_names_it(given, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(InputError, match=message):
        resolve_policy(given, "rival")
