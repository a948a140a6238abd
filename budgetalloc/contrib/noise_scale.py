"""How many rollouts a step are enough: the noise scale of a run's gradients."""

from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

from budgetalloc.errors import UnsupportedError, check_integer

_COORDINATES = 2**20  # of the gradient that are compared
_DOUBT = 2.0  # standard errors above 0 from which a noise scale is given


class NoiseScale(TrainerCallback):  # type: ignore[misc]
    """Logs how far a step's gradient is signal, for `GRPOTrainer`, with or without a policy.

    The gradients of two consecutive steps come from independent rollouts, so the mean cosine
    between them estimates B / (B + Bn), for B rollouts a step and the noise scale Bn (arXiv
    1812.06162, eq. 2.8). That is the progress that a step makes, as a share of what an exact
    gradient would make. Well above 0.5, fewer rollouts a step would learn more from each; near 0,
    more rollouts a step would need fewer steps, and learn as much from each.

    The log gets the mean over about the last `steps` steps as `budgetalloc/gradient_agreement`,
    and Bn, in rollouts, as `budgetalloc/noise_scale`, where the mean is surely above 0. Prompts
    that return in the next step, and a direction that all steps share such as a penalty's, count as
    signal.

    Args:
        trainer: The `GRPOTrainer`. Add the result to its callbacks.
        steps: How many steps the mean looks back, at least 2.

    Raises:
        UnsupportedError: with DeepSpeed or FSDP, which keep the gradient in parts.

    >>> from budgetalloc.contrib.noise_scale import noise_scale
    >>> round(noise_scale(0.2, 128))  # four times as much noise as signal
    512
    """

    def __init__(self, trainer: Any, *, steps: int = 50) -> None:
        if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
            raise UnsupportedError(
                "NoiseScale with DeepSpeed or FSDP, which keep the gradient in parts: measure in "
                "one process, or with DDP."
            )
        self.trainer = trainer
        self._kept = 1 - 1 / check_integer("steps", steps, 2)
        args = trainer.args
        generated = args.steps_per_generation / args.gradient_accumulation_steps
        self._rollouts = round(args.generation_batch_size / generated)  # of an optimizer step
        self._period = max(1, round(generated * args.num_iterations))  # steps with new rollouts
        self._sums = np.zeros(3)  # of weights, cosines, their squares
        self._last: torch.Tensor | None = None

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        if state.global_step % self._period:
            return
        gradient = _part_of_gradient(model)
        if gradient is None:
            return
        last, self._last = self._last, gradient
        if last is None or last.shape != gradient.shape:  # experts without rollouts have none
            return
        norms = float(last.norm() * gradient.norm())
        cosine = float(last @ gradient) / norms if norms else 0.0  # no gradient: no progress
        self._sums = self._kept * self._sums + (1.0, cosine, cosine**2)
        steps = float(self._sums[0])
        mean, square = (self._sums[1:] / steps).tolist()
        logged = self.trainer._metrics["train"]
        logged["budgetalloc/gradient_agreement"].append(mean)
        error = ((square - mean**2) / steps) ** 0.5
        if steps >= 2 and mean > _DOUBT * error:
            logged["budgetalloc/noise_scale"].append(noise_scale(mean, self._rollouts))


def noise_scale(agreement: float, rollouts: int) -> float:
    """Bn, in rollouts, of steps of `rollouts` whose gradients agree so far."""
    return rollouts * (1 / agreement - 1)


def _part_of_gradient(model: Any) -> torch.Tensor | None:
    """The same evenly spaced coordinates of the gradient at every step; None without a gradient."""
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    every = sum(each.numel() for each in gradients) // _COORDINATES | 1  # odd: rows are even
    parts = [each.detach().reshape(-1)[::every].float() for each in gradients]
    return torch.cat(parts) if parts else None
