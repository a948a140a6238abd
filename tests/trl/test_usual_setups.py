"""What TRL's own tests do with a trainer, with the callback attached: streams and wrapped methods.

Environments, tools and images: test_row_shapes.py. Reward functions of every kind: test_reward_functions.py.
"""

from functools import partial

import pytest
from conftest import low_digit, rows

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback

POLICIES = {"uniform": ba.uniform, "knapsack": ba.knapsack, "adaptive": ba.adaptive}


@pytest.fixture(params=POLICIES)
def policy(request):
    return POLICIES[request.param](seed=1)


def attach(trainer, policy, **options):
    trainer.add_callback(AdaptiveGRPOCallback(trainer, policy, **options))
    return trainer


@pytest.mark.parametrize("columns", ["known", "unknown"])
def test_streams(build, policy, columns):
    """Over more than one pass; a generator's columns are not known before its first row."""
    data = rows(12).to_iterable_dataset()
    if columns == "unknown":
        data = data.map(lambda row: row)
        assert data.column_names is None
    trainer = attach(build(data, max_steps=5), policy, candidates=1)
    trainer.train()
    assert trainer.state.global_step == policy.estimator.step == 5
    assert set(policy.state_dict()["ids"]) == set(range(12))


@pytest.mark.parametrize("name", ["_generate_and_score_completions", "_calculate_rewards", "_generate"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_wrapped_methods_are_called_and_stay(build, policy, name, when):
    """As other libraries, and TRL's own tests, wrap what a trainer generates and scores with."""
    trainer, calls = build(max_steps=3), []

    def wrap():
        own = getattr(trainer, name)

        def wrapped(*arguments):
            calls.append(name)
            return own(*arguments)

        setattr(trainer, name, wrapped)
        return wrapped

    wrapped = wrap() if when == "before" else None
    attach(trainer, policy)
    wrapped = wrapped or wrap()
    trainer.train()
    assert len(calls) == 3
    assert getattr(trainer, name) is wrapped
    assert policy.estimator.step == 3


def test_a_reward_that_is_a_partial_and_one_of_several(build, policy):
    def share(completions, digits, **_):
        return [sum(symbol in digits for symbol in text) / max(1, len(text)) for text in completions]

    trainer = build(
        reward=[partial(share, digits="01234"), low_digit], reward_weights=[0.5, 0.5], max_steps=3, beta=0.01
    )
    attach(trainer, policy)
    trainer.train()
    assert policy.estimator.step == 3
