"""The language of written chains: right steps, ids that read back, no leak, a model that half knows it."""

from typing import Any

import chain  # of benchmarks/learning
import numpy as np
import pytest
from chain import ALPHABET, ANSWER_LENGTH, SKILLS, STEPS, answer, held_out, pool, prompt_id, prompt_of
from operations import OPERATIONS

from budgetalloc.cli.testbed.skills import is_held_out


def clauses(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]


def test_each_step_applies_its_letter_to_the_digits_before() -> None:
    for row in pool(20):
        letters, digits = row["prompt"][:-5], row["prompt"][-5:-1]
        for letter, clause in zip(letters, clauses(answer(row["prompt"])), strict=True):
            right = next(skill.right for skill in SKILLS if skill.letter == letter)
            digits = OPERATIONS[right](digits)
            assert clause == letter + digits


def test_lengths_differ_by_a_factor_of_four() -> None:
    lengths = {len(answer(row["prompt"])) for row in pool(5)}
    assert lengths == {10, 15, 20, 25, 30, 35, 40}
    assert max(lengths) == ANSWER_LENGTH
    assert set("".join(row["prompt"] + answer(row["prompt"]) for row in pool(60))) == set(ALPHABET)


def test_ids_read_back() -> None:
    rows = [*pool(100, seed=3), *held_out(40)]
    assert len({row["prompt_id"] for row in rows}) == len(rows)
    for row in rows:
        assert prompt_of(row["prompt_id"]) == row["prompt"]
        assert prompt_id(row["prompt"]) == row["prompt_id"]
        assert row["skill"] == f"{len(row['prompt']) - 5} steps"
    assert max(row["prompt_id"] for row in rows) < 2**53  # also exact as a float


def test_pool_and_held_out_have_the_promised_sizes_and_share_no_digits() -> None:
    train, test = pool(seed=1), held_out()
    assert (len(train), len(test)) == (300 * len(STEPS), 40 * len(STEPS))
    assert not {row["prompt"][-5:-1] for row in train} & {row["prompt"][-5:-1] for row in test}
    assert pool(seed=1) == train != pool(seed=2)


def test_text_keeps_the_held_out_digits_back_and_each_step_is_right_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    calls = [chain.lines_of_text(64, rng) for _ in range(400)]
    assert all(len({len(line) for line in lines}) == 1 for lines in calls)
    assert {len(lines[0].partition("=")[0]) - 4 for lines in calls} == set(STEPS)
    seen: dict[str, list[bool]] = {skill.letter: [] for skill in SKILLS}
    for line in (line for lines in calls for line in lines):
        asked, _, written = line.partition("=")
        digits = asked[-4:]
        assert not is_held_out(digits)
        for letter, clause in zip(asked[:-4], clauses(written), strict=True):
            results = {name: run(digits) for name, run in OPERATIONS.items()}
            right = results[next(skill.right for skill in SKILLS if skill.letter == letter)]
            assert clause[0] == letter
            assert clause[1:] in results.values()
            if list(results.values()).count(right) == 1:  # otherwise it cannot be seen which was shown
                seen[letter].append(clause[1:] == right)
            digits = clause[1:]
    for skill in SKILLS:
        shares = seen[skill.letter]
        assert len(shares) > 1000
        assert np.mean(shares) == pytest.approx(skill.shown, abs=4.5 * np.sqrt(0.25 / len(shares)))


def test_errors_name_the_argument_and_the_way_out() -> None:
    for wrong in (-1, 0, 4071, prompt_id("ab4071=") // 25, 25**9 * 10_000, 26 * 25 * 10_000):
        with pytest.raises(ValueError, match=f"prompt_id={wrong}"):
            prompt_of(wrong)
    with pytest.raises(ValueError, match=r"per_length=0: use 1 to 5000"):
        pool(0)


def test_the_shipped_model_half_knows_the_chains_and_the_long_ones_least(load: Any) -> None:
    model, tokenizer = load(chain)
    from budgetalloc.cli.testbed.heldout import evaluate

    assert sum(p.numel() for p in model.parameters()) == 1_007_280
    rows = held_out()
    scores = evaluate(model, tokenizer, rows, language=chain)
    assert 0.27 < scores.expected < 0.31
    assert scores.skills == pytest.approx(scores.expected, abs=0.04)
    means = []
    for n in STEPS:
        means.append(np.mean([p for row, p in zip(rows, scores.right_P, strict=True) if row["skill"] == f"{n} steps"]))
    assert means[0] > 0.5
    assert means[-1] < 0.15
    assert all(a > b for a, b in zip(means[::2], means[2::2], strict=False))
