"""A task language with many ways to be wrong: 24 skills, each with one right operation among twelve.

Prompts look as those of `budgetalloc.cli.testbed.skills`: `b4071=`. The pretraining text answers with the right
operation with probability `shown`, else with one of the eleven others, all alike. So a failure says little about what
is right, as with real answers, and a skill that passes one time in fifty has no second candidate that is nearly right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.cli.testbed import skills
from budgetalloc.cli.testbed.skills import ALPHABET, ANSWER_LENGTH, LENGTH, STRINGS, is_held_out, prompt_id

__all__ = ["ALPHABET", "ANSWER_LENGTH", "is_held_out", "prompt_id"]  # also of this language

WEIGHTS = Path(__file__).parent / "weights_operations"  # of the model that was pretrained on this language


def _each(change: Callable[[int], int]) -> Callable[[str], str]:
    return lambda digits: "".join(str(change(int(d)) % 10) for d in digits)


OPERATIONS: dict[str, Callable[[str], str]] = {
    **skills.OPERATIONS,
    "nines": _each(lambda d: 9 - d),
    "double": _each(lambda d: 2 * d),
    "plus_five": _each(lambda d: d + 5),
    "swap_pairs": lambda d: d[1] + d[0] + d[3] + d[2],
}
_NAMES = tuple(OPERATIONS)
SHOWN = (
    *(0.98, 0.97, 0.95, 0.93, 0.90, 0.86, 0.80, 0.72, 0.64, 0.54, 0.44, 0.34),
    *(0.25, 0.18, 0.12, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02, 0.02, 0.01, 0.01),
)


@dataclass(frozen=True)
class Skill:
    """One letter of the language."""

    letter: str
    right: str
    """The operation with reward 1."""
    shown: float
    """Probability that the pretraining text answers with `right`."""


# Every operation is right twice: once for a skill that is mostly known, once for one that is mostly unknown.
SKILLS = tuple(Skill(chr(ord("a") + k), _NAMES[(5 * k) % 12], shown) for k, shown in enumerate(SHOWN))
_SKILL = {skill.letter: skill for skill in SKILLS}


@cache
def clear_digits(held: bool) -> tuple[str, ...]:
    """The digits on which all twelve operations differ, those of `held_out` or those of every pool."""
    every = (f"{n:0{LENGTH}d}" for n in range(STRINGS))
    return tuple(
        d for d in every if is_held_out(d) == held and len({run(d) for run in OPERATIONS.values()}) == len(OPERATIONS)
    )


def is_trap(prompt_id: int) -> bool:
    """Whether no answer improves the reward: never in this language."""
    return False


@lru_cache(maxsize=65536)
def answer(text: str) -> str:
    """The one answer with reward 1."""
    if text[:1] not in _SKILL or not text[1:-1].isdecimal() or len(text) != LENGTH + 2:
        raise ValueError(f"answer(text={text!r}): not a prompt. Write a letter a-x, {LENGTH} digits and '='.")
    return OPERATIONS[_SKILL[text[0]].right](text[1:-1])


def make_reward(seed: int = 0, rank: int = 0) -> Callable[..., list[float]]:
    """A reward function with TRL's signature: 1.0 for the right answer, else 0.0. It does not depend on the seed."""

    def reward(completions: Sequence[str], prompt_id: Sequence[int], **columns: Any) -> list[float]:
        prompts = [f"{SKILLS[i // STRINGS].letter}{i % STRINGS:0{LENGTH}d}=" for i in prompt_id]
        return [float(text == answer(prompt)) for text, prompt in zip(completions, prompts, strict=True)]

    return reward


def _rows(per_skill: int, rng: np.random.Generator, held: bool) -> list[dict[str, Any]]:
    digits = clear_digits(held)
    if not 1 <= per_skill <= len(digits):
        raise ValueError(f"per_skill={per_skill}: there are {len(digits)} prompts a skill. Use 1 to {len(digits)}.")
    rows: list[dict[str, Any]] = []
    for skill in SKILLS:
        texts = [f"{skill.letter}{digits[n]}=" for n in rng.choice(len(digits), size=per_skill, replace=False)]
        rows += [{"prompt": text, "prompt_id": prompt_id(text), "skill": skill.letter} for text in texts]
    return rows


def pool(per_skill: int = 80, seed: int = 0) -> list[dict[str, Any]]:
    """Prompts to train on, `per_skill` different ones of each skill: columns `prompt`, `prompt_id`, `skill`."""
    return _rows(per_skill, np.random.default_rng([seed, 0]), held=False)


def held_out(per_skill: int = 20, seed: int = 0) -> list[dict[str, Any]]:
    """Prompts to measure on, with the columns of `pool`; their digits are in no pool and no pretraining text."""
    return _rows(per_skill, np.random.default_rng([seed, 1]), held=True)


def lines_of_text(rows: int, rng: np.random.Generator) -> list[str]:
    """Pretraining text: `rows` prompts, each followed by the answer of the right operation or of another."""
    lines: list[str] = []
    while len(lines) < rows:
        skill = SKILLS[int(rng.integers(len(SKILLS)))]
        digits = f"{int(rng.integers(STRINGS)):0{LENGTH}d}"
        if digits not in _CLEAR:
            continue
        others = [name for name in _NAMES if name != skill.right]
        operation = skill.right if rng.random() < skill.shown else others[int(rng.integers(len(others)))]
        lines.append(f"{skill.letter}{digits}={OPERATIONS[operation](digits)}")
    return lines


_CLEAR = frozenset(clear_digits(held=False))
