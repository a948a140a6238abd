"""A task language of arithmetic and string tasks that get harder with length, and two that can only be guessed.

    add 47+85=    subtract 47-85= (mod 100)    double d470=    total t4708= (of the digits)
    copy c4708=   reverse r4708=               sort s4708=     biggest m4708=    count k4708= (digits of 5 and more)
    parity p470812= (of the digits' sum)       check h470812= (digits weighted 1, 2, 1, 2, ... mod 3)

The pretraining text shows short prompts often and mostly solved, long ones rarely and often with a mistake that is easy
to make, such as forgetting to carry. So the pretrained model solves about half of the prompts. The text also has right
answers to the last two tasks, but a tiny model only learns to guess among two or three answers: prompts of these tasks
pass a half or a third of the time, as the most useful prompts do, and training does not change that.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

WEIGHTS = Path(__file__).parent / "weights_growing"  # of the model that was pretrained on this language
ALPHABET = "0123456789=+-cdhkmprst"  # one token a character
ANSWER_LENGTH = 5  # at most: five digits, copied
_ALL = 10**8  # numbers of up to eight digits, the most that a prompt has
_MOST = 900  # every length from four digits on has this many different prompts, in either split


def _pair(digits: str) -> tuple[int, int, int]:
    """Both operands and their length."""
    half = len(digits) // 2
    return int(digits[:half]), int(digits[half:]), half


def _add(digits: str) -> str:
    a, b, _ = _pair(digits)
    return str(a + b)


def _no_carry(digits: str) -> str:
    half = len(digits) // 2
    kept = "".join(str((int(a) + int(b)) % 10) for a, b in zip(digits[:half], digits[half:], strict=True))
    return str(int(kept))


def _subtract(digits: str) -> str:
    a, b, half = _pair(digits)
    return f"{(a - b) % 10**half:0{half}d}"


def _swapped(digits: str) -> str:
    a, b, half = _pair(digits)
    return f"{(b - a) % 10**half:0{half}d}"


def _each_doubled(digits: str) -> str:
    return str(int("".join(str(2 * int(d) % 10) for d in digits)))


def _total(digits: str) -> int:
    return sum(map(int, digits))


def _count_big(digits: str) -> int:
    return sum(d >= "5" for d in digits)


def _check(digits: str) -> str:
    return str(sum(int(d) * (1 + k % 2) for k, d in enumerate(digits)) % 3)


@dataclass(frozen=True)
class Task:
    """One sign of the language."""

    name: str
    sign: str
    right: Callable[[str], str]
    """From the digits of a prompt, both operands in one, to the answer."""
    mistake: Callable[[str], str]
    """The wrong answer that the text shows; the text has only right answers to tasks that are guessed."""
    lengths: tuple[int, ...]
    """Digits in a prompt, the shortest first."""
    often: float = 1.0
    """How often the text shows it, relative to others; two operands take longer to learn."""
    guesses: int | None = None
    """Number of answers of a task that is only guessed; None for one that reinforcement can teach."""


@dataclass(frozen=True)
class Cell:
    """A task at one length: what a prompt id names, with the digits."""

    task: Task
    length: int
    often: float
    """The same of the task at this length."""
    shown: float
    """Probability that the text answers rightly."""

    def prompt(self, digits: str) -> str:
        half = self.length // 2
        if self.task.sign in "+-":
            return f"{digits[:half]}{self.task.sign}{digits[half:]}="
        return f"{self.task.sign}{digits}="


_SHORT, _PAIRS, _LONG = (2, 3, 4, 5), (2, 4, 6), (6, 7, 8)
TASKS = (
    Task("add", "+", _add, _no_carry, _PAIRS, often=2.0),
    Task("subtract", "-", _subtract, _swapped, _PAIRS, often=2.0),
    Task("double", "d", lambda d: str(2 * int(d)), _each_doubled, (2, 3, 4)),
    Task("total", "t", lambda d: str(_total(d)), lambda d: str(_total(d[1:])), _SHORT),
    Task("copy", "c", lambda d: d, lambda d: d[::-1], _SHORT),
    Task("reverse", "r", lambda d: d[::-1], lambda d: d, _SHORT),
    Task("sort", "s", lambda d: "".join(sorted(d)), lambda d: "".join(sorted(d, reverse=True)), _SHORT),
    Task("biggest", "m", max, min, _SHORT),
    Task("count", "k", lambda d: str(_count_big(d)), lambda d: str(len(d) - _count_big(d)), _SHORT),
    Task("parity", "p", lambda d: str(_total(d) % 2), lambda d: str(1 - _total(d) % 2), _LONG, guesses=2),
    Task("check", "h", _check, lambda d: _check(d[1:] + d[0]), _LONG, guesses=3),
)
_OFTEN = (1.0, 0.8, 0.6, 0.4)
_SHOWN = (0.9, 0.7, 0.4, 0.15)

CELLS = tuple(
    Cell(task, length, task.often * often, 1.0 if task.guesses else shown)
    for task in TASKS
    for length, often, shown in zip(task.lengths, _OFTEN, _SHOWN, strict=False)
)
_OFTEN_C = np.array([cell.often for cell in CELLS]) / sum(cell.often for cell in CELLS)
_INDEX = {(cell.task.sign, cell.length): k for k, cell in enumerate(CELLS)}


def prompt_id(text: str) -> int:
    """A number that names the prompt in every pool and split; `cell_of` reads it back."""
    sign, digits = text[:1], text[1:-1]
    if sign.isdecimal():
        sign, digits = text[len(text) // 2 - 1], text[: len(text) // 2 - 1] + text[len(text) // 2 : -1]
    cell = _INDEX.get((sign, len(digits)))
    if cell is None or not digits.isdecimal() or CELLS[cell].prompt(digits) != text:
        raise ValueError(f"prompt_id(text={text!r}): not a prompt. Use the prompts of pool() and held_out().")
    return cell * _ALL + int(digits)


def cell_of(prompt_id: int) -> Cell:
    """The task and the length that a prompt asks for."""
    cell, number = divmod(prompt_id, _ALL)
    if not 0 <= cell < len(CELLS) or number >= 10 ** CELLS[cell].length:
        raise ValueError(f"cell_of(prompt_id={prompt_id}): no such prompt. Use the ids of pool() and held_out().")
    return CELLS[cell]


def is_trap(prompt_id: int) -> bool:
    """Whether the prompt can only be guessed."""
    return cell_of(prompt_id).task.guesses is not None


@lru_cache(maxsize=65536)
def _answer_of(prompt_id: int) -> str:
    cell = cell_of(prompt_id)
    return cell.task.right(f"{prompt_id % _ALL:0{cell.length}d}")


def answer(text: str) -> str:
    """The one answer with reward 1: `answer("47+85=")` is "132"."""
    return _answer_of(prompt_id(text))


def make_reward(seed: int = 0, rank: int = 0) -> Callable[..., list[float]]:
    """A reward function with TRL's signature: 1.0 for the right answer, else 0.0. It does not depend on the seed."""

    def reward(completions: Sequence[str], prompt_id: Sequence[int], **columns: Any) -> list[float]:
        return [float(text == _answer_of(int(i))) for text, i in zip(completions, prompt_id, strict=True)]

    return reward


def is_held_out(digits: str) -> bool:
    """Whether the digits are of the tenth that only `held_out` shows, the same in every version and for every seed."""
    return zlib.crc32(digits.encode()) % 10 == 0


def _draw(length: int, rng: np.random.Generator) -> str:
    return f"{int(rng.integers(10**length)):0{length}d}"


def _rows(per_cell: int, rng: np.random.Generator, held: bool) -> list[dict[str, Any]]:
    if not 1 <= per_cell <= _MOST:
        raise ValueError(f"per_cell={per_cell}: some lengths have too few prompts. Use 1 to {_MOST}.")
    rows: list[dict[str, Any]] = []
    for cell in CELLS:
        if cell.length <= 3:  # there may be fewer than asked for
            every = (f"{n:0{cell.length}d}" for n in range(10**cell.length))
            fits = [digits for digits in every if is_held_out(digits) == held]
            chosen = [fits[n] for n in rng.permutation(len(fits))[:per_cell]]
        else:
            drawn: dict[str, None] = {}
            while len(drawn) < per_cell:
                digits = _draw(cell.length, rng)
                if is_held_out(digits) == held:
                    drawn[digits] = None
            chosen = list(drawn)
        for digits in chosen:
            text = cell.prompt(digits)
            rows.append({"prompt": text, "prompt_id": prompt_id(text), "skill": cell.task.name, "length": cell.length})
    return rows


def pool(per_cell: int = 52, seed: int = 0) -> list[dict[str, Any]]:
    """Prompts to train on, `per_cell` different ones of each task and length: `prompt`, `prompt_id`, `skill`, `length`.

    Two digits make 91 prompts a task and no more.
    """
    return _rows(per_cell, np.random.default_rng([seed, 0]), held=False)


def held_out(per_cell: int = 14, seed: int = 0) -> list[dict[str, Any]]:
    """Prompts to measure on, columns as `pool`; their digits occur neither in a pool nor in the pretraining text.

    Two digits make 9 prompts a task and no more, three make 89.
    """
    return _rows(per_cell, np.random.default_rng([seed, 1]), held=True)


def lines_of_text(rows: int, rng: np.random.Generator) -> list[str]:
    """Pretraining text: `rows` prompts, each followed by the right answer (`shown` of the time) or by the mistake."""
    lines: list[str] = []
    while len(lines) < rows:
        for k in rng.choice(len(CELLS), size=rows - len(lines), p=_OFTEN_C):
            cell = CELLS[k]
            digits = _draw(cell.length, rng)
            if not is_held_out(digits):
                solve = cell.task.right if rng.random() < cell.shown else cell.task.mistake
                lines.append(cell.prompt(digits) + solve(digits))
    return lines
