"""`resolution=` with TRL's real trainer: nothing is trained on in groups whose rewards differ by less."""

import numpy as np
import pytest
from conftest import logged, same_weights, trained, weights

import budgetalloc as ba


def noisy(prompts, completions, **_):
    """A level of the prompt, and at most 0.002 by the completion."""
    return [
        0.1 * int(prompt[2]) + 0.001 * (len(set(text)) % 3) for prompt, text in zip(prompts, completions, strict=True)
    ]


@pytest.mark.parametrize("policy", ["uniform", "adaptive", "knapsack"])
def test_a_resolution_of_0_is_no_option(build, policy):
    runs = []
    for options in ({}, {"resolution": 0.0}):
        trainer = build(reward=noisy)
        trained(trainer, getattr(ba, policy)(seed=0), **options)
        runs.append(weights(trainer))
    assert same_weights(*runs)


@pytest.mark.parametrize("options", [{}, {"baseline": "loo"}], ids=["group", "loo"])
@pytest.mark.parametrize("policy", ["uniform", "knapsack"])
def test_near_ties_are_not_trained_on(build, policy, options):
    plain, tolerant = build(reward=noisy), build(reward=noisy)
    before = weights(tolerant)
    options = options | ({} if policy == "uniform" else {"baseline": options.get("baseline", "group"), "min_group": 2})
    trained(plain, getattr(ba, policy)(seed=0), **options)
    trained(tolerant, getattr(ba, policy)(seed=0), resolution=0.01, **options)
    assert not same_weights(weights(plain), before)
    assert same_weights(weights(tolerant), before)
    assert logged(tolerant, "budgetalloc/frac_mixed") == [0.0] * 4
    assert logged(tolerant, "budgetalloc/advantage/frac_nonzero") == [0.0] * 4
    assert np.mean(logged(plain, "budgetalloc/frac_mixed")) > 0


def test_other_groups_are_trained_on_as_by_the_trainer(build):
    """TRL computes in float32, hence the tolerance; later steps are of models that differ by it."""
    sizes = []
    for options in ({}, {"resolution": 0.5}):
        trainer = build(max_steps=1)
        trained(trainer, ba.uniform(), **options)
        sizes.append(logged(trainer, "budgetalloc/advantage/rms"))
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-5)
    assert sizes[0][0] > 0.1
