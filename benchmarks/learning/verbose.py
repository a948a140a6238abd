"""A task language of thoughts that run on: chains whose last step is written again and again, and then the answer.

    bka4071=b1704k2815a2815a2815a2815|2815

Prompts are those of `chain` with two to five letters. The last step of a thought may be repeated, then come `|` and its
digits, and the reward reads only what follows the last `|`. A text of the pretraining draws the probability of each
repetition from 0.5 to 0.95. So thoughts have 10 to 190 characters, and long ones are not right more often.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import chain  # in this folder
import numpy as np
from chain import LENGTH, is_trap, prompt_id, prompt_of

__all__ = ["is_trap", "prompt_id", "prompt_of"]  # as in `chain`

WEIGHTS = Path(__file__).parent / "weights_verbose"  # of the model that was pretrained on this language
END = "|"  # of the thought
ALPHABET = chain.ALPHABET + END
_LONGEST = 5 + LENGTH + 1  # prompt, in characters
_MOST = 38  # steps of a thought, with the repeated ones
ANSWER_LENGTH = _MOST * (LENGTH + 1) + len(END) + LENGTH
_AGAIN = (0.5, 0.95)  # the range of the probability that the last step is written again
_AT_ONCE = 28  # tokens that `rollouts` generates before it leaves out what is complete; seven times is the longest


def answer(text: str) -> str:
    """The shortest answer with reward 1: each step once, and right."""
    written = chain.answer(text)
    return written + END + written[-LENGTH:]


def make_reward(seed: int = 0, rank: int = 0) -> Callable[..., list[float]]:
    """A reward function with TRL's signature: 1.0 if the right digits follow the last `|`, else 0.0."""

    def reward(completions: Sequence[str], prompt_id: Sequence[int], **columns: Any) -> list[float]:
        right = [END + chain.answer(prompt_of(int(i)))[-LENGTH:] for i in prompt_id]
        return [float(text.endswith(each)) for text, each in zip(completions, right, strict=True)]

    return reward


def pool(per_length: int = 300, seed: int = 0) -> list[dict[str, Any]]:
    """Prompts to train on, as in `chain`."""
    return [row for row in chain.pool(per_length, seed) if len(row["prompt"]) <= _LONGEST]


def held_out(per_length: int = 40, seed: int = 0) -> list[dict[str, Any]]:
    """Prompts to measure on, as in `chain`."""
    return [row for row in chain.held_out(per_length, seed) if len(row["prompt"]) <= _LONGEST]


def lines_of_text(rows: int, rng: np.random.Generator) -> list[str]:
    """Pretraining text: the lines of `chain`, each with its last step once or more, and then the last digits."""
    chains = chain.lines_of_text(rows, rng)
    if chains[0].index("=") >= _LONGEST:
        return lines_of_text(rows, rng)
    lines = []
    for line in chains:
        step = line[-LENGTH - 1 :]
        most, times = _MOST + 1 - len(line.partition("=")[2]) // len(step), _MOST
        while times > most:
            times = int(rng.geometric(1 - rng.uniform(*_AGAIN)))
        lines.append(f"{line}{step * (times - 1)}{END}{step[1:]}")
    return lines


def rollouts(model: Any, tokenizer: Any, rows: Sequence[dict[str, Any]], number: int) -> list[str]:
    """Rollouts at temperature 1 and of any length, `number` of each prompt one after another, the same in every call
    for the same weights."""
    import torch

    prompts = [row["prompt"] for row in rows for _ in range(number)]
    texts = list(prompts)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(0, ANSWER_LENGTH + 1, _AT_ONCE):
            open_rows = [row for row, text in enumerate(texts) if not text.endswith(tokenizer.eos_token)]
            if not open_rows:
                break
            tokens = tokenizer([texts[row] for row in open_rows], return_tensors="pt", padding=True)
            given = {name: tokens[name].to(model.device) for name in ("input_ids", "attention_mask")}
            made = model.generate(**given, max_new_tokens=_AT_ONCE, do_sample=True, temperature=1.0, top_k=0)
            for row, text in zip(
                open_rows, tokenizer.batch_decode(made[:, given["input_ids"].shape[1] :]), strict=True
            ):
                texts[row] += text.replace(tokenizer.pad_token, "")
    return [text[len(prompt) :].removesuffix(tokenizer.eos_token) for text, prompt in zip(texts, prompts, strict=True)]


def evaluate(model: Any, tokenizer: Any, rows: Sequence[dict[str, Any]]) -> Any:
    """The success as `heldout.evaluate` gives it, but of four rollouts of each prompt: right answers are too many to
    sum up their probabilities."""
    from budgetalloc.cli.testbed.heldout import Success

    ids = [row["prompt_id"] for row in rows for _ in range(4)]
    rewards = make_reward()(completions=rollouts(model, tokenizer, rows, 4), prompt_id=ids)
    return Success(tuple(np.reshape(rewards, (len(rows), 4)).mean(axis=1).tolist()))
