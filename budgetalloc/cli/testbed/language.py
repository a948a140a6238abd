"""The two task languages as values, so that training, measuring and pretraining take either."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.cli.testbed import growing, skills

Rows = list[dict[str, Any]]
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Language:
    """What a run needs to know of a task language; both modules offer the same functions."""

    name: str
    weights: Path
    """The model shipped for it."""
    alphabet: str
    """One token a character."""
    answer_length: int
    """Characters of the longest answer."""
    pool: Callable[[int, int], Rows]
    """(prompts of each skill, seed): the rows to train on, with `prompt`, `prompt_id` and `skill`."""
    held_out: Callable[[int], Rows]
    """(prompts of each skill): the rows to measure on."""
    pool_per_skill: int
    held_out_per_skill: int
    answer: Callable[[str], str]
    """(prompt): the answer that is paid; a trap of `skills` has none."""
    is_trap: Callable[[int], bool]
    """(prompt id): whether nothing can be learned from it."""
    make_reward: Callable[[int], Callable[..., list[float]]]
    """(seed): a reward function with TRL's signature."""
    lines_of_text: Callable[[int, np.random.Generator], list[str]]
    """(lines, rng): pretraining text; the prompt ends with the only `=` of a line."""


SKILLS = Language(
    name="skills",
    weights=_HERE / "weights",
    alphabet=skills.ALPHABET,
    answer_length=skills.LENGTH,
    pool=skills.pool,
    held_out=skills.held_out,
    pool_per_skill=80,
    held_out_per_skill=20,
    answer=skills.answer,
    is_trap=lambda prompt_id: skills.skill_of(prompt_id).is_trap,
    make_reward=skills.make_reward,
    lines_of_text=skills.lines_of_text,
)
GROWING = Language(
    name="growing",
    weights=_HERE / "weights_growing",
    alphabet=growing.ALPHABET,
    answer_length=growing.ANSWER_LENGTH,
    pool=growing.pool,
    held_out=growing.held_out,
    pool_per_skill=52,
    held_out_per_skill=14,
    answer=growing.answer,
    is_trap=growing.is_trap,
    make_reward=growing.make_reward,
    lines_of_text=growing.lines_of_text,
)
LANGUAGES = {language.name: language for language in (SKILLS, GROWING)}
