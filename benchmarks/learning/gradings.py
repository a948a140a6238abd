"""Rewards that are not the exact verdict: partial credit, an edit distance, a judge's noisy score, accuracy with
format, a verifier that errs, wrong labels.

Success is still the probability of the right answer. The languages must have no traps.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from language import Grading, Language, Reward

ERRS = 0.05


def share_right(text: str, right: str) -> float:
    """Share of the characters that are right in their place; missing and superfluous ones are wrong.

    >>> share_right("4071", "4017"), share_right("40", "4071"), share_right("40711", "4071")
    (0.5, 0.5, 0.8)
    """
    return sum(a == b for a, b in zip(text, right, strict=False)) / max(len(text), len(right))


def partial(language: Language) -> Grading:
    """The share of right characters."""

    def partial_reward(completions: Sequence[str], prompts: Sequence[str], **columns: Any) -> list[float]:
        return [share_right(text, language.answer(asked)) for text, asked in zip(completions, prompts, strict=True)]

    return Grading(lambda seed: [partial_reward])


def edits(text: str, right: str) -> int:
    """The Levenshtein distance: the fewest insertions, deletions and replacements that turn one text into the other.

    >>> edits("4071", "4071"), edits("407", "4071"), edits("0714", "4071"), edits("", "4071")
    (0, 1, 2, 4)
    """
    row = list(range(len(right) + 1))
    for at, char in enumerate(text, start=1):
        above, row = row, [at]
        for k, wanted in enumerate(right, start=1):
            row.append(min(above[k] + 1, row[-1] + 1, above[k - 1] + (char != wanted)))
    return row[-1]


def edit_distance(language: Language) -> Grading:
    """Minus the edit distance to the right answer."""

    def edit_distance_reward(completions: Sequence[str], prompts: Sequence[str], **columns: Any) -> list[float]:
        return [-float(edits(text, language.answer(asked))) for text, asked in zip(completions, prompts, strict=True)]

    return Grading(lambda seed: [edit_distance_reward])


def noisy_score(language: Language, noise: float = 2.0) -> Grading:
    """A judge's whole score from 1 to 10: 2 plus 7 times the share of right characters, with normal noise.

    The noise depends on the seed, the trainer's step and the number of calls within the step.
    """

    def functions(seed: int) -> list[Reward]:
        calls = Counter[int]()

        def judge_reward(completions: Sequence[str], prompts: Sequence[str], **columns: Any) -> list[float]:
            step = int(columns["trainer_state"].global_step)
            calls[step] += 1
            noise_R = np.random.default_rng([seed, step, calls[step]]).normal(0, noise, len(completions))
            share_R = [share_right(text, language.answer(x)) for text, x in zip(completions, prompts, strict=True)]
            return [float(x) for x in np.clip(np.round(2 + 7 * np.array(share_R) + noise_R), 1, 10)]

        return [judge_reward]

    return Grading(functions)


def composite(language: Language, accuracy: float = 0.8) -> Grading:
    """Two functions: the right answer, and its format: as many digits as the right answer has, then the end of text."""

    def format_reward(completions: Sequence[str], prompts: Sequence[str], **columns: Any) -> list[float]:
        lengths = [len(language.answer(asked)) for asked in prompts]
        return [float(x.isdecimal() and len(x) == n) for x, n in zip(completions, lengths, strict=True)]

    return Grading(lambda seed: [language.make_reward(seed), format_reward], (accuracy, round(1 - accuracy, 6)))


def scheduled(language: Language) -> Grading:
    """A verifier that becomes stricter, and a bonus for the format that fades, as schedules of users do.

    Half of the characters have to be right until step 50, three quarters until step 100, and then all. The bonus is 0.5
    at first, falls by 1 % of it a step, and ends at step 100.
    """

    def strict_reward(completions: Sequence[str], prompts: Sequence[str], **columns: Any) -> list[float]:
        needed = (0.5, 0.75, 1.0)[min(int(columns["trainer_state"].global_step) // 50, 2)]
        shares = [share_right(text, language.answer(x)) for text, x in zip(completions, prompts, strict=True)]
        return [float(share >= needed) for share in shares]

    def bonus_reward(completions: Sequence[str], prompts: Sequence[str], **columns: Any) -> list[float]:
        left = max(0.0, 1 - int(columns["trainer_state"].global_step) / 100)
        return [
            left * (x.isdecimal() and len(x) == len(language.answer(y)))
            for x, y in zip(completions, prompts, strict=True)
        ]

    return Grading(lambda seed: [strict_reward, bonus_reward], (1.0, 0.5))


def erring(language: Language, errs: float = ERRS) -> Grading:
    """The exact verdict, turned into its opposite with probability `errs`, for right and wrong answers alike.

    As the coins of `skills`, the errors depend on the seed, the trainer's step and the number of calls within the step.
    """

    def functions(seed: int) -> list[Reward]:
        verdict, calls = language.make_reward(seed), Counter[int]()

        def erring_reward(completions: Sequence[str], **columns: Any) -> list[float]:
            step = int(columns["trainer_state"].global_step)
            calls[step] += 1
            errs_R = np.random.default_rng([seed, step, calls[step]]).random(len(completions)) < errs
            return np.abs(np.array(verdict(completions=completions, **columns)) - errs_R).tolist()

        return [erring_reward]

    expected: Callable[[float], float] = lambda right: errs + (1 - 2 * errs) * right  # noqa: E731
    return Grading(functions, expected=expected)


def mislabelled(language: Language, share: float = 0.85) -> Grading:
    """The exact verdict, except that a `share` of the prompts have a label that no answer matches, and always fail."""

    def functions(seed: int) -> list[Reward]:
        verdict = language.make_reward(seed)

        def label_reward(completions: Sequence[str], prompt_id: Sequence[int], **columns: Any) -> list[float]:
            paid = verdict(completions=completions, prompt_id=prompt_id, **columns)
            return [0.0 if is_mislabelled(x, share) else reward for x, reward in zip(prompt_id, paid, strict=True)]

        return [label_reward]

    return Grading(functions)


def is_mislabelled(prompt_id: int, share: float) -> bool:
    """Whether a prompt has a wrong label, decided by a hash of its id."""
    return zlib.crc32(b"%d" % prompt_id) < share * 2**32
