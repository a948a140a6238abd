"""What a task language has: `skills` of the package is one, and this folder has others."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Rows = list[dict[str, Any]]
Reward = Callable[..., list[float]]  # with TRL's signature


@dataclass(frozen=True)
class Grading:
    """Reward functions that replace the language's own in training. Success stays the share of right answers.

    Args:
        functions: Maps the run's seed to its reward functions. The shares of mixed groups are about the first.
        weights: One for each function. The total reward is the weighted sum.
        expected: Maps the probability of the right answer to the probability of a total of 1, if the total is 0 or 1
            and depends on nothing else. None otherwise: there is no oracle then.
    """

    functions: Callable[[int], list[Reward]]
    weights: tuple[float, ...] = (1.0,)
    expected: Callable[[float], float] | None = None


class Language(Protocol):
    """A module or an object with these names. Rows have the columns `prompt`, `prompt_id` and `skill`.

    A language with many right answers to a prompt also has `evaluate(model, tokenizer, rows)`, which measures success.
    """

    WEIGHTS: Path  # the folder of a model that was pretrained on this language
    ANSWER_LENGTH: int  # characters (tokens) of the longest answer

    def pool(self, per_skill: int = ..., /, seed: int = ...) -> Rows:
        """The rows to train on."""

    def held_out(self, per_skill: int = ..., /, seed: int = ...) -> Rows:
        """The rows to measure on, disjoint from every pool."""

    def answer(self, text: str, /) -> str:
        """The right answer to a prompt; not called for traps."""

    def is_trap(self, prompt_id: int, /) -> bool:
        """Whether training cannot improve the reward of this prompt."""

    def make_reward(self, seed: int = ..., /) -> Reward:
        """The reward function."""
