"""Is it the clip of gradients, or the size of successes, that costs coverage? Real GRPO runs; resumable.

    python benchmarks/learning/altered.py --out runs/altered.jsonl --mix hard_once --seed 0 --arm "adaptive unclipped"

Each arm alters one thing in a policy's runs. *Unclipped* sets TRL's `max_grad_norm` to 1,000, where it is 1. *Positives
xF* multiplies the positive advantages by F and leaves the negative ones: if successes that become too likely cost
coverage, it rises.
"""

from functools import partial
from typing import Any

import torch
from added import Add, main  # in this folder

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


def unclip(trainer: Any, seed: int) -> None:
    """Makes the gradients of this trainer unclipped."""
    trainer.args.max_grad_norm = 1000.0


def multiply(trainer: Any, seed: int, factor: float) -> None:
    """Multiplies the positive advantages of this trainer by the factor."""
    mix_in(trainer, SmallerPositives)
    trainer.positive_factor = factor


ARMS: dict[str, Add] = {f"adaptive positives x{factor}": partial(multiply, factor=factor) for factor in FACTORS}
ARMS |= {f"{policy} unclipped": unclip for policy in ("adaptive", "uniform")}

if __name__ == "__main__":
    main(__doc__, ARMS)
