"""The task language: 24 skills that reinforcement learning can teach and two traps that it cannot.

A prompt is a letter that names a skill, four digits and `=`: `b4071=`. A skill has a right and a
wrong operation. The pretraining text answers with the right one with probability `shown`, so the
model knows every operation, and training has to find the right one and to prefer it. The reward of
a trap is a coin toss, whatever the answer. Its groups stay mixed as often as those of a useful
prompt, however long the training.
"""

import string
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.offline.worlds import SHOWN

WEIGHTS = Path(__file__).parent / "weights"  # the model that was pretrained on this language
DIGITS = string.digits
LENGTH = ANSWER_LENGTH = 4  # digits in a prompt, and in an answer
STRINGS: int = 10**LENGTH
ALPHABET = DIGITS + "=" + string.ascii_lowercase  # one token a character

OPERATIONS: dict[str, Callable[[str], str]] = {
    "copy": lambda d: d,
    "reverse": lambda d: d[::-1],
    "sort_up": lambda d: "".join(sorted(d)),
    "sort_down": lambda d: "".join(sorted(d, reverse=True)),
    "plus_one": lambda d: "".join(str((int(c) + 1) % 10) for c in d),
    "minus_one": lambda d: "".join(str((int(c) - 1) % 10) for c in d),
    "rotate_left": lambda d: d[1:] + d[0],
    "rotate_right": lambda d: d[-1] + d[:-1],
}

_COINS = (0.25, 0.12)


@dataclass(frozen=True)
class Skill:
    """One letter of the language."""

    letter: str
    right: str  # the operation with reward 1; for a trap, one of the two that the text shows
    wrong: str
    shown: float  # the probability that the pretraining text answers with `right`
    # a trap's probability of reward 1; None for a skill that can be learned
    coin: float | None = None

    @property
    def is_trap(self) -> bool:
        return self.coin is not None

    def is_clear(self, digits: str) -> bool:
        """Whether right and wrong differ on these digits: copying and reversing 1111 give the
        same."""
        return OPERATIONS[self.right](digits) != OPERATIONS[self.wrong](digits)


def _skills() -> tuple[Skill, ...]:
    names = list(OPERATIONS)
    skills = []
    # every operation is right three times: once common, once middling, once rare
    for k, shown in enumerate(SHOWN):
        right, wrong = names[k % 8], names[(k + 3 + k // 8) % 8]
        skills.append(Skill(string.ascii_lowercase[k], right, wrong, shown))
    for k, coin in enumerate(_COINS, start=len(SHOWN)):
        skills.append(Skill(string.ascii_lowercase[k], names[k % 8], names[(k + 3) % 8], 0.5, coin))
    return tuple(skills)


SKILLS: tuple[Skill, ...] = _skills()
_INDEX = {skill.letter: k for k, skill in enumerate(SKILLS)}


def prompt_id(text: str) -> int:
    """The prompt's number in every pool and split; `skill_of` reads it back."""
    return _INDEX[text[0]] * STRINGS + int(text[1:-1])


def skill_of(prompt_id: int) -> Skill:
    """The skill of a prompt."""
    return SKILLS[prompt_id // STRINGS]


def is_trap(prompt_id: int) -> bool:
    """Whether no answer to the prompt improves its reward."""
    return skill_of(prompt_id).is_trap


def answer(text: str) -> str:
    """The answer with reward 1, such as `answer("a1234=")`. A trap has none."""
    return _answer_of(prompt_id(text))


@lru_cache(maxsize=65536)
def _answer_of(prompt_id: int) -> str:
    return OPERATIONS[skill_of(prompt_id).right](f"{prompt_id % STRINGS:0{LENGTH}d}")


def make_reward(seed: int = 0, rank: int = 0) -> Callable[..., list[float]]:
    """A reward function with TRL's signature: 1.0 for the right answer, else 0.0; for a trap, its
    coin.

    The coins depend on the seed, the rank, the trainer's step and the number of calls within the
    step, but neither on the prompt nor on the answer. A run is therefore reproducible, even after a
    resume.
    """
    calls: Counter[int] = Counter()

    def reward(completions: Sequence[str], prompt_id: Sequence[int], **columns: Any) -> list[float]:
        state = columns.get("trainer_state")
        step = 0 if state is None else int(state.global_step)
        calls[step] += 1
        coins_R = np.random.default_rng([seed, rank, step, calls[step]]).random(len(completions))
        rewards_R = []
        for text, i, toss in zip(completions, prompt_id, coins_R, strict=True):
            coin = skill_of(int(i)).coin
            rewards_R.append(float(text == _answer_of(int(i)) if coin is None else toss < coin))
        return rewards_R

    return reward


def is_held_out(digits: str) -> bool:
    """Whether the digits belong to the tenth that only `held_out` uses, in every version and for
    every seed."""
    return zlib.crc32(digits.encode()) % 10 == 0


def _rows(per_skill: int, rng: np.random.Generator, held: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for skill in SKILLS:
        every = (f"{n:0{LENGTH}d}" for n in range(STRINGS))
        fits = [
            digits for digits in every if is_held_out(digits) == held and skill.is_clear(digits)
        ]
        for n in rng.choice(len(fits), size=per_skill, replace=False):
            text = f"{skill.letter}{fits[n]}="
            rows.append({"prompt": text, "prompt_id": prompt_id(text), "skill": skill.letter})
    return rows


def pool(per_skill: int = 80, seed: int = 0) -> list[dict[str, Any]]:
    """Prompts for training, `per_skill` different ones of each skill: columns `prompt`,
    `prompt_id`, `skill`."""
    return _rows(per_skill, np.random.default_rng([seed, 0]), held=False)


def held_out(per_skill: int = 20, seed: int = 0) -> list[dict[str, Any]]:
    """Prompts for evaluation, with the columns of `pool`. Their digits are in no pool and no
    pretraining text."""
    return _rows(per_skill, np.random.default_rng([seed, 1]), held=True)
