"""A learned reward model of 2,369 parameters for the language of `operations`, with typical errors.

    python benchmarks/learning/reward_model.py      # trains it again, in a minute, and writes reward_model.npz

It sees the prompt's letter and, for each of the twelve operations, which characters of the answer are those that the
operation would write. It was trained on pairs of answers as Bradley and Terry's model of preferences is: a right one
and a wrong one, which is another operation's, a spoiled right one, or any digits; one label of ten is wrong. So what it
pays has no natural range, differs in size from letter to letter, and is now and then larger for a wrong answer.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import operations  # in this folder
from language import Grading
from numpy.typing import NDArray

WEIGHTS = Path(__file__).with_name("reward_model.npz")
HIDDEN = 32
WRONG_LABELS = 0.1
Array = NDArray[np.float32]
_RUNS = tuple(operations.OPERATIONS.values())
_LETTERS = {skill.letter: k for k, skill in enumerate(operations.SKILLS)}


def seen(asked: str, text: str) -> Array:
    """The model's input for a prompt and an answer, shape (24 letters + 12 operations * 4 characters,).

    An answer of another length agrees in no character. Otherwise a fifth character would cost nothing.
    """
    letter = np.zeros(len(_LETTERS), dtype=np.float32)
    letter[_LETTERS[asked[0]]] = 1
    written = text if len(text) == operations.ANSWER_LENGTH else " " * operations.ANSWER_LENGTH
    agree = [a == b for run in _RUNS for a, b in zip(written, run(asked[1:-1]), strict=True)]
    return np.concatenate([letter, np.array(agree, dtype=np.float32)])


def scored(asked: Sequence[str], texts: Sequence[str]) -> list[float]:
    """The model's score of each answer: larger is better, without a range."""
    model = _weights()
    rows = np.array([seen(prompt, text) for prompt, text in zip(asked, texts, strict=True)])
    hidden = np.tanh(rows @ model["first"].T + model["first_bias"])
    return [float(x) for x in hidden @ model["second"] + model["second_bias"]]


def grading() -> Grading:
    """The score of the model."""

    def reward_model(completions: Sequence[str], prompts: Sequence[str], **columns: Any) -> list[float]:
        return scored(prompts, completions)

    return Grading(lambda seed: [reward_model])


@cache
def _weights() -> dict[str, Array]:
    with np.load(WEIGHTS, allow_pickle=False) as file:
        return dict(file)


def _spoiled(right: str, rng: np.random.Generator) -> str:
    """A wrong answer: the right one with one to four characters replaced, or any digits."""
    text = list(right)
    for at in rng.permutation(len(text))[: 1 + int(rng.integers(len(text)))]:
        text[at] = str((int(text[at]) + 1 + int(rng.integers(9))) % 10)
    return "".join(text)


def pairs(count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """The model's inputs for preferred answers, and for the answers they were preferred to."""
    digits = operations.clear_digits(False)
    sides: tuple[list[Array], list[Array]] = ([], [])
    for _ in range(count):
        letter = operations.SKILLS[int(rng.integers(len(operations.SKILLS)))].letter
        asked = f"{letter}{digits[int(rng.integers(len(digits)))]}="
        right = wrong = operations.answer(asked)
        while wrong == right:
            run = _RUNS[int(rng.integers(len(_RUNS)))]
            wrong = run(asked[1:-1]) if rng.random() < 0.4 else _spoiled(right, rng)
        preferred = right, wrong
        for side, text in zip(sides, preferred[::-1] if rng.random() < WRONG_LABELS else preferred, strict=True):
            side.append(seen(asked, text))
    return np.array(sides[0]), np.array(sides[1])


def trained(count: int = 40_000, passes: int = 20) -> dict[str, Array]:
    """The model's weights after training."""
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        better, worse = map(torch.from_numpy, pairs(count, np.random.default_rng(0)))
        first, second = nn.Linear(better.shape[1], HIDDEN), nn.Linear(HIDDEN, 1)
        model = nn.Sequential(first, nn.Tanh(), second)
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for _ in range(passes):
            for some in torch.randperm(count).split(250):
                optimizer.zero_grad()
                nn.functional.softplus(model(worse[some]) - model(better[some])).mean().backward()
                optimizer.step()
    parts = first.weight, first.bias, second.weight[0], second.bias[0]
    names = "first", "first_bias", "second", "second_bias"
    return {name: part.detach().numpy() for name, part in zip(names, parts, strict=True)}


if __name__ == "__main__":
    np.savez(WEIGHTS, **trained())
