"""What the languages of the learning benchmark have in common: light imports, exact rewards, reproducible training."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import chain  # of benchmarks/learning
import growing
import operations
import pytest
import reasoning
from mixes import MIXES


@pytest.mark.parametrize("name", ["growing", "chain", "operations"])
def test_the_task_language_needs_no_torch(name: str) -> None:
    code = f"import sys, {name}; print('torch' in sys.modules, 'transformers' in sys.modules)"
    folder = Path(growing.__file__).parent
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    assert out.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    ("read", "texts"),
    [
        (growing.prompt_id, ["", "=", "4708=", "x4708=", "4+71=", "c4708", "c470812=", "c47b8=", "4*7=", "47+85=1"]),
        (chain.prompt_id, ["", "=", "4071=", "a4071=", "ab407=", "ab4071", "az4071=", "abcdefghi4071=", "ab40b1="]),
        (operations.answer, ["", "z4071=", "a407=", "a40710=", "a407x="]),
    ],
)
def test_a_text_that_is_no_prompt_is_refused(read: Any, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(ValueError, match="not a prompt"):
            read(text)


@pytest.mark.parametrize("language", [growing, chain, operations], ids=lambda language: language.__name__)
def test_the_reward_is_1_for_the_right_answer_only(language: Any) -> None:
    rows = language.pool(3, seed=1)
    ids, right = [row["prompt_id"] for row in rows], [language.answer(row["prompt"]) for row in rows]
    reward = language.make_reward()
    assert reward(completions=right, prompt_id=ids) == [1.0] * len(ids)
    for wrong in (
        lambda text: text + "0",
        lambda text: "0" + text,
        lambda text: text[:-1],
        lambda text: text[1:],
        lambda text: text[0] + "x" + text[2:],
        lambda text: text[:-1] + str((int(text[-1]) + 1) % 10),
    ):
        assert reward(completions=[wrong(text) for text in right], prompt_id=ids) == [0.0] * len(ids)


@pytest.mark.parametrize(
    ("language", "shortest"), [(growing, 1), (chain, 10), (reasoning, 0)], ids=["growing", "chain", "reasoning"]
)
def test_a_few_real_steps_are_reproducible_and_move_the_model(language: Any, shortest: int) -> None:
    pytest.importorskip("trl")
    if language is reasoning:
        pytest.importorskip("reasoning_gym")
    from budgetalloc.cli.testbed.train import train

    small: dict[str, Any] = {"steps": 2, "prompts": 8, "generations": 4, "eval_every": 1, "progress": False}
    small |= {"language": language, "grading": MIXES[language.__name__].grading, "held_out_per_skill": 1}
    runs = [train(seed=1, **small) for _ in range(2)]
    assert runs[0].losses == runs[1].losses
    curves = [[repr(replace(point, seconds=0.0)) for point in run.curve] for run in runs]  # NaN equals NaN
    assert curves[0] == curves[1]
    assert runs[0].end_P == runs[1].end_P != runs[0].start_P
    first, _, last = runs[0].curve
    assert [point.rollouts for point in runs[0].curve] == [0, 32, 64]
    assert 64 * (shortest + 1) <= last.tokens <= 64 * (language.ANSWER_LENGTH + 1)
    assert last.expected != first.expected
