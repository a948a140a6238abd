"""Success on held-out prompts, measured during a training run without changing its random
numbers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from budgetalloc.cli.testbed import skills
from budgetalloc.cli.testbed.language import Language

__all__ = [
    "Success",
    "answer_logits",
    "evaluate",
    "padding",
    "probability",
    "sample",
    "sample_with_entropy",
]


@dataclass(frozen=True)
class Success:
    """Held-out success: means over prompts."""

    skills: float  # sampled at temperature 1, on the skills that can be learned
    # the mean probability of the right answer to the same prompts, without sampling noise
    expected: float
    traps: float  # sampled, on the traps: the mean of their coins or guesses
    entropy: float  # of the next token, in nats, over the tokens that were sampled for all rows
    # the probability of the right answer to each prompt that can be learned
    right_P: tuple[float, ...]


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def padding(real_RT: Any) -> dict[str, Any]:
    """The model's arguments for padding on the left, from the mask of real tokens; empty without
    padding."""
    if real_RT.all():
        return {}
    return {"attention_mask": real_RT, "position_ids": (real_RT.cumsum(-1) - 1).clamp(min=0)}


def sample(
    model: Any, tokenizer: Any, prompts_R: Sequence[str], seed: int = 0, language: Language = skills
) -> list[str]:
    """One completion at temperature 1 for each prompt. The global random state does not change."""
    return sample_with_entropy(model, tokenizer, prompts_R, seed, language)[0]


def sample_with_entropy(
    model: Any, tokenizer: Any, prompts_R: Sequence[str], seed: int, language: Language
) -> tuple[list[str], float]:
    """The completions of `sample`, and the mean entropy of the next token over their tokens and the
    end of text."""
    device = next(model.parameters()).device
    own = torch.Generator(device=device).manual_seed(seed)
    rows = tokenizer(list(prompts_R), return_tensors="pt", padding=True).to(device)
    tokens_RT, real_RT = rows["input_ids"], rows["attention_mask"]
    chosen, entropies, cache = [], [], None
    with _evaluating(model):
        for _ in range(language.ANSWER_LENGTH + 1):
            more = padding(real_RT)
            if more and cache is not None:
                more["position_ids"] = more["position_ids"][:, -1:]
            out = model(input_ids=tokens_RT, past_key_values=cache, use_cache=True, **more)
            cache = out.past_key_values
            logits_RV = out.logits[:, -1].float()
            tokens_RT = torch.multinomial(logits_RV.softmax(-1), 1, generator=own)
            real_RT = torch.cat([real_RT, torch.ones_like(tokens_RT)], dim=1)
            chosen.append(tokens_RT)
            entropies.append(
                torch.distributions.Categorical(logits=logits_RV, validate_args=False).entropy()
            )
    drawn = torch.cat(chosen, dim=1).tolist()
    eos = tokenizer.eos_token_id
    ends = [row.index(eos) if eos in row else len(row) for row in drawn]
    texts = list(tokenizer.batch_decode([row[:end] for row, end in zip(drawn, ends, strict=True)]))
    seen_RT = torch.arange(len(entropies)) <= torch.tensor(ends)[:, None]
    return texts, float(torch.stack(entropies, dim=1).cpu()[seen_RT].mean())


def answer_logits(
    model: Any, tokenizer: Any, prompts_P: Sequence[str], answers_P: Sequence[str]
) -> tuple[Any, Any]:
    """Logits of each token of the answers and of the end of text, and these tokens; -100 marks
    padding."""
    device = next(model.parameters()).device
    ended = [text + tokenizer.eos_token for text in answers_P]
    prompts = tokenizer(list(prompts_P), return_tensors="pt", padding=True, padding_side="left").to(
        device
    )
    answers = tokenizer(ended, return_tensors="pt", padding=True, padding_side="right").to(device)
    tokens_PT = torch.cat([prompts["input_ids"], answers["input_ids"]], dim=1)
    # Attention is causal: padding on the right needs no mask.
    real_PT = torch.cat([prompts["attention_mask"], torch.ones_like(answers["input_ids"])], dim=1)
    width = answers["input_ids"].shape[1]
    logits_PTV = model(input_ids=tokens_PT[:, :-1], **padding(real_PT[:, :-1])).logits[:, -width:]
    return logits_PTV, answers["input_ids"].masked_fill(answers["attention_mask"] == 0, -100)


def probability(
    model: Any, tokenizer: Any, prompts_P: Sequence[str], answers_P: Sequence[str]
) -> list[float]:
    """The probability at temperature 1 that the model gives exactly this answer and stops."""
    with _evaluating(model):
        logits_PTV, tokens_PT = answer_logits(model, tokenizer, prompts_P, answers_P)
    logp_PT = (
        logits_PTV.float().log_softmax(-1).gather(-1, tokens_PT.clamp(min=0)[..., None]).squeeze(-1)
    )
    values: list[float] = logp_PT.masked_fill(tokens_PT == -100, 0.0).sum(-1).exp().tolist()
    return values


def evaluate(
    model: Any,
    tokenizer: Any,
    rows: Sequence[dict[str, Any]],
    samples: int = 4,
    seed: int = 0,
    language: Language = skills,
) -> Success:
    """Measures the model on `rows` of the language, with `samples` completions a prompt. The seed
    fixes the result."""
    if samples < 1:
        raise ValueError(f"evaluate(samples={samples}): nothing to average. Use samples=1 or more.")
    rows_R = [row for row in rows for _ in range(samples)]
    ids_R = [int(row["prompt_id"]) for row in rows_R]
    completions_R, entropy = sample_with_entropy(
        model, tokenizer, [row["prompt"] for row in rows_R], seed, language
    )
    rewards_R = language.make_reward(seed)(completions=completions_R, prompt_id=ids_R)
    trap_R = [language.is_trap(i) for i in ids_R]
    taught = [row["prompt"] for row in rows if not language.is_trap(int(row["prompt_id"]))]
    right_P = (
        probability(model, tokenizer, taught, [language.answer(text) for text in taught])
        if taught
        else []
    )
    return Success(
        skills=_mean([reward for reward, trap in zip(rewards_R, trap_R, strict=True) if not trap]),
        expected=_mean(right_P),
        traps=_mean([reward for reward, trap in zip(rewards_R, trap_R, strict=True) if trap]),
        entropy=entropy,
        right_P=tuple(right_P),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
