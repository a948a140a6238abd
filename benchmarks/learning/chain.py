"""A task language of written chains: two to eight steps, each of which may go wrong, and all of which must be right.

    bka4071=b1704k2815a2815

A prompt is a letter for each step, four digits and `=`. The answer writes each step: its letter, and the digits after
its operation on the digits of the step before. There are 24 letters, each with one right operation among the twelve of
`operations`. At each step the pretraining text applies the right one with probability `shown`, else one of the eleven
others, all alike, and goes on from there. So a chain of two steps is mostly right and one of eight mostly wrong, the
answers have 10 to 40 characters, and a wrong answer may be right until its last step.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import operations  # in this folder
from operations import OPERATIONS, Skill

from budgetalloc.cli.testbed.skills import DIGITS, LENGTH, STRINGS, is_held_out

WEIGHTS = Path(__file__).parent / "weights_chain"  # of the model that was pretrained on this language
STEPS = tuple(range(2, 9))  # of a chain
ANSWER_LENGTH = max(STEPS) * (LENGTH + 1)
SHOWN = (
    *(0.995, 0.99, 0.99, 0.98, 0.98, 0.97, 0.97, 0.96, 0.96, 0.95, 0.94, 0.93),
    *(0.92, 0.90, 0.88, 0.86, 0.83, 0.80, 0.75, 0.68, 0.58, 0.45, 0.30, 0.10),
)
# Every operation is right twice, as in `operations`.
SKILLS = tuple(Skill(each.letter, each.right, shown) for each, shown in zip(operations.SKILLS, SHOWN, strict=True))
ALPHABET = DIGITS + "=" + "".join(skill.letter for skill in SKILLS)  # one token a character
_INDEX = {skill.letter: k for k, skill in enumerate(SKILLS)}
_RIGHT = {skill.letter: OPERATIONS[skill.right] for skill in SKILLS}
_WRONG = {skill.letter: [run for name, run in OPERATIONS.items() if name != skill.right] for skill in SKILLS}
_BASE = len(SKILLS) + 1  # of the letters of a prompt id, so that chains of different lengths have different ids
_MOST = 5000  # prompts of each length, in either split


def _parts(text: str) -> tuple[str, str]:
    """Letters and digits of a prompt."""
    letters, digits = text[: -LENGTH - 1], text[-LENGTH - 1 : -1]
    known = len(letters) in STEPS and all(letter in _INDEX for letter in letters)
    if not (known and digits.isdecimal() and text[-1:] == "=" and set(digits) <= set(DIGITS)):
        raise ValueError(
            f"text={text!r}: not a prompt. Write {STEPS[0]} to {STEPS[-1]} letters a-x, {LENGTH} digits and '='."
        )
    return letters, digits


def prompt_id(text: str) -> int:
    """A number that names the prompt in every pool and split; `prompt_of` reads it back."""
    letters, digits = _parts(text)
    number = 0
    for letter in letters:
        number = number * _BASE + _INDEX[letter] + 1
    return number * STRINGS + int(digits)


def prompt_of(prompt_id: int) -> str:
    """The text of a prompt."""
    number, digits = divmod(prompt_id, STRINGS)
    letters = ""
    while number > 0 and number % _BASE:
        letters = SKILLS[number % _BASE - 1].letter + letters
        number //= _BASE
    if number or len(letters) not in STEPS:
        raise ValueError(f"prompt_of(prompt_id={prompt_id}): no such prompt. Use the ids of pool() and held_out().")
    return f"{letters}{digits:0{LENGTH}d}="


def is_trap(prompt_id: int) -> bool:
    """Whether no answer improves the reward: never in this language."""
    return False


def _written(letters: str, digits: str, choose: Callable[[str], Callable[[str], str]]) -> str:
    """A chain: `choose` gives each step's operation from its letter."""
    text = ""
    for letter in letters:
        digits = choose(letter)(digits)
        text += letter + digits
    return text


@lru_cache(maxsize=65536)
def answer(text: str) -> str:
    """The one answer with reward 1: every step written, and right."""
    return _written(*_parts(text), _RIGHT.__getitem__)


def make_reward(seed: int = 0, rank: int = 0) -> Callable[..., list[float]]:
    """A reward function with TRL's signature: 1.0 for the whole right chain, else 0.0. The seed changes nothing."""

    def reward(completions: Sequence[str], prompt_id: Sequence[int], **columns: Any) -> list[float]:
        return [float(text == answer(prompt_of(int(i)))) for text, i in zip(completions, prompt_id, strict=True)]

    return reward


def _draw(steps: int, rng: np.random.Generator) -> tuple[str, str]:
    letters = "".join(SKILLS[k].letter for k in rng.integers(len(SKILLS), size=steps))
    return letters, f"{int(rng.integers(STRINGS)):0{LENGTH}d}"


def _rows(per_length: int, rng: np.random.Generator, held: bool) -> list[dict[str, Any]]:
    if not 1 <= per_length <= _MOST:
        raise ValueError(f"per_length={per_length}: use 1 to {_MOST}.")
    rows: list[dict[str, Any]] = []
    for steps in STEPS:
        drawn: dict[str, None] = {}
        while len(drawn) < per_length:
            letters, digits = _draw(steps, rng)
            if is_held_out(digits) == held:
                drawn[f"{letters}{digits}="] = None
        rows += [{"prompt": text, "prompt_id": prompt_id(text), "skill": f"{steps} steps"} for text in drawn]
    return rows


def pool(per_length: int = 300, seed: int = 0) -> list[dict[str, Any]]:
    """Prompts to train on, `per_length` different ones of each length: columns `prompt`, `prompt_id`, `skill`."""
    return _rows(per_length, np.random.default_rng([seed, 0]), held=False)


def held_out(per_length: int = 40, seed: int = 0) -> list[dict[str, Any]]:
    """Prompts to measure on, columns as `pool`; their digits begin no prompt of a pool or of the pretraining text."""
    return _rows(per_length, np.random.default_rng([seed, 1]), held=True)


def lines_of_text(rows: int, rng: np.random.Generator) -> list[str]:
    """Pretraining text: `rows` prompts, each followed by a chain; all chains of a call have the same length.

    Short chains are shown more often, in proportion to 1 / steps: they teach the same operations in less time.
    """
    often = 1 / np.array(STEPS)
    steps = int(rng.choice(STEPS, p=often / often.sum()))

    def choose(letter: str) -> Callable[[str], str]:
        if rng.random() < SKILLS[_INDEX[letter]].shown:
            return _RIGHT[letter]
        return _WRONG[letter][int(rng.integers(len(_WRONG[letter])))]

    lines: list[str] = []
    while len(lines) < rows:
        letters, digits = _draw(steps, rng)
        if not is_held_out(digits):
            lines.append(f"{letters}{digits}={_written(letters, digits, choose)}")
    return lines
