"""A learned reward model of 2,369 parameters for the language of `operations`, wrong as reward models are.

It sees the prompt's letter and, for each of the twelve operations, which characters of the answer are those that the
operation would write. It is trained on pairs of answers, as Bradley and Terry's model of preferences is, by labels that
are wrong in one pair of ten. So what it pays has no natural range, differs in size from letter to letter, and prefers
some wrong answers to others.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import operations  # beside this file
from numpy.typing import NDArray

from budgetalloc.cli.testbed.language import Grading

HIDDEN = 32
WRONG_LABELS = 0.1
_RUNS = tuple(operations.OPERATIONS.values())
_LETTERS = {skill.letter: k for k, skill in enumerate(operations.SKILLS)}


def seen(asked: str, text: str) -> NDArray[np.float32]:
    """What the model sees of a prompt and an answer, shape (24 letters + 12 operations * 4 characters,)."""
    letter = np.zeros(len(_LETTERS), dtype=np.float32)
    letter[_LETTERS[asked[0]]] = 1
    written = f"{text:<{operations.ANSWER_LENGTH}}"[: operations.ANSWER_LENGTH]
    agree = [a == b for run in _RUNS for a, b in zip(written, run(asked[1:-1]), strict=True)]
    return np.concatenate([letter, np.array(agree, dtype=np.float32)])


def _pairs(rng: np.random.Generator, count: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Pairs of answers by two operations: the one that is preferred, and the other."""
    first, second = [], []
    for _ in range(count):
        row = operations.SKILLS[int(rng.integers(len(operations.SKILLS)))]
        digits = operations.clear_digits(False)[int(rng.integers(len(operations.clear_digits(False))))]
        asked = f"{row.letter}{digits}="
        right, wrong = operations.answer(asked), _RUNS[int(rng.integers(len(_RUNS)))](digits)
        better, worse = (wrong, right) if rng.random() < WRONG_LABELS else (right, wrong)
        first.append(seen(asked, better))
        second.append(seen(asked, worse))
    return np.array(first), np.array(second)


@cache
def trained(pairs: int = 6_000, passes: int = 20) -> Any:
    """The model, trained in about three seconds, the same each time."""
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        width = len(_LETTERS) + len(_RUNS) * operations.ANSWER_LENGTH
        model = nn.Sequential(nn.Linear(width, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
        better, worse = map(torch.from_numpy, _pairs(np.random.default_rng(0), pairs))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(passes):
            for some in torch.randperm(pairs).split(250):
                optimizer.zero_grad()
                nn.functional.softplus(model(worse[some]) - model(better[some])).mean().backward()
                optimizer.step()
    return model.requires_grad_(False)


def scored(asked: Sequence[str], texts: Sequence[str]) -> list[float]:
    """The model's score of each answer: larger is better, without a range."""
    import torch

    rows = np.array([seen(prompt, text) for prompt, text in zip(asked, texts, strict=True)])
    return [float(x) for x in trained()(torch.from_numpy(rows))[:, 0]]


def grading() -> Grading:
    """The score of the model."""

    def reward_model(completions: Sequence[str], prompts: Sequence[str], **columns: Any) -> list[float]:
        return scored(prompts, completions)

    return Grading(lambda seed: [reward_model])
