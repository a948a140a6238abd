"""Tasks of reasoning-gym (PyPI, Apache-2.0) that a tiny model can be taught to half know, with their own verifiers.

    chain_sum c4+8-3=     products p47*12=    gcd g12,30=      lcm l4,6=     count_bits b45=    count_primes n3,20=
    base_conversion v2:1011:4=    spell_backward sbook=    number_sequence q1,3,5,7=    binary_alternation a01100101=

Prompts are reasoning-gym's questions without the sentences that all questions of a task share: a letter names the task.
Answers are reasoning-gym's, and training pays the scores of its verifiers, which give partial credit, for instance for
an answer that contains the right one. Success is the probability of exactly the answer that reasoning-gym gives.

Each task has levels. The pretraining text shows the right answer with probability `shown`, less at the harder levels,
and else the answer to another question of the same task and level. Beside that, a model of 340 k parameters knows only
a part of what it is shown.

`pip install reasoning-gym`; it takes seconds to import, so that only the first call that needs it imports it.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

WEIGHTS = Path(__file__).parent / "weights_reasoning"  # of the model that was pretrained on this language
ALPHABET = "0123456789+-*,:=abcdefghijklmnopqrstuvwxyz"  # one token a character
PROMPT_LENGTH, ANSWER_LENGTH = 14, 5  # at most, in characters; longer questions and answers are left out
_ITEMS = 10**6  # questions of a level, many of them twice
_SHOWN = (0.9, 0.65, 0.4)


@dataclass(frozen=True)
class Task:
    """One task: its letter, its levels, and how a question is shortened."""

    name: str
    sign: str
    levels: tuple[dict[str, Any], ...]
    """Arguments of `reasoning_gym.create_dataset`, the easiest first."""
    short: Callable[[dict[str, Any]], str]
    """From the metadata of a question to the prompt, without the letter and `=`."""


def _values(*tops: int) -> tuple[dict[str, Any], ...]:
    return tuple({"min_value": 2, "max_value": top} for top in tops)


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _sums(terms: int, digits: int) -> dict[str, Any]:
    return {"min_terms": terms, "max_terms": terms, "min_digits": digits, "max_digits": digits}


TASKS = (
    Task("chain_sum", "c", (_sums(2, 1), _sums(3, 1), _sums(2, 2)), lambda said: said["expression"].replace(" ", "")),
    Task("products", "p", (_sums(2, 1), _sums(2, 2)), lambda said: said["expression"].replace(" ", "")),
    Task("gcd", "g", _values(20, 60), lambda said: _listed(said["numbers"])),
    Task("lcm", "l", _values(12), lambda said: _listed(said["numbers"])),
    Task("count_bits", "b", ({"max_n": 63}, {"max_n": 255}), lambda said: str(said["number"])),
    Task("count_primes", "n", ({"max_n": 30},), lambda said: f"{said['start']},{said['end']}"),
    Task(
        "base_conversion",
        "v",
        ({"min_base": 2, "max_base": 4, "max_value": 31},),
        lambda said: f"{said['source_base']}:{said['source_repr']}:{said['target_base']}",
    ),
    Task(
        "spell_backward",
        "s",
        tuple({"min_word_len": n, "max_word_len": n} for n in (3, 4, 5)),
        lambda said: str(said["word"]),
    ),
    Task(
        "number_sequence",
        "q",
        ({"min_terms": 4, "max_terms": 4, "min_value": -9, "max_value": 99, "max_complexity": 1},),
        lambda said: _listed(said["sequence"][:-1]),
    ),
    Task("binary_alternation", "a", ({"min_n": 8, "max_n": 8},), lambda said: str(said["string"])),
)


@dataclass(frozen=True)
class Cell:
    """A task at one level."""

    number: int
    task: Task
    level: int

    @property
    def shown(self) -> float:
        """Probability that the text answers rightly."""
        return _SHOWN[self.level]


CELLS = tuple(
    Cell(number, *which)
    for number, which in enumerate((task, level) for task in TASKS for level in range(len(task.levels)))
)
_KNOWN: dict[str, int] = {}  # the id of each prompt that was made in this process


@cache
def _questions(cell: int) -> Any:
    """reasoning-gym's questions of one cell."""
    try:
        import reasoning_gym
    except ImportError as error:
        raise ImportError(
            f"{error}: the tasks of this language are reasoning-gym's. `pip install reasoning-gym`."
        ) from error
    task, level = CELLS[cell].task, CELLS[cell].level
    return reasoning_gym.create_dataset(task.name, seed=cell * _ITEMS, size=_ITEMS, **task.levels[level])


@lru_cache(maxsize=2**18)
def _item(prompt_id: int) -> tuple[str, str]:
    """Prompt and right answer."""
    cell, at = divmod(prompt_id, _ITEMS)
    entry = _questions(cell)[at]
    text = f"{CELLS[cell].task.sign}{CELLS[cell].task.short(entry['metadata'])}="
    _KNOWN.setdefault(text, prompt_id)
    return text, str(entry["answer"])


def _fits(text: str, right: str) -> bool:
    return (
        len(text) <= PROMPT_LENGTH
        and 1 <= len(right) <= ANSWER_LENGTH
        and text.count("=") == 1
        and set(text + right) <= set(ALPHABET)
    )


def is_held_out(text: str) -> bool:
    """Whether the prompt is of the tenth that only `held_out` shows, the same in every version and for every seed."""
    return zlib.crc32(text.encode()) % 10 == 0


def is_trap(prompt_id: int) -> bool:
    """Whether no answer improves the reward: never in this language."""
    return False


def answer(text: str) -> str:
    """The answer that reasoning-gym gives, to a prompt that `pool` or `held_out` made in this process."""
    if text not in _KNOWN:
        raise ValueError(f"answer(text={text!r}): not a prompt that was made here. Call pool() or held_out() first.")
    return _item(_KNOWN[text])[1]


def make_reward(seed: int = 0, rank: int = 0) -> Callable[..., list[float]]:
    """The verdict by which success is measured: 1.0 for the answer that reasoning-gym gives, else 0.0."""

    def reward(completions: Sequence[str], prompt_id: Sequence[int], **columns: Any) -> list[float]:
        return [float(text == _item(int(i))[1]) for text, i in zip(completions, prompt_id, strict=True)]

    return reward


def verified(completions: Sequence[str], prompt_id: Sequence[int], **columns: Any) -> list[float]:
    """What training pays: the score of the task's own verifier, in [0, 1]."""
    return [_score(text, int(i)) for text, i in zip(completions, prompt_id, strict=True)]


@lru_cache(maxsize=65536)
def _score(text: str, prompt_id: int) -> float:
    questions = _questions(prompt_id // _ITEMS)
    return float(questions.score_answer(text, questions[prompt_id % _ITEMS]))


def _rows(per_cell: int, rng: np.random.Generator, held: bool) -> list[dict[str, Any]]:
    if per_cell < 1:
        raise ValueError(f"per_cell={per_cell}: no prompts. Use 1 or more.")
    rows: dict[str, dict[str, Any]] = {}  # by prompt: levels overlap
    for cell in CELLS:
        before = len(rows)
        for at in rng.integers(_ITEMS, size=40 * per_cell).tolist():  # some levels have fewer prompts
            if len(rows) == before + per_cell:
                break
            prompt_id = cell.number * _ITEMS + at
            text, right = _item(prompt_id)
            if text not in rows and _fits(text, right) and is_held_out(text) == held:
                rows[text] = {"prompt": text, "prompt_id": prompt_id, "skill": cell.task.name, "level": cell.level}
    return list(rows.values())


def pool(per_cell: int = 110, seed: int = 0) -> list[dict[str, Any]]:
    """Prompts to train on, up to `per_cell` different ones of each task and level: `prompt`, `prompt_id`, `skill`,
    `level`."""
    return _rows(per_cell, np.random.default_rng([seed, 0]), held=False)


def held_out(per_cell: int = 20, seed: int = 0) -> list[dict[str, Any]]:
    """Prompts to measure on, columns as `pool`; they are in no pool and no pretraining text."""
    return _rows(per_cell, np.random.default_rng([seed, 1]), held=True)


def lines_of_text(rows: int, rng: np.random.Generator) -> list[str]:
    """Pretraining text: `rows` prompts, each followed by the right answer (`shown` of the time) or by another's."""
    lines: list[str] = []
    while len(lines) < rows:
        cell = CELLS[int(rng.integers(len(CELLS)))]
        (text, right), (_, other) = (_item(cell.number * _ITEMS + int(at)) for at in rng.integers(_ITEMS, size=2))
        if _fits(text, right) and _fits(text, other) and not is_held_out(text):
            lines.append(text + (right if rng.random() < cell.shown else other))
    return lines
