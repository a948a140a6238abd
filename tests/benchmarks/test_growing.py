"""The growing language: right answers, a split that does not leak, ids that read back, a model that half knows it."""

from typing import Any

import growing  # of benchmarks/learning
import numpy as np
import pytest
from growing import (
    CELLS,
    TASKS,
    answer,
    cell_of,
    held_out,
    is_held_out,
    is_trap,
    pool,
    prompt_id,
)


def digits_of(text: str) -> str:
    return "".join(c for c in text if c.isdecimal())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4+7=", "11"),
        ("47+85=", "132"),
        ("00+03=", "3"),
        ("999+999=", "1998"),
        ("47-85=", "62"),
        ("085-047=", "038"),
        ("d4706=", "9412"),
        ("d03=", "6"),
        ("t4708=", "19"),
        ("c04708=", "04708"),
        ("r4708=", "8074"),
        ("s4708=", "0478"),
        ("m4708=", "8"),
        ("k4508=", "2"),
        ("p470812=", "0"),
        ("p470813=", "1"),
        ("h470812=", "0"),  # 4 + 14 + 0 + 16 + 1 + 4 = 39
        ("h470813=", "2"),
    ],
)
def test_answers(text: str, expected: str) -> None:
    assert answer(text) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add", "22"),  # 47 + 85 with the carry forgotten
        ("subtract", "38"),
        ("double", "8460"),
        ("total", "20"),
        ("copy", "5874"),
        ("reverse", "4785"),
        ("sort", "8754"),
        ("biggest", "4"),
        ("count", "1"),
    ],
)
def test_mistakes_are_wrong(name: str, expected: str) -> None:
    task = next(task for task in TASKS if task.name == name)
    assert task.mistake("4785") == expected
    assert task.right("4785") != expected


def test_an_answer_is_digits_and_no_longer_than_it_says() -> None:
    answers = [answer(row["prompt"]) for row in [*pool(200), *held_out(200)]]
    assert all(text.isdecimal() for text in answers)
    assert max(map(len, answers)) == growing.ANSWER_LENGTH
    assert set("".join(row["prompt"] for row in pool()) + "".join(answers)) == set(growing.ALPHABET)


def test_guessable_tasks_have_few_answers_about_equally_often() -> None:
    for name, guesses in (("parity", 2), ("check", 3)):
        answers = [answer(row["prompt"]) for row in pool(800) if row["skill"] == name]
        shares = [answers.count(str(k)) / len(answers) for k in range(guesses)]
        assert sum(shares) == 1
        assert shares == pytest.approx([1 / guesses] * guesses, abs=0.05)


def test_ids_read_back() -> None:
    rows = [*pool(60, seed=3), *held_out(60)]
    assert len({row["prompt_id"] for row in rows}) == len(rows)
    for row in rows:
        cell = cell_of(row["prompt_id"])
        assert (cell.task.name, cell.length) == (row["skill"], row["length"])
        assert cell.prompt(digits_of(row["prompt"])) == row["prompt"]
        assert prompt_id(row["prompt"]) == row["prompt_id"]
        assert is_trap(row["prompt_id"]) == (row["skill"] in ("parity", "check"))


def test_pool_and_held_out_have_the_promised_sizes_and_share_no_digits() -> None:
    train, test = pool(seed=1), held_out()
    assert len(train) == 52 * len(CELLS)
    assert 9 * len(CELLS) <= len(test) <= 14 * len(CELLS)
    assert {row["skill"] for row in test} == {row["skill"] for row in train} == {task.name for task in TASKS}
    assert not {digits_of(row["prompt"]) for row in train} & {digits_of(row["prompt"]) for row in test}
    assert all(is_held_out(digits_of(row["prompt"])) for row in test)
    assert pool(seed=1) == train != pool(seed=2)


def test_text_keeps_the_held_out_digits_back_and_shows_what_it_says() -> None:
    lines = growing.lines_of_text(40_000, np.random.default_rng(0))
    assert len(lines) == 40_000
    counts: dict[Any, list[bool]] = {}
    for line in lines:
        text, given = line[: line.index("=") + 1], line[line.index("=") + 1 :]
        assert not is_held_out(digits_of(text))
        cell = cell_of(prompt_id(text))
        wrong = cell.task.mistake(digits_of(text))
        assert given in (answer(text), wrong)
        counts.setdefault((cell.task.name, cell.length), [])
        if wrong != answer(text):  # otherwise it cannot be seen which was shown
            counts[cell.task.name, cell.length].append(given != wrong)
    for cell in CELLS:
        seen = counts[cell.task.name, cell.length]
        assert np.mean(seen) == pytest.approx(cell.shown, abs=4.5 * np.sqrt(0.25 / len(seen)))


def test_errors_name_the_argument_and_the_way_out() -> None:
    for wrong in (-1, len(CELLS) * 10**8, 10**8 - 1):
        with pytest.raises(ValueError, match=f"prompt_id={wrong}"):
            cell_of(wrong)
    with pytest.raises(ValueError, match=r"per_cell=0: .* Use 1 to 900"):
        pool(0)


def test_padded_probability_is_that_of_each_prompt_alone(load: Any) -> None:
    model, tokenizer = load(growing)
    from budgetalloc.cli.testbed.heldout import probability

    prompts = [row["prompt"] for row in held_out(1)]
    answers = [answer(text) for text in prompts]
    assert len(set(map(len, prompts))) > 3
    assert len(set(map(len, answers))) > 3
    together = probability(model, tokenizer, prompts, answers)
    alone = [probability(model, tokenizer, [p], [a])[0] for p, a in zip(prompts, answers, strict=True)]
    assert together == pytest.approx(alone, rel=1e-4, abs=1e-7)


def test_padded_samples_agree_with_the_probability_of_the_answer(load: Any) -> None:
    model, tokenizer = load(growing)
    from budgetalloc.cli.testbed.heldout import probability, sample

    prompts = [row["prompt"] for row in held_out(1)][::4]
    expected = [probability(model, tokenizer, [text], [answer(text)])[0] for text in prompts]  # without padding
    drawn = sample(model, tokenizer, prompts * 400, seed=3, language=growing)
    for k, (text, p) in enumerate(zip(prompts, expected, strict=True)):
        share = sum(completion == answer(text) for completion in drawn[k :: len(prompts)]) / 400
        assert share == pytest.approx(p, abs=4.5 * (max(p * (1 - p), 1e-3) / 400) ** 0.5)


def test_the_shipped_model_half_knows_the_tasks_and_guesses_the_traps(load: Any) -> None:
    model, tokenizer = load(growing)
    from budgetalloc.cli.testbed.heldout import evaluate, probability

    rows = held_out()
    evaluation = evaluate(model, tokenizer, rows, language=growing)
    assert 0.43 < evaluation.expected < 0.46
    assert evaluation.skills == pytest.approx(evaluation.expected, abs=0.04)
    right = probability(model, tokenizer, [row["prompt"] for row in rows], [answer(row["prompt"]) for row in rows])
    by_cell: dict[Any, list[float]] = {}
    for row, p in zip(rows, right, strict=True):
        by_cell.setdefault((row["skill"], row["length"]), []).append(p)
    means = {cell: np.mean(values) for cell, values in by_cell.items()}
    for (name, _), mean in means.items():
        if name in ("parity", "check"):
            assert mean == pytest.approx(1 / 2 if name == "parity" else 1 / 3, abs=0.05)
    taught = [mean for (name, _), mean in means.items() if name not in ("parity", "check")]
    assert min(taught) < 0.05
    assert max(taught) > 0.9
    assert sum(0.1 < mean < 0.7 for mean in taught) > len(taught) / 3


@pytest.mark.slow
def test_plain_grpo_learns_the_tasks_and_not_the_traps() -> None:
    pytest.importorskip("trl")
    from budgetalloc.cli.testbed.train import train

    run = train(seed=0, learning_rate=1e-4, steps=40, eval_every=40, threads=1, progress=False, language=growing)
    assert run.curve[-1].expected > run.curve[0].expected + 0.1
    assert run.curve[-1].trap_success == pytest.approx(run.curve[0].trap_success, abs=0.06)
