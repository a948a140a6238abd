"""Questions with one right answer each, generated on demand: arithmetic of our own, and tasks of reasoning-gym.

A question is named by a number, `prompt_id`: its kind and its place among the questions of that kind. The same number
is the same question in every process and in every run, and the right answer need not travel with it.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

PER_KIND = 10**6  # questions of a kind, some of them twice
HELD_OUT_SEED = 10**6  # no training run has it
_REPEATS = 200  # a kind that shows so many known questions in a row has no more


@dataclass(frozen=True)
class Task:
    """Some kinds of questions. `question(kind, at)` is the text; `score(said, kind, at)` is 1.0 if right, else 0.0."""

    kinds: tuple[str, ...]
    question: Callable[[str, int], str]
    score: Callable[[str, str, int], float]
    shots: tuple[tuple[str, str], ...] = ()
    """Questions and answers that stand before each question, so that the model answers in a few tokens."""
    after: str = ""
    """What stands after a question that has no shots before it."""

    def asked(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows with the prompt that the model gets; without shots, the question and `after`."""
        before = "".join(f"Question: {question}\nAnswer: {answer}\n\n" for question, answer in self.shots)
        form = f"{before}Question: {{}}\nAnswer:" if before else f"{{}}{self.after}"
        return [row | {"prompt": form.format(row["prompt"])} for row in rows]

    def reward(self, completions: Sequence[str], prompt_id: Sequence[int], **_: Any) -> list[float]:
        """The reward function, with TRL's signature; a list of 0.0 and 1.0, one for each completion."""
        return [
            self.score(text, self.kinds[number // PER_KIND], number % PER_KIND)
            for text, number in zip(completions, prompt_id, strict=True)
        ]

    def rows(self, count: int, seed: int, without: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
        """`count` different questions, of all kinds in turn: `prompt` (the question's text), `prompt_id`, `kind`.

        Args:
            count: How many. A kind that runs out of questions leaves its share to the others.
            seed: Which.
            without: Rows with other questions than these: the held-out ones.

        Raises:
            ValueError: the kinds do not have so many questions.
        """
        rng = random.Random(seed)
        known = {row["prompt"] for row in without}
        rows: list[dict[str, Any]] = []
        repeats = dict.fromkeys(self.kinds, 0)  # in a row; a kind that has no more is taken out
        while len(rows) < count:
            if not repeats:
                raise ValueError(f"rows({count=}): only {len(rows)} different questions. Ask for fewer.")
            for kind in list(repeats)[: count - len(rows)]:
                at = rng.randrange(PER_KIND)
                text = self.question(kind, at)
                if text not in known:
                    known.add(text)
                    number = self.kinds.index(kind) * PER_KIND + at
                    rows.append({"prompt": text, "prompt_id": number, "kind": kind})
                    repeats[kind] = 0
                else:
                    repeats[kind] += 1
                    if repeats[kind] > _REPEATS:
                        del repeats[kind]
        return rows

    def held_out(self, count: int) -> list[dict[str, Any]]:
        """Questions to measure on, the same for every run; columns as `rows`."""
        return self.rows(count, HELD_OUT_SEED)


# --- arithmetic ---------------------------------------------------------------------------------------------------


def _word(rng: random.Random) -> tuple[str, int]:
    have, more = rng.randint(2, 20), rng.randint(2, 20)
    gone = rng.randint(1, have)
    name, thing = rng.choice(["Ann", "Ben", "Eva", "Tom"]), rng.choice(["apples", "books", "coins", "pens"])
    return f"{name} has {have} {thing}, gives away {gone} and buys {more}. How many {thing} are there now?", (
        have - gone + more
    )


def _sum(rng: random.Random, *tops: int) -> tuple[str, int]:
    numbers = [rng.randint(1, top) for top in tops]
    return f"What is {' + '.join(map(str, numbers))}?", sum(numbers)


def _difference(rng: random.Random, top: int) -> tuple[str, int]:
    low, high = sorted((rng.randint(1, top), rng.randint(1, top)))
    return f"What is {high} - {low}?", high - low


def _product(rng: random.Random, *tops: int) -> tuple[str, int]:
    a, b = (rng.randint(2, top) for top in tops)
    return f"What is {a} * {b}?", a * b


def _remainder(rng: random.Random) -> tuple[str, int]:
    a, b = rng.randint(10, 999), rng.randint(2, 9)
    return f"What is the remainder of {a} divided by {b}?", a % b


def _largest(rng: random.Random) -> tuple[str, int]:
    numbers = rng.sample(range(10, 1000), 5)
    return f"What is the largest of {', '.join(map(str, numbers))}?", max(numbers)


def _next(rng: random.Random) -> tuple[str, int]:
    start, step = rng.randint(1, 99), rng.randint(2, 25)
    shown = ", ".join(str(start + step * n) for n in range(4))
    return f"What number comes next: {shown}?", start + 4 * step


def _order(rng: random.Random) -> tuple[str, int]:
    a, b, c = rng.randint(2, 50), rng.randint(2, 9), rng.randint(2, 9)
    return f"What is {a} + {b} * {c}?", a + b * c


_ARITHMETIC: dict[str, Callable[[random.Random], tuple[str, int]]] = {
    "sum of two, up to 20": lambda rng: _sum(rng, 20, 20),
    "sum of two, up to 99": lambda rng: _sum(rng, 99, 99),
    "sum of two, up to 999": lambda rng: _sum(rng, 999, 999),
    "sum of three, up to 99": lambda rng: _sum(rng, 99, 99, 99),
    "difference, up to 99": lambda rng: _difference(rng, 99),
    "difference, up to 999": lambda rng: _difference(rng, 999),
    "product, up to 12 * 12": lambda rng: _product(rng, 12, 12),
    "product, up to 99 * 9": lambda rng: _product(rng, 99, 9),
    "product, up to 99 * 99": lambda rng: _product(rng, 99, 99),
    "sum with a product": _order,
    "remainder": _remainder,
    "largest of five": _largest,
    "next number": _next,
    "word problem": _word,
}


@cache
def _asked(kind: str, at: int) -> tuple[str, int]:
    return _ARITHMETIC[kind](random.Random(f"{kind} {at}"))


def right_answer(number: int) -> int:
    """The right answer to the arithmetic question with this `prompt_id`."""
    return _asked(tuple(_ARITHMETIC)[number // PER_KIND], number % PER_KIND)[1]


def first_line(text: str) -> str:
    """What a completion answers: the model may go on with a question of its own."""
    return text.strip().split("\n")[0]


def last_number(text: str) -> int | None:
    """The last integer of a text, thousands with or without commas; None if the last number is none.

    >>> last_number("12 + 30 = 42."), last_number("so 1,042"), last_number("4.5"), last_number("none")
    (42, 1042, None, None)
    """
    numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text.replace("\u2212", "-"))
    last = numbers[-1].replace(",", "") if numbers else ""
    return int(last) if last and "." not in last else None


arithmetic = Task(
    kinds=tuple(_ARITHMETIC),
    question=lambda kind, at: _asked(kind, at)[0],
    score=lambda said, kind, at: float(last_number(first_line(said)) == _asked(kind, at)[1]),
    shots=(("What is 3 + 5?", "8"), ("What is 40 - 12?", "28"), ("What is 6 * 7?", "42")),
)


# --- reasoning-gym ------------------------------------------------------------------------------------------------

_REASONING: dict[str, dict[str, Any]] = {
    "chain_sum": {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 2},
    "products": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
    "gcd": {"min_value": 2, "max_value": 99},
    "lcm": {"min_value": 2, "max_value": 50},
    "count_bits": {"max_n": 1023},
    "basic_arithmetic": {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 2},
    "leg_counting": {"min_animals": 1, "max_animals": 2, "min_instances": 1, "max_instances": 4},
    "letter_counting": {"min_words": 1, "max_words": 3},
    "family_relationships": {"min_family_size": 4, "max_family_size": 4},
    "syllogism": {},
}


@cache
def _entries(kind: str) -> Any:
    import reasoning_gym  # seconds

    return reasoning_gym.create_dataset(kind, seed=0, size=PER_KIND, **_REASONING[kind])


def concluded(line: str) -> str:
    """What a line concludes: its end after `is`, `are`, `=` or `:`, without marks around it.

    >>> concluded("The answer is **12**."), concluded("3 + 4 = 7"), concluded(" Yes ")
    ('12', '7', 'Yes')
    """
    return re.split(r"=|:|\bis\b|\bare\b", line)[-1].strip(" .*$`\"'")


def _verified(said: str, kind: str, at: int) -> float:
    entries = _entries(kind)
    return float(entries.score_answer(concluded(first_line(said)), entries[at]) >= 1.0)  # no credit for a part


reasoning = Task(
    kinds=tuple(_REASONING),
    question=lambda kind, at: str(_entries(kind)[at]["question"]).strip(),
    score=_verified,
    shots=(
        ("State the final answer to the following arithmetic problem: 3 + 15 =", "18"),
        ("How many legs are there in total if you have 2 dogs?", "8"),
        ("Does it logically follow that all cats are animals? (Answer Yes or No)", "Yes"),
    ),
)

SHORTEST = 11  # the kinds with at most 15 tokens; prompts of a batch are padded to the longest
# For a model that `start.py` taught to answer with a number only:
short = replace(arithmetic, kinds=arithmetic.kinds[:SHORTEST], shots=(), after="\n")

TASKS = {"arithmetic": arithmetic, "reasoning": reasoning, "short": short}
