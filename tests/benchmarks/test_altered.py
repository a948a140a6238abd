"""What is altered changes the run, and only as far as it should."""

from functools import partial
from typing import Any

import pytest

pytest.importorskip("trl")
import altered  # of benchmarks/learning
import torch
from train import train

import budgetalloc as ba
from budgetalloc.cli.testbed.skills import held_out, pool
from budgetalloc.trl import AdaptiveGRPOCallback


def run(add: Any = None, **more: Any) -> tuple[float, ...]:
    def attach(trainer: Any) -> None:
        if add is not None:
            add(trainer, seed=1)
        trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.adaptive(seed=1), fallback=False))

    small: dict[str, Any] = {"steps": 3, "prompts": 8, "generations": 4, "held_out_rows": held_out(1)}
    return train(attach, seed=1, rows=pool(4), progress=False, **small | more).losses


def test_the_factor() -> None:
    plain = run()
    assert run(partial(altered.multiply, factor=1.0)) == plain
    assert run(partial(altered.multiply, factor=0.5)) != plain


def test_without_a_clip_its_size_does_not_matter() -> None:
    clip: dict[str, Any] = {"max_grad_norm": 1e-3, "steps": 6}  # later losses depend on what was sampled
    clipped, unclipped = run(**clip), run(altered.unclip, **clip)
    assert unclipped == run(altered.unclip, steps=6)
    assert unclipped != clipped


def test_only_positive_advantages_are_multiplied() -> None:
    class Base:
        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            return inputs["advantages"]

    trainer = Base()
    altered.ARMS["adaptive positives x0.3"](trainer, 0)
    loss = trainer._compute_loss(None, {"advantages": torch.tensor([2.0, 0.0, -1.0])})
    assert loss.tolist() == pytest.approx([0.6, 0.0, -1.0])
