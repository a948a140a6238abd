"""Does rehearsing verified answers help the default policy? Real GRPO runs; resumable.

    python benchmarks/learning/rehearsal.py --out runs/rehearsal.jsonl
    python benchmarks/learning/rehearsal.py --out runs/rehearsal.jsonl --mix u_shape --seed 100 \
        --arm "adaptive rehearsal"

As in Re:Max (arXiv 2610.11064), the bank of a prompt holds the first 16 distinct answers with reward 1 that the run
has found, those of this step included. To the loss is added alpha times the mean, over the step's prompts with a bank,
of the mean of -log pi(answer) / tokens over the bank, at temperature 1 and with the end of text as a token. There are
no more rollouts. The placebo has the same number of answers with the same weights, drawn with replacement from the
step's own successes of all prompts, each under its own prompt.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from added import main  # in this folder
from trl.trainer.utils import pad

from budgetalloc.trl.mixin import mix_in

ALPHA = 0.1
MOST = 16  # answers of a prompt


class Answer(NamedTuple):
    """An answer to train on: the text of the prompt, the tokens, and the weight."""

    prompt: str
    tokens: tuple[int, ...]
    weight: float = 1.0


class Rehearsing:
    """A mixin of `GRPOTrainer` with a bank of verified answers, for one generation a step."""

    model: Any
    state: Any
    alpha: float
    placebo: bool
    rehearsal_seed: int
    bank: dict[int, dict[tuple[int, ...], None]]
    """The answers of each prompt by its id, in the order found."""
    prompts: dict[int, str]
    """The prompts of this step by their ids."""
    successes: list[Answer]
    """The successes of this step."""

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids: Any) -> torch.Tensor:
        own = super()._calculate_rewards  # type: ignore[misc]
        rewards_RF: torch.Tensor = own(inputs, prompts, completions, completion_ids)
        if self.model.training:
            self.prompts = {row["prompt_id"]: row["prompt"] for row in inputs}
            self.successes = []
            for row, tokens, reward in zip(inputs, completion_ids, rewards_RF[:, 0].tolist(), strict=True):
                if reward == 1:
                    self.successes.append(Answer(row["prompt"], tuple(tokens)))
                    answers = self.bank.setdefault(row["prompt_id"], {})
                    if len(answers) < MOST:
                        answers[tuple(tokens)] = None
        return rewards_RF

    def rehearsed(self) -> list[Answer]:
        """The answers to train on in this step. Their weights sum to 1."""
        known = {text: self.bank[i] for i, text in self.prompts.items() if i in self.bank}
        chosen = [Answer(text, y, 1 / len(known) / len(bank)) for text, bank in known.items() for y in bank]
        if not self.placebo:
            return chosen
        if not self.successes:
            return []
        rng = np.random.default_rng([self.rehearsal_seed, self.state.global_step, 12])
        at = rng.integers(len(self.successes), size=len(chosen)).tolist()
        return [self.successes[k]._replace(weight=each.weight) for k, each in zip(at, chosen, strict=True)]

    def rehearsal_loss(self, model: Any, answers: Sequence[Answer]) -> torch.Tensor:
        """The weighted sum of -log pi(answer) / tokens."""
        prompt_ids = self._tokenize_prompts([each.prompt for each in answers])[0]  # type: ignore[attr-defined]
        width = max(len(each.tokens) for each in answers)
        parts = ((prompt_ids, "left"), ([each.tokens for each in answers], "right"))
        ids, masks = (
            torch.cat([pad([make(list(x)) for x in rows], 0, side) for rows, side in parts], dim=1).to(model.device)
            for make in (torch.tensor, lambda x: torch.ones(len(x), dtype=torch.long))
        )
        per_token = self._get_per_token_logps_and_entropies  # type: ignore[attr-defined]
        logps_RT = per_token(model, ids, masks, width)[0]  # 0 at padding
        weights_R = torch.tensor([each.weight / len(each.tokens) for each in answers], device=model.device)
        return -(weights_R * logps_RT.sum(dim=1)).sum()

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss: torch.Tensor = super()._compute_loss(model, inputs)  # type: ignore[misc]
        answers = self.rehearsed()
        return loss + self.alpha * self.rehearsal_loss(model, answers) if answers else loss


def add(trainer: Any, seed: int, alpha: float = ALPHA, placebo: bool = False) -> None:
    """Adds the rehearsal to the trainer's loss."""
    mix_in(trainer, Rehearsing)
    trainer.alpha, trainer.placebo, trainer.rehearsal_seed = alpha, placebo, seed
    trainer.bank, trainer.prompts, trainer.successes = {}, {}, []


ARMS = {"adaptive rehearsal": add, "adaptive rehearsal placebo": partial(add, placebo=True)}

if __name__ == "__main__":
    main(__doc__, ARMS)
