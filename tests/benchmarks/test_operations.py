"""The language with eleven ways to be wrong: right answers, a split that does not leak, a model that knows what it was
shown."""

from collections import Counter
from typing import Any

import numpy as np
import operations  # of benchmarks/learning
import pytest
from operations import OPERATIONS, SKILLS, answer, clear_digits, held_out, is_held_out, lines_of_text, pool


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("a4071=", "4071"), ("b4071=", "3960"), ("c4071=", "9526"), ("d4071=", "7410"), ("e4071=", "5928")),
        *(("f4071=", "1704"), ("g4071=", "0714"), ("h4071=", "0417"), ("i4071=", "5182"), ("j4071=", "8042")),
        *(("k4071=", "0147"), ("l4071=", "1407"), ("m4071=", "4071"), ("x4071=", "1407")),
    ],
)
def test_answers(text: str, expected: str) -> None:
    assert answer(text) == expected


def test_every_operation_is_right_for_one_known_and_one_unknown_skill() -> None:
    assert Counter(skill.right for skill in SKILLS if skill.shown > 0.25) == dict.fromkeys(OPERATIONS, 1)
    assert Counter(skill.right for skill in SKILLS if skill.shown <= 0.25) == dict.fromkeys(OPERATIONS, 1)


def test_on_clear_digits_all_operations_differ_and_the_splits_are_disjoint() -> None:
    for held in (True, False):
        for digits in clear_digits(held)[::50]:
            assert len({run(digits) for run in OPERATIONS.values()}) == 12
            assert is_held_out(digits) == held
    train, measured = (
        Counter(row["prompt"] for row in rows(per_skill)) for rows, per_skill in ((pool, 200), (held_out, 20))
    )
    assert not train & measured
    assert max((train + measured).values()) == 1
    assert train.total() == 24 * 200


def test_the_text_shows_the_right_operation_with_the_probability_shown_and_the_others_alike() -> None:
    lines = [line.partition("=") for line in lines_of_text(24_000, np.random.default_rng(0))]
    for skill in SKILLS[::5]:
        own = [(head[1:], after) for head, _, after in lines if head[0] == skill.letter]
        by_operation = Counter(
            name for digits, after in own for name, run in OPERATIONS.items() if run(digits) == after
        )
        assert by_operation.total() == len(own)
        for name in OPERATIONS:
            p = skill.shown if name == skill.right else (1 - skill.shown) / 11
            assert by_operation[name] / len(own) == pytest.approx(p, abs=4.5 * (p * (1 - p) / len(own)) ** 0.5)


def test_the_shipped_model_knows_what_it_was_shown(load: Any) -> None:
    model, tokenizer = load(operations)
    from budgetalloc.cli.testbed.heldout import probability

    rows = held_out(10)
    p = np.array(
        probability(model, tokenizer, [row["prompt"] for row in rows], [answer(row["prompt"]) for row in rows])
    )
    assert p.reshape(24, 10).mean(axis=1) == pytest.approx([skill.shown for skill in SKILLS], abs=0.15)
