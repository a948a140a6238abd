"""Success on held-out prompts, measured beside a training run without moving a random number of it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from budgetalloc.testbed.skills import LENGTH, answer, make_reward, skill_of


@dataclass(frozen=True)
class Success:
    """Held-out success, each a mean over prompts."""

    skills: float
    """Sampled at temperature 1, over the skills that can be learned."""
    expected: float
    """The probability of the right answer, same prompts: what `skills` estimates, without the sampling noise."""
    traps: float
    """Sampled, over the traps: the mean of their coins, whatever the model learned."""


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def sample(model: Any, tokenizer: Any, prompts_R: Sequence[str], seed: int = 0) -> list[str]:
    """One completion at temperature 1 for each prompt, from a generator of its own: the global random state stays put.

    Prompts of this testbed are equally long, so that no padding is needed. All rows go through the model at once.
    """
    device = next(model.parameters()).device
    own = torch.Generator(device=device).manual_seed(seed)
    tokens_RT = tokenizer(list(prompts_R), return_tensors="pt")["input_ids"].to(device)
    chosen, cache = [], None
    with _evaluating(model):
        for _ in range(LENGTH + 1):
            out = model(input_ids=tokens_RT, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            tokens_RT = torch.multinomial(out.logits[:, -1].float().softmax(-1), 1, generator=own)
            chosen.append(tokens_RT)
    rows = torch.cat(chosen, dim=1).tolist()
    eos = tokenizer.eos_token_id
    ends = [row.index(eos) if eos in row else len(row) for row in rows]
    return list(tokenizer.batch_decode([row[:end] for row, end in zip(rows, ends, strict=True)]))


def probability(model: Any, tokenizer: Any, prompts_P: Sequence[str], answers_P: Sequence[str]) -> list[float]:
    """Probability at temperature 1 that the model gives exactly this answer and stops; in [0, 1]."""
    device = next(model.parameters()).device
    lines = [p + a + tokenizer.eos_token for p, a in zip(prompts_P, answers_P, strict=True)]
    tokens_PT = tokenizer(lines, return_tensors="pt")["input_ids"].to(device)
    with _evaluating(model):
        logp_PTV = model(input_ids=tokens_PT[:, :-1]).logits.float().log_softmax(-1)
    logp_PT = logp_PTV.gather(-1, tokens_PT[:, 1:, None]).squeeze(-1)
    values: list[float] = logp_PT[:, -(LENGTH + 1) :].sum(-1).exp().tolist()
    return values


def evaluate(model: Any, tokenizer: Any, rows: Sequence[dict[str, Any]], samples: int = 4, seed: int = 0) -> Success:
    """Measure the model on `rows` of `skills.held_out`, `samples` completions a prompt; same seed, same numbers."""
    if samples < 1:
        raise ValueError(f"evaluate(samples={samples}): nothing to average. Use samples=1 or more.")
    rows_R = [row for row in rows for _ in range(samples)]
    ids_R = [int(row["prompt_id"]) for row in rows_R]
    completions_R = sample(model, tokenizer, [row["prompt"] for row in rows_R], seed)
    rewards_R = make_reward(seed)(completions=completions_R, prompt_id=ids_R)
    trap_R = [skill_of(i).is_trap for i in ids_R]
    taught = [row["prompt"] for row in rows if not skill_of(int(row["prompt_id"])).is_trap]
    return Success(
        skills=_mean([reward for reward, trap in zip(rewards_R, trap_R, strict=True) if not trap]),
        expected=_mean(probability(model, tokenizer, taught, [answer(text) for text in taught])),
        traps=_mean([reward for reward, trap in zip(rewards_R, trap_R, strict=True) if trap]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
