"""Real GRPO steps on the shipped weights are reproducible, do not depend on the evaluation, and are counted."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl")
import torch
from train import Recorder, Run, train  # of benchmarks/learning

from budgetalloc import methods
from budgetalloc.cli.testbed.skills import held_out, make_reward, prompt_id
from budgetalloc.trl import AdaptiveGRPOCallback

SMALL: dict[str, Any] = {"steps": 4, "prompts": 8, "generations": 4, "held_out_rows": held_out(2), "progress": False}


@pytest.fixture(scope="module")
def reference() -> Run:
    return train(seed=1, eval_every=2, **SMALL)


def test_the_seed_fixes_the_run_and_measuring_does_not_disturb_it(reference: Run) -> None:
    again, often = train(seed=1, eval_every=2, **SMALL), train(seed=1, eval_every=1, **SMALL)
    one, two = ([replace(point, seconds=0.0) for point in run.curve] for run in (again, reference))
    assert one == two
    assert again.losses == often.losses == reference.losses
    assert any(loss != 0 for loss in reference.losses)
    for a, b in zip(often.trainer.model.parameters(), reference.trainer.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert len(often.curve) == 5


def test_the_curve_counts_what_was_generated(reference: Run) -> None:
    assert [(point.step, point.rollouts) for point in reference.curve] == [(0, 0), (2, 64), (4, 128)]
    logged = [entry for entry in reference.trainer.state.log_history if "completions/mean_length" in entry]
    assert reference.curve[-1].tokens == pytest.approx(sum(x["completions/mean_length"] * 32 for x in logged))
    uniform = [entry["frac_reward_zero_std"] for entry in logged]  # TRL's own count; equal groups, so they must agree
    assert reference.curve[1].mixed_groups == pytest.approx(1 - sum(uniform[:2]) / 2)
    assert reference.curve[2].mixed_rollouts == pytest.approx(1 - sum(uniform[2:]) / 2)
    assert len(reference.start_P) == 48
    assert reference.curve[0].expected == pytest.approx(sum(reference.start_P) / 48)
    assert reference.start_P != reference.end_P


def test_mixed_shares_of_uneven_groups() -> None:
    found = SimpleNamespace(expected=0.5, right_P=(0.5,), pass_at=lambda k: 0.9)
    recorder = Recorder(lambda: found, eval_every=1, progress=False)
    reward = recorder.watch(make_reward())
    recorder.on_train_begin(None, SimpleNamespace(max_steps=1, global_step=0), None)
    # The rows of a group need not be neighbours.
    order = ["a1234", "b1234", "c4321", "a1234", "b1234", "c4321", "a1234", "a1234"]
    ids = [prompt_id(f"{prompt}=") for prompt in order]
    texts = ["1234", "4321", "0000", "1234", "4321", "0000", "1234", "0000"]
    state = SimpleNamespace(global_step=0, max_steps=1)
    values = reward(completions=texts, prompt_id=ids, completion_ids=[[0] * 5] * 8, trainer_state=state)
    assert values == [1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0]
    state.global_step = 1
    recorder.on_step_end(None, state, SimpleNamespace(should_training_stop=False))
    assert recorder.curve[1].mixed_groups == pytest.approx(1 / 3)
    assert recorder.curve[1].mixed_rollouts == pytest.approx(4 / 8)
    assert (recorder.curve[1].rollouts, recorder.curve[1].tokens) == (8, 40)


def test_max_rollouts_ends_a_run_whose_policy_generates_more_than_it_trains_on() -> None:
    def attach(trainer: Any) -> None:
        trainer.add_callback(AdaptiveGRPOCallback(trainer, methods.dapo(group=4, generate=3)))

    run = train(attach, max_rollouts=150, eval_every=1, **SMALL | {"steps": 6})
    rollouts = [point.rollouts for point in run.curve]
    assert rollouts[-2] < 150 <= rollouts[-1]
    assert len(rollouts) < 6  # a step trains on 32 rows and generates more
