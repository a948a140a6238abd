"""Success on held-out prompts, computed without sampling and without changing random numbers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from budgetalloc.cli.testbed import skills


class Success(NamedTuple):
    """The probability of the right answer to each held-out prompt that can be learned."""

    right_P: tuple[float, ...]

    @property
    def expected(self) -> float:
        """The mean success."""
        return sum(self.right_P) / len(self.right_P)

    def pass_at(self, k: int) -> float:
        """The mean probability that at least one of k answers is right.

        >>> Success((0.5, 0.0)).pass_at(2)
        0.375
        """
        return sum(1 - (1 - right) ** k for right in self.right_P) / len(self.right_P)


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def answer_logits(
    model: Any, tokenizer: Any, prompts_P: Sequence[str], answers_P: Sequence[str]
) -> tuple[Any, Any]:
    """Logits of each token of the answers and of the end of text, and these tokens; -100 marks
    padding."""
    device = next(model.parameters()).device
    ended = [text + tokenizer.eos_token for text in answers_P]
    prompts, answers = (
        tokenizer(list(texts), return_tensors="pt", padding=True, padding_side=side).to(device)
        for texts, side in ((prompts_P, "left"), (ended, "right"))
    )
    tokens_PT = torch.cat([prompts["input_ids"], answers["input_ids"]], dim=1)
    # Attention is causal: padding on the right needs no mask.
    real_PT = torch.cat([prompts["attention_mask"], torch.ones_like(answers["input_ids"])], dim=1)
    seen_PT, more = real_PT[:, :-1], {}
    if not seen_PT.all():
        more = {"attention_mask": seen_PT, "position_ids": (seen_PT.cumsum(-1) - 1).clamp(min=0)}
    width = answers["input_ids"].shape[1]
    logits_PTV = model(input_ids=tokens_PT[:, :-1], **more).logits[:, -width:]
    return logits_PTV, answers["input_ids"].masked_fill(answers["attention_mask"] == 0, -100)


def probability(
    model: Any, tokenizer: Any, prompts_P: Sequence[str], answers_P: Sequence[str]
) -> list[float]:
    """The probability at temperature 1 that the model gives exactly this answer and stops."""
    with _evaluating(model):
        logits_PTV, tokens_PT = answer_logits(model, tokenizer, prompts_P, answers_P)
    logp_PTV = logits_PTV.float().log_softmax(-1)
    logp_PT = logp_PTV.gather(-1, tokens_PT.clamp(min=0)[..., None]).squeeze(-1)
    values: list[float] = logp_PT.masked_fill(tokens_PT == -100, 0.0).sum(-1).exp().tolist()
    return values


def evaluate(
    model: Any, tokenizer: Any, rows: Sequence[dict[str, Any]], language: Any = skills
) -> Success:
    """Measures the model on `rows` of a language, a module like `skills`."""
    taught = [row["prompt"] for row in rows if not language.is_trap(int(row["prompt_id"]))]
    answers = [language.answer(text) for text in taught]
    return Success(tuple(probability(model, tokenizer, taught, answers)))
