"""Does a temperature by belief help the default policy? Real GRPO runs; resumable.

    python benchmarks/learning/temperature.py --out runs/temperature.jsonl
    python benchmarks/learning/temperature.py --out runs/temperature.jsonl --mix u_shape --seed 100 \
        --arm "adaptive temperature"

As in PTGS (arXiv 2610.01509), prompts that seem hard sample hotter, and prompts that seem easy colder: at temperature
tau ** h, where h goes from 1 at a success rate of 0 to -1 at 1, and is 0 at a target that rises over the run. The rate
is a Thompson draw from the policy's belief before the step, one for each prompt. The loss has the same temperature as
the sampling; success is measured at temperature 1. The placebo shuffles the temperatures among the rows of the step.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from added import main  # in this folder
from numpy.typing import ArrayLike, NDArray

from budgetalloc.trl.callback import AdaptiveGRPOCallback
from budgetalloc.trl.mixin import mix_in

TAU = 1.5
TARGETS = (0.25, 0.5)  # in the first step and in the last


def temperatures(p_P: ArrayLike, target: float, tau: float) -> NDArray[np.float64]:
    """The temperature at each success rate.

    >>> temperatures([0, 0.25, 1], target=0.25, tau=1.5)
    array([1.5       , 1.        , 0.66666667])
    """
    below_P = target - np.asarray(p_P, dtype=np.float64)
    return tau ** (below_P / np.where(below_P >= 0, target, 1 - target))


class Tempered:
    """A mixin of `GRPOTrainer`: each row samples and trains at a temperature of its own."""

    model: Any
    state: Any
    callback_handler: Any
    tau: float
    shuffled: bool
    temper_seed: int
    rows: torch.Tensor | None = None
    """The temperatures of the rows that the model sees now."""

    @contextmanager
    def at(self, rows: torch.Tensor) -> Iterator[None]:
        self.rows = rows
        try:
            yield
        finally:
            self.rows = None

    def temperatures_of(self, ids_R: Sequence[int]) -> NDArray[np.float64]:
        """The temperature of each row, by the beliefs before this step."""
        callbacks = self.callback_handler.callbacks
        policy = next(each.policy for each in callbacks if isinstance(each, AdaptiveGRPOCallback))
        rng = np.random.default_rng([self.temper_seed, self.state.global_step, 11])
        ids_P, of_R = np.unique(ids_R, return_inverse=True)
        p_P = policy.belief(ids_P.tolist()).sample(rng).mean
        target = np.interp(self.state.global_step, (0, self.state.max_steps - 1), TARGETS)
        drawn_R = temperatures(p_P, target, self.tau)[of_R]
        return rng.permutation(drawn_R) if self.shuffled else drawn_R

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        own = super()._generate_and_score_completions  # type: ignore[misc]
        if not self.model.training:
            return own(inputs)
        rows = torch.tensor(self.temperatures_of([row["prompt_id"] for row in inputs]), dtype=torch.float32)
        with self.at(rows.to(self.model.device)):
            output = own(inputs)
        output["temperatures"] = rows.to(self.model.device)  # shuffled and split with the rows
        return output

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        with self.at(inputs["temperatures"]):
            return super()._compute_loss(model, inputs)  # type: ignore[misc]


def add(trainer: Any, seed: int, tau: float = TAU, shuffled: bool = False) -> None:
    """Gives the trainer's rows temperatures.

    What comes before the head is divided, and so are the logits, as the head has no bias. TRL fixes its own
    temperature in the model when it is made.
    """
    mix_in(trainer, Tempered)
    trainer.tau, trainer.shuffled, trainer.temper_seed = tau, shuffled, seed
    assert trainer.model.get_output_embeddings().bias is None

    def divide(module: Any, given: Any, hidden_RTD: torch.Tensor) -> torch.Tensor:
        return hidden_RTD if trainer.rows is None else hidden_RTD / trainer.rows[:, None, None]

    trainer.model.model.norm.register_forward_hook(divide)


ARMS = {"adaptive temperature": add, "adaptive temperature shuffled": partial(add, shuffled=True)}

if __name__ == "__main__":
    main(__doc__, ARMS)
