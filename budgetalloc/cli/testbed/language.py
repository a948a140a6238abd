"""What a training run needs to know of a task language: `skills` is one, the benchmarks have others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

Rows = list[dict[str, Any]]


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

    def make_reward(self, seed: int = ..., /) -> Callable[..., list[float]]:
        """A reward function with TRL's signature."""
