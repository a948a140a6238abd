"""Tasks of reasoning-gym: its own answers and verifiers, ids that read back, a split that does not leak."""

import subprocess
import sys
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reasoning  # of benchmarks/learning
from reasoning import CELLS, TASKS, answer, held_out, is_held_out, make_reward, pool, verified

FOLDER = Path(reasoning.__file__).parent


def test_the_language_loads_without_reasoning_gym_and_says_what_is_missing() -> None:
    code = """
import sys
sys.modules["reasoning_gym"] = None
import mixes, reasoning
print("torch" in sys.modules)
try:
    reasoning.pool(1)
except ImportError as error:
    print("pip install reasoning-gym" in str(error))
print("reasoning  cannot be run here" in mixes.describe())
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=FOLDER)
    assert out.stdout.split() == ["False", "True", "True"]


@pytest.fixture(autouse=True)
def its_generators(request: Any) -> None:
    if "without" not in request.node.name:
        pytest.importorskip("reasoning_gym")


def of(skill: str) -> list[tuple[str, str]]:
    return [(row["prompt"][1:-1], answer(row["prompt"])) for row in pool(40) if row["skill"] == skill]


def test_prompts_hold_all_that_the_answers_depend_on() -> None:
    assert all(str(eval(asked)) == right for asked, right in of("chain_sum") + of("products"))  # noqa: S307
    assert all(str(gcd(*map(int, asked.split(",")))) == right for asked, right in of("gcd"))
    assert all(str(int(asked).bit_count()) == right for asked, right in of("count_bits"))
    assert all(asked[::-1] == right for asked, right in of("spell_backward"))
    for asked, right in of("base_conversion"):
        source, digits, target = asked.split(":")
        assert int(digits or "0", int(source)) == int(right, int(target))  # it writes 0 as nothing in bases 3 and 4


def test_prompts_and_answers_keep_to_the_alphabet_and_their_lengths() -> None:
    rows = [*pool(), *held_out()]
    texts = [(row["prompt"], answer(row["prompt"])) for row in rows]
    assert set("".join(a + b for a, b in texts)) == set(reasoning.ALPHABET)
    assert max(len(a) for a, _ in texts) <= reasoning.PROMPT_LENGTH
    assert max(len(b) for _, b in texts) == reasoning.ANSWER_LENGTH
    assert {row["skill"] for row in rows} == {task.name for task in TASKS}


def test_rows_are_reproducible_and_share_no_prompt_with_what_is_held_out() -> None:
    train, test = pool(seed=1), held_out()
    assert pool(seed=1) == train != pool(seed=2)
    assert 1700 < len(train) < 110 * len(CELLS)  # some levels have fewer
    assert 250 < len(test) < 20 * len(CELLS)
    for rows in (train, test):
        assert len({row["prompt"] for row in rows}) == len({row["prompt_id"] for row in rows}) == len(rows)
    assert all(is_held_out(row["prompt"]) for row in test)
    assert not any(is_held_out(row["prompt"]) for row in train)


def test_text_keeps_the_held_out_prompts_back_and_shows_the_right_answer_as_often_as_it_says() -> None:
    lines = reasoning.lines_of_text(8000, np.random.default_rng(0))
    assert len(lines) == 8000
    shares: dict[str, list[bool]] = {}
    for line in lines:
        asked, _, given = line.partition("=")
        assert not is_held_out(asked + "=")
        shares.setdefault(asked[0], []).append(given == answer(asked + "="))
    for task in TASKS:
        seen = shares[task.sign]
        least = np.mean([cell.shown for cell in CELLS if cell.task == task])
        assert np.mean(seen) > least - 4.5 * np.sqrt(0.25 / len(seen))
    words = shares["s"]  # a word drawn twice is rare, so another's answer is wrong
    assert np.mean(words) == pytest.approx(0.65, abs=4.5 * np.sqrt(0.25 / len(words)))


def test_success_is_the_exact_answer_and_training_pays_what_the_verifier_gives() -> None:
    rows = pool(3)
    ids, right = [row["prompt_id"] for row in rows], [answer(row["prompt"]) for row in rows]
    assert make_reward()(completions=right, prompt_id=ids) == verified(right, ids) == [1.0] * len(ids)
    longer = ["x" + text for text in right]
    assert make_reward()(completions=longer, prompt_id=ids) == [0.0] * len(ids)
    paid = {row["skill"]: value for row, value in zip(rows, verified(longer, ids), strict=True)}
    assert 0 < paid["chain_sum"] < 1  # reasoning-gym's: the share that the right answer has of the text
    assert all(0 <= value < 1 for value in verified([""] * len(ids), ids))


def test_errors_name_the_argument_and_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"text='c0\+99999='.*Call pool\(\) or held_out\(\) first"):
        answer("c0+99999=")
    with pytest.raises(ValueError, match="per_cell=0"):
        pool(0)


def test_the_shipped_model_half_knows_some_of_the_tasks(load: Any) -> None:
    model, tokenizer = load(reasoning)
    from budgetalloc.cli.testbed.heldout import evaluate
    from budgetalloc.cli.testbed.metrics import pass_at

    rows = held_out()
    found = evaluate(model, tokenizer, rows, language=reasoning)
    assert 0.34 < found.expected < 0.38
    assert found.skills == pytest.approx(found.expected, abs=0.05)
    means = {}
    for cell in CELLS:
        of_cell = [(row["skill"], row["level"]) == (cell.task.name, cell.level) for row in rows]
        means[cell.number] = np.mean([p for p, mine in zip(found.right_P, of_cell, strict=True) if mine])
    assert sum(0.1 < mean < 0.7 for mean in means.values()) > len(CELLS) / 3
    assert pass_at(found.right_P, 64) > 0.7  # there is something to find
