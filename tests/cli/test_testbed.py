"""The demo's task language, its shipped model, and success measured without sampling."""

from types import SimpleNamespace

import numpy as np
import pytest

from budgetalloc.cli.testbed import skills
from budgetalloc.cli.testbed.skills import OPERATIONS, SKILLS, WEIGHTS, answer, held_out, make_reward, pool, skill_of

RESULTS = {"copy": "4091", "reverse": "1904", "sort_up": "0149", "sort_down": "9410"}
RESULTS |= {"plus_one": "5102", "minus_one": "3980", "rotate_left": "0914", "rotate_right": "1409"}


def test_operations_and_skills() -> None:
    assert {name: run("4091") for name, run in OPERATIONS.items()} == RESULTS
    for name in OPERATIONS:  # right once common, once middling, once rare
        rare, middling, common = sorted(skill.shown for skill in SKILLS if skill.right == name and not skill.is_trap)
        assert rare < 0.1 < middling < 0.75 < common
    assert [skill.coin for skill in SKILLS if skill.is_trap] == [0.25, 0.12]


def test_rows_read_back_tell_right_from_wrong_and_splits_share_no_digits() -> None:
    train, test = pool(80, seed=1), held_out(20)
    assert (len(train), len(test)) == (2080, 520)
    assert pool(80, seed=1) == train != pool(80, seed=2)
    assert len({row["prompt_id"] for row in [*train, *test]}) == 2600
    assert not {row["prompt"][1:5] for row in train} & {row["prompt"][1:5] for row in test}
    for row in [*train, *test]:
        skill, digits = skill_of(row["prompt_id"]), row["prompt"][1:5]
        assert (skill.letter, skills.prompt_id(row["prompt"])) == (row["skill"], row["prompt_id"])
        assert OPERATIONS[skill.right](digits) != OPERATIONS[skill.wrong](digits)
        assert skill.is_trap or answer(row["prompt"]) == OPERATIONS[skill.right](digits)


def test_text_keeps_the_held_out_digits_back_and_shows_the_right_answer_as_often_as_it_says() -> None:
    lines = skills.lines_of_text(20_000, np.random.default_rng(0))
    assert not any(skills.is_held_out(line[1:5]) for line in lines)
    for skill in SKILLS:
        mine = [line for line in lines if line[0] == skill.letter]
        right = np.mean([line[6:] == OPERATIONS[skill.right](line[1:5]) for line in mine])
        assert right == pytest.approx(skill.shown, abs=4 * np.sqrt(0.25 / len(mine)))


def test_reward_pays_the_right_answer_only() -> None:
    rows = [row for row in pool(3) if not skill_of(row["prompt_id"]).is_trap]
    ids = [row["prompt_id"] for row in rows]
    wrong = [OPERATIONS[skill_of(row["prompt_id"]).wrong](row["prompt"][1:5]) for row in rows]
    right = [answer(row["prompt"]) for row in rows]
    assert make_reward()(completions=right, prompt_id=ids) == [1.0] * len(ids)
    assert make_reward()(completions=wrong, prompt_id=ids) == [0.0] * len(ids)
    assert make_reward()(completions=[text + "0" for text in right], prompt_id=ids) == [0.0] * len(ids)


def test_a_trap_pays_its_coin_whatever_the_answer_anew_at_every_step_and_call() -> None:
    def toss(reward: object, step: int, text: str = "4071") -> list[float]:
        state = SimpleNamespace(global_step=step)
        ids = [skills.prompt_id("y4071=")] * 4000
        return reward(completions=[text] * 4000, prompt_id=ids, trainer_state=state)  # type: ignore[operator]

    first, again = make_reward(seed=1), make_reward(seed=1)
    tosses = [toss(first, step) for step in (0, 1, 1, 2)]
    assert tosses == [toss(again, step, "no") for step in (0, 1, 1, 2)]
    assert len({tuple(values) for values in tosses}) == 4
    assert np.mean(tosses) == pytest.approx(0.25, abs=4 * np.sqrt(0.25 / 16_000))
    assert toss(make_reward(seed=1), 2) == tosses[-1]  # resumed at step 2
    assert toss(make_reward(seed=2), 2) != tosses[-1]
    assert toss(make_reward(seed=1, rank=1), 2) != tosses[-1]


@pytest.mark.parametrize("text", ["", "4071", "A4071=", "a407=", "a40b1=", "a4071"])
def test_errors_name_the_argument_and_the_way_out(text: str) -> None:
    with pytest.raises(ValueError, match="not a prompt"):
        skills.prompt_id(text)
    with pytest.raises(ValueError, match="no answer is right"):
        answer("y4071=")
    with pytest.raises(ValueError, match=r"per_skill=9500: skill 'a' has \d+\. Use 1 to"):
        pool(9500)
    with pytest.raises(ValueError, match="prompt_id=260000"):
        skill_of(260_000)


@pytest.mark.slow
def test_the_shipped_model_leaves_room_to_learn_and_measuring_changes_nothing() -> None:
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("trl")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from budgetalloc.cli.testbed.heldout import evaluate

    model, tokenizer = AutoModelForCausalLM.from_pretrained(WEIGHTS), AutoTokenizer.from_pretrained(WEIGHTS)
    assert model.dtype == torch.float32  # as GRPO on a CPU needs it, whatever the file holds
    model.train()
    before = torch.get_rng_state()
    found = evaluate(model, tokenizer, held_out())
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert found.expected == pytest.approx(0.446, abs=6e-4)  # as on the pages of evidence
    assert found.pass_at(64) == pytest.approx(0.8652, abs=6e-4)
    # Generated by transformers, of one prompt of each skill that can be learned.
    texts = [row["prompt"] for row in held_out() if not skills.is_trap(row["prompt_id"])]
    asked = tokenizer(texts[::20] * 100, return_tensors="pt")
    torch.manual_seed(0)
    drawn = model.generate(**asked, do_sample=True, top_k=0, max_new_tokens=5)[:, asked["input_ids"].shape[1] :]
    said = tokenizer.batch_decode(drawn, skip_special_tokens=True)
    right = np.mean([text == answer(prompt) for text, prompt in zip(said, texts[::20] * 100, strict=True)])
    assert right == pytest.approx(np.mean(found.right_P[::20]), abs=4.5 * (0.25 / len(said)) ** 0.5)
