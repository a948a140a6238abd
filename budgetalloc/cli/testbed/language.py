"""What a training run needs to know of a task language: `skills` is one, the benchmarks have others."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Rows = list[dict[str, Any]]
Reward = Callable[..., list[float]]  # with TRL's signature


@dataclass(frozen=True)
class Grading:
    """What training pays instead of the language's own reward. Success stays the share of right answers.

    Args:
        functions: From the run's seed to its reward functions. The shares of mixed groups are those of the first.
        weights: One for each function; the total is their weighted sum.
        expected: From the probability of the right answer to that of a total of 1, where the total is 0 or 1 and
            depends on nothing else; None otherwise: then the error of baselines is unknown.
    """

    functions: Callable[[int], list[Reward]]
    weights: tuple[float, ...] = (1.0,)
    expected: Callable[[float], float] | None = None


class Language(Protocol):
    """A module or an object with these names; rows have the columns `prompt`, `prompt_id` and `skill`."""

    WEIGHTS: Path
    """The folder of a model that was pretrained on this language."""
    ANSWER_LENGTH: int
    """Characters (tokens) of the longest answer."""

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
