"""Do smaller positive advantages keep coverage under the default policy? Real GRPO runs; resumable.

    python benchmarks/learning/positives.py --out runs/positives.jsonl

The positive advantages of `ba.adaptive()` are multiplied by 0.1, 0.3, 0.5 or 0.8, and the negative ones are left. What
is to be shown false is that `adaptive()` loses coverage because successes are made too likely.
"""

from functools import partial
from typing import Any

import torch
from added import main  # in this folder

from budgetalloc.trl.mixin import mix_in

FACTORS = (0.1, 0.3, 0.5, 0.8)


class SmallerPositives:
    """A mixin of `GRPOTrainer` that multiplies positive advantages in the loss."""

    positive_factor: float

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        given = inputs["advantages"]
        advantages = torch.where(given > 0, self.positive_factor * given, given)
        loss: torch.Tensor = super()._compute_loss(model, inputs | {"advantages": advantages})  # type: ignore[misc]
        return loss


def add(trainer: Any, seed: int, factor: float) -> None:
    """Multiplies the positive advantages of this trainer by the factor."""
    mix_in(trainer, SmallerPositives)
    trainer.positive_factor = factor


ARMS = {f"adaptive positives x{factor}": partial(add, factor=factor) for factor in FACTORS}

if __name__ == "__main__":
    main(__doc__, ARMS)
