"""The next step is decided while the trainer computes gradients. The decisions stay the same, and none is stale."""

import threading
from dataclasses import replace

import pytest
from conftest import attach, logged, rows
from transformers import TrainerCallback

import budgetalloc as ba
from budgetalloc.policies import sampled, vade
from budgetalloc.trl import callback
from budgetalloc.trl.prefetch import Prefetch

pytestmark = pytest.mark.slow
THREAD = "budgetalloc-prefetch"


def in_the_thread() -> bool:
    return threading.current_thread().name.startswith(THREAD)


def watched(policy):
    """The policy, and a list that says of each decision whether it was made in the thread."""
    made_ahead = []

    def decide(view):
        made_ahead.append(in_the_thread())
        return policy.decide(view)

    return replace(policy, decide=decide), made_ahead


def ran(build, path, policy=None, dataset=None, callbacks=(), config=None, **given):
    trainer = build(rows(24) if dataset is None else dataset, max_steps=6, **(config or {}))
    attached = attach(trainer, policy or sampled(groups=2), ledger=path, **given)
    for make in callbacks:
        trainer.add_callback(make(attached))
    trainer.train()
    return trainer


def rollouts(path):
    log = ba.Ledger.read(path)
    return list(zip(log.frame.step.tolist(), log.frame.prompt.tolist(), log.frame.reward.tolist(), strict=True))


class Observing(TrainerCallback):
    """Lets the policy observe more rewards between two steps, as a user's callback may."""

    def __init__(self, attached):
        self.policy = attached.policy

    def on_step_end(self, args, state, control, **_):
        self.policy.observe(list(range(12)), [1.0] * 12)


def test_what_is_computed_ahead_is_taken_once_and_only_for_its_key():
    prefetch = Prefetch()
    prefetch.begin(1, in_the_thread)
    assert prefetch.take(1) is True
    assert prefetch.take(1) is None
    prefetch.begin(1, lambda: 1 / 0)
    assert prefetch.take(2) is None
    prefetch.begin(1, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prefetch.take(1)
    prefetch.close()


@pytest.mark.parametrize("callbacks", [(), (Observing,)], ids=["alone", "observing-between-steps"])
@pytest.mark.parametrize("cost", [None, "tokens"])
def test_a_run_is_the_same_to_the_bit(build, tmp_path, monkeypatch, callbacks, cost):
    runs = []
    for name, may in (("ahead", callback.can_prefetch), ("then", lambda *_: False)):
        monkeypatch.setattr(callback, "can_prefetch", may)
        policy, made_ahead = watched(sampled(groups=2, seed=1))
        trainer = ran(build, tmp_path / name, policy, callbacks=callbacks, cost=cost)
        runs.append((rollouts(tmp_path / name), logged(trainer, "loss")))
        if name == "then":
            assert not any(made_ahead)
        elif callbacks:  # each was made ahead, except the first, and again when it was out of date
            assert made_ahead == [False, *[True, False] * 5, True]
        else:
            assert made_ahead == [False, *[True] * 6]  # the last for a step that does not come
    assert runs[0] == runs[1]
    assert len({prompt for _, prompt, _ in runs[0][0]}) > 12
    assert not any(each.name.startswith(THREAD) for each in threading.enumerate())


def test_an_error_of_a_decision_made_ahead_ends_the_training_as_any_other(build, tmp_path):
    policy = sampled(groups=2)

    def decide(view):
        if view.step == 3:
            raise ZeroDivisionError("in step 3")
        return policy.decide(view)

    failing = replace(policy, decide=decide)
    with pytest.raises(ZeroDivisionError, match="in step 3"):
        ran(build, tmp_path / "ledger", failing)
    assert {step for step, *_ in rollouts(tmp_path / "ledger")} == {0, 1, 2}
    assert failing.estimator.step == 3
    assert not any(each.name.startswith(THREAD) for each in threading.enumerate())


@pytest.mark.parametrize(
    "given",
    [
        {"policy": vade()},  # which does not say that it reads its view alone
        {"cost": "seconds"},  # which are known when the step has ended
        {"cost": lambda prompt, answer: (prompt, answer)},
        {"candidates": 1},
        {"dataset": rows(24).with_transform(lambda batch: batch)},  # which may do anything
        {"config": {"dataloader_num_workers": 1}},  # which are forked
    ],
    ids=["policy", "seconds", "cost", "candidates", "transform", "workers"],
)
def test_nothing_is_decided_ahead_if_the_decision_could_differ_or_a_thread_do_harm(build, tmp_path, given):
    policy, made_ahead = watched(given.pop("policy", None) or sampled(groups=2))
    ran(build, tmp_path / "ledger", policy, **given)
    assert made_ahead == [False] * 6


def test_policies_that_choose_among_the_dataset_allow_a_prefetch():
    assert all(policy.needs.ahead for policy in (ba.adaptive(), ba.thompson(), ba.knapsack()))
