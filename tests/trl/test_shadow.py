"""A shadow on TRL's real trainer: the run is the same to the bit, and its metrics are in the trainer's log."""

import logging
import random

import numpy as np
import pytest
import torch
from conftest import SAVES, Watched, attach, logged, same_weights, trained, weights
from datasets import IterableDataset
from transformers import TrainerCallback

import budgetalloc as ba
from budgetalloc import InputError, UnsupportedError
from budgetalloc.contrib import shadow as module
from budgetalloc.contrib.shadow import Shadow

_PREFIX = "budgetalloc/shadow/"
_CLOCKS = ("_time", "_runtime", "_per_second", "/seconds")


class Generators(TrainerCallback):
    """The states of the global random generators at each step."""

    def __init__(self):
        self.states = []

    def on_step_end(self, *_, **__):
        states = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
        self.states.append(hash(str(states)))


def run(build, policy, resume=None, steps=5, **given):
    """Trains; returns the prompts generated for, the weights, states of the generators, the log and the callback."""
    seen = Watched(trainer := build(max_steps=steps, lr_scheduler_type="constant", **SAVES))
    trainer.add_callback(generators := Generators())
    callback = trained(trainer, policy, resume=resume, **given)
    entries = [
        {key: value for key, value in entry.items() if _PREFIX not in key and not key.endswith(_CLOCKS)}
        for entry in trainer.state.log_history
    ]
    return seen.prompts, weights(trainer), generators.states, entries, callback


def assert_same(one, other):
    assert one[0] == other[0]
    assert same_weights(one[1], other[1])
    assert one[2] == other[2]
    assert one[3] == other[3]
    assert str(one[4].policy.state_dict()) == str(other[4].policy.state_dict())


@pytest.mark.parametrize(("policy", "shadow"), [(ba.uniform, ba.methods.dapo), (ba.adaptive, "uniform")])
def test_the_run_is_the_same_to_the_bit(build, policy, shadow):
    alone, watched = run(build, policy()), run(build, policy(), shadow=shadow)
    assert_same(alone, watched)
    trainer = watched[4].trainer
    for name in ("prompts", "overlap", "variance_predicted", "variance_predicted_run", "advantage/rms", "brier"):
        assert len(logged(trainer, _PREFIX + name)) == 5, name
    assert logged(trainer, f"{_PREFIX}errors") == [0] * 5


def test_a_shadow_of_the_loaders_batch_sees_the_loaders_batch(build):
    """The run chooses among all prompts; the shadow is uniform, on the prompts that TRL would have taken."""
    loaded = Watched(alone := build())
    alone.train()
    callback = attach(trainer := build(), ba.adaptive(), shadow="uniform")
    offered = []
    shadow = callback.session.part(Shadow)
    plan = shadow.plan
    shadow.plan = lambda plans: (offered.append(list(plans.own_ids)), plan(plans))[1]
    trainer.train()
    batches = [[int(prompt.removesuffix("=")) for prompt in batch] for batch in loaded.prompts]
    assert offered == batches
    assert logged(trainer, f"{_PREFIX}prompts") == [4.0] * 4


def test_resumed_with_a_shadow_that_the_checkpoint_lacks(build, caplog):
    run(build, ba.uniform())
    caplog.set_level(logging.WARNING, logger=module.__name__)
    resumed = run(build, ba.uniform(), resume=3, shadow="adaptive")
    assert [x.getMessage() for x in caplog.records if x.name == module.__name__] == [
        "The checkpoint was made without the shadow adaptive(seed=0), which starts without beliefs."
    ]
    assert resumed[4].session.part(Shadow).session.policy.estimator.step == 2


def test_what_could_not_be_attached_cannot_watch(build):
    stream = IterableDataset.from_generator(lambda: iter([{"prompt": f"{n}=", "prompt_id": n} for n in range(24)]))
    with pytest.raises(UnsupportedError, match=r"shadow=adaptive\(seed=0\), as if it were attached: candidates='all'"):
        attach(build(stream), ba.uniform(), shadow="adaptive")
    policy = ba.adaptive()
    with pytest.raises(InputError, match="is the run's own policy"):
        attach(build(), policy, shadow=policy)
