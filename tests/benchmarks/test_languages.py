"""The languages of the learning benchmark: right answers, no leak, texts that show what they say, shipped models."""

import subprocess
import sys
from math import gcd
from pathlib import Path
from typing import Any

import chain  # of benchmarks/learning
import growing
import numpy as np
import operations
import pytest
import reasoning
import verbose
from mixes import MIXES, SHAPES, SIZED
from operations import OPERATIONS
from pretrain import SIZES, Recipe, build_model, build_tokenizer, pretrain, save, text_of_skills

from budgetalloc.cli.testbed import skills

OWN = pytest.mark.parametrize("language", [growing, chain, operations], ids=lambda language: language.__name__)
EVERY = pytest.mark.parametrize(
    "language", [growing, chain, operations, reasoning, verbose], ids=lambda language: language.__name__
)


@pytest.fixture(autouse=True)
def its_generators(request: Any) -> None:
    if "reasoning" in request.node.name and "without" not in request.node.name:
        pytest.importorskip("reasoning_gym")


def digits_of(text: str) -> str:
    return "".join(c for c in text if c.isdecimal())


@pytest.mark.parametrize(
    ("language", "answers"),
    [
        (
            growing,
            {
                **{"4+7=": "11", "47+85=": "132", "00+03=": "3", "47-85=": "62", "085-047=": "038", "d4706=": "9412"},
                **{"t4708=": "19", "c04708=": "04708", "r4708=": "8074", "s4708=": "0478", "m4708=": "8"},
                **{"k4508=": "2", "p470812=": "0", "p470813=": "1", "h470812=": "0", "h470813=": "2"},
            },
        ),
        (
            operations,
            {
                **{"a4071=": "4071", "b4071=": "3960", "c4071=": "9526", "d4071=": "7410", "e4071=": "5928"},
                **{"f4071=": "1704", "g4071=": "0714", "h4071=": "0417", "i4071=": "5182", "j4071=": "8042"},
                **{"k4071=": "0147", "l4071=": "1407", "m4071=": "4071", "x4071=": "1407"},
            },
        ),
    ],
)
def test_answers(language: Any, answers: dict[str, str]) -> None:
    assert {text: language.answer(text) for text in answers} == answers


def five_by_five(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]


def test_a_chain_applies_each_letter_to_the_digits_before() -> None:
    rows = chain.pool(20)
    for row in rows:
        digits = row["prompt"][-5:-1]
        for letter, clause in zip(row["prompt"][:-5], five_by_five(chain.answer(row["prompt"])), strict=True):
            right = next(skill.right for skill in chain.SKILLS if skill.letter == letter)
            digits = OPERATIONS[right](digits)
            assert clause == letter + digits
    assert {len(chain.answer(row["prompt"])) for row in rows} == {10, 15, 20, 25, 30, 35, 40}


def test_the_reward_of_verbose_reads_only_what_follows_the_last_end_of_a_thought() -> None:
    row = verbose.pool(1)[0]
    right = verbose.answer(row["prompt"])
    written, digits = right[:-5], right[-4:]
    texts = [right, written * 3 + right, f"|{digits}", f"{right}|{digits}", digits, written, f"{right}0", f"{right}|0"]
    assert verbose.make_reward()(completions=texts, prompt_id=[row["prompt_id"]] * 8) == [1, 1, 1, 1, 0, 0, 0, 0]


def test_texts_of_verbose_repeat_the_last_step_in_ten_to_190_characters() -> None:
    lengths = []
    for line in (line for seed in range(50) for line in verbose.lines_of_text(32, np.random.default_rng(seed))):
        prompt, _, text = line.partition("=")
        thought, _, final = text.partition("|")
        steps, number = five_by_five(thought), len(prompt[:-4])
        assert "".join(step[0] for step in steps[:number]) == prompt[:-4]
        assert set(steps[number:]) <= {steps[number - 1]}
        assert final == steps[-1][1:]
        lengths.append(len(thought))
    assert (min(lengths), max(lengths)) == (10, 190)
    assert 25 < np.mean(lengths) < 45


def test_success_on_verbose_is_the_share_of_right_rollouts_however_long(load: Any) -> None:
    model, tokenizer = load(verbose)
    rows = verbose.held_out(3)
    texts = verbose.rollouts(model, tokenizer, rows, 4)
    right = [text.endswith(verbose.answer(rows[at // 4]["prompt"])[-5:]) for at, text in enumerate(texts)]
    assert verbose.evaluate(model, tokenizer, rows).expected == np.mean(right)
    assert verbose.rollouts(model, tokenizer, rows, 4) == texts
    assert max(map(len, texts)) > 84  # more than three times what is generated at once


def test_prompts_of_reasoning_hold_all_that_the_answers_depend_on() -> None:
    def of(skill: str) -> list[tuple[str, str]]:
        return [(row["prompt"][1:-1], reasoning.answer(row["prompt"])) for row in rows if row["skill"] == skill]

    rows = reasoning.pool(40)
    assert all(str(eval(asked)) == right for asked, right in of("chain_sum") + of("products"))  # noqa: S307
    assert all(str(gcd(*map(int, asked.split(",")))) == right for asked, right in of("gcd"))
    assert all(str(int(asked).bit_count()) == right for asked, right in of("count_bits"))
    assert all(asked[::-1] == right for asked, right in of("spell_backward"))
    for asked, right in of("base_conversion"):
        source, digits, target = asked.split(":")
        assert int(digits or "0", int(source)) == int(right, int(target))  # it writes 0 as nothing in bases 3 and 4


@EVERY
def test_pools_are_reproducible_and_share_nothing_with_what_is_held_out(language: Any) -> None:
    train, test = language.pool(seed=1), language.held_out()
    assert language.pool(seed=1) == train != language.pool(seed=2)
    what = (lambda row: row["prompt"]) if language is reasoning else (lambda row: digits_of(row["prompt"]))
    if language is operations:
        assert not {row["prompt"] for row in train} & {row["prompt"] for row in test}
    else:
        assert not {what(row) for row in train} & {what(row) for row in test}
    rows = [*train, *test]
    assert len({row["prompt"] for row in rows}) == len({row["prompt_id"] for row in rows}) == len(rows)
    answers = [language.answer(row["prompt"]) for row in rows]
    assert max(map(len, answers)) <= language.ANSWER_LENGTH
    assert set("".join(row["prompt"] for row in rows) + "".join(answers)) <= set(language.ALPHABET)


@OWN
def test_the_reward_is_1_for_the_right_answer_only(language: Any) -> None:
    rows = language.pool(3, seed=1)
    ids, right = [row["prompt_id"] for row in rows], [language.answer(row["prompt"]) for row in rows]
    reward = language.make_reward()
    assert reward(completions=right, prompt_id=ids) == [1.0] * len(ids)
    for wrong in (
        lambda text: text + "0",
        lambda text: text[:-1],
        lambda text: text[0] + "x" + text[2:],
        lambda text: text[:-1] + str((int(text[-1]) + 1) % 10),
    ):
        assert reward(completions=[wrong(text) for text in right], prompt_id=ids) == [0.0] * len(ids)


TEXTS = {
    "growing": growing.lines_of_text,
    "skills": text_of_skills,
    "operations": operations.lines_of_text,
    "chain": chain.lines_of_text,
    "verbose": verbose.lines_of_text,
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_pretraining_text_keeps_the_held_out_digits_back(name: str) -> None:
    held_out = growing.is_held_out if name == "growing" else skills.is_held_out
    lines = [line for seed in range(20) for line in TEXTS[name](64, np.random.default_rng(seed))]
    assert not any(held_out(digits_of(line.partition("=")[0])) for line in lines)


def test_ids_read_back() -> None:
    for row in [*growing.pool(60, seed=3), *growing.held_out(60)]:
        cell = growing.cell_of(row["prompt_id"])
        assert (cell.task.name, cell.length) == (row["skill"], row["length"])
        assert growing.prompt_id(cell.prompt(digits_of(row["prompt"]))) == row["prompt_id"]
        assert growing.is_trap(row["prompt_id"]) == (row["skill"] in ("parity", "check"))
    for row in [*chain.pool(100, seed=3), *chain.held_out(40)]:
        assert chain.prompt_of(row["prompt_id"]) == row["prompt"]
        assert chain.prompt_id(row["prompt"]) == row["prompt_id"]


def test_the_languages_load_without_torch_and_reasoning_gym() -> None:
    code = "import sys; sys.modules['reasoning_gym'] = None; import chain, growing, mixes\n"
    code += "import operations, reasoning, verbose\n"
    code += "print('torch' in sys.modules, 'reasoning  cannot be run here' in mixes.describe())"
    folder = Path(growing.__file__).parent
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    assert out.stdout.split() == ["False", "True"]


# The start of the published runs on their held-out prompts, as printed in benchmarks/learning/README.md.
STARTS = {"growing": 0.446, "many_wrong": 0.399, "reasoning": 0.363, "chain": 0.316}


@pytest.mark.parametrize("mix", STARTS)
def test_the_shipped_model_begins_where_the_published_runs_did(mix: str, load: Any) -> None:
    from budgetalloc.cli.testbed.heldout import evaluate

    language, rows = MIXES[mix].language, MIXES[mix].held_out()
    model, tokenizer = load(language)
    found = evaluate(model, tokenizer, rows, language)
    assert found.expected == pytest.approx(STARTS[mix], abs=0.0006)


def test_padding_counts_for_nothing_in_the_loss_and_in_the_probability() -> None:
    torch = pytest.importorskip("torch")
    from budgetalloc.cli.testbed.heldout import answer_logits, probability

    tokenizer = build_tokenizer(growing)
    torch.manual_seed(0)
    model = build_model(tokenizer).eval()
    prompts, answers = ["4+7=", "r4708="], ["11", "8074"]
    logits_PTV, tokens_PT = answer_logits(model, tokenizer, prompts, answers)
    eos = tokenizer.eos_token_id
    assert tokens_PT.tolist() == [[3, 3, eos, -100, -100], [10, 2, 9, 6, eos]]  # a digit is itself and 2
    together = probability(model, tokenizer, prompts, answers)
    for k in range(2):
        alone, _ = answer_logits(model, tokenizer, prompts[k : k + 1], answers[k : k + 1])
        torch.testing.assert_close(logits_PTV[k, : alone.shape[1]], alone[0], rtol=1e-4, atol=1e-5)
        assert together[k] == pytest.approx(probability(model, tokenizer, [prompts[k]], [answers[k]])[0], rel=1e-4)


def test_a_few_steps_of_pretraining_learn_reproducibly_and_the_folder_reads_back(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    (model, tokenizer), (again, _) = (pretrain(Recipe(steps=30, rows=64, seed=4), progress=False) for _ in range(2))
    assert sum(p.numel() for p in model.parameters()) == 339_936
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    save(model, tokenizer, tmp_path)
    read, words = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    for a, b in zip(model.parameters(), read.parameters(), strict=True):
        assert torch.equal(a.cpu().half().float(), b)
    assert words(skills.ALPHABET)["input_ids"] == list(range(2, 2 + len(skills.ALPHABET)))  # a token a character
    tokens = words(["a1234="], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        digits = read(tokens).logits[0, -1].softmax(-1)[2:12].sum()
    assert digits > 0.5  # an answer begins with a digit: untrained it is a quarter
    assert [f"u_shape_{size}" for size in SIZES] == [name for name in SIZED if name not in SHAPES]
