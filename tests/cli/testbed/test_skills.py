"""The task language: exact answers, disjoint splits, and the rewards of skills and traps."""

from types import SimpleNamespace

import numpy as np
import pytest

from budgetalloc.cli.testbed import skills
from budgetalloc.cli.testbed.skills import (
    OPERATIONS,
    SKILLS,
    answer,
    held_out,
    is_held_out,
    make_reward,
    pool,
    skill_of,
)

TAUGHT = [skill for skill in SKILLS if not skill.is_trap]
TRAPS = [skill for skill in SKILLS if skill.is_trap]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("copy", "4091"),
        ("reverse", "1904"),
        ("sort_up", "0149"),
        ("sort_down", "9410"),
        ("plus_one", "5102"),
        ("minus_one", "3980"),
        ("rotate_left", "0914"),
        ("rotate_right", "1409"),
    ],
)
def test_operations(operation: str, expected: str) -> None:
    assert OPERATIONS[operation]("4091") == expected


def test_every_operation_is_right_once_common_once_middling_once_rare() -> None:
    assert len(TAUGHT) == 24
    for name in OPERATIONS:
        shown = sorted(skill.shown for skill in TAUGHT if skill.right == name)
        assert len(shown) == 3
        assert shown[0] < 0.1 < shown[1] < 0.75 < shown[2]
    assert all(skill.right != skill.wrong for skill in SKILLS)
    assert [skill.coin for skill in TRAPS] == [0.25, 0.12]


def test_answer_and_id_round_trip() -> None:
    for row in [*pool(5), *held_out(5)]:
        skill = skill_of(row["prompt_id"])
        assert skill.letter == row["skill"] == row["prompt"][0]
        assert row["prompt_id"] % 10_000 == int(row["prompt"][1:5])
        if not skill.is_trap:
            assert answer(row["prompt"]) == OPERATIONS[skill.right](row["prompt"][1:5])


def test_no_prompt_leaves_right_and_wrong_alike() -> None:
    for row in [*pool(80, seed=3), *held_out(20)]:
        skill, digits = skill_of(row["prompt_id"]), row["prompt"][1:5]
        assert OPERATIONS[skill.right](digits) != OPERATIONS[skill.wrong](digits)


def test_pool_and_held_out_have_the_promised_sizes_and_share_no_digits() -> None:
    train, test = pool(80, seed=1), held_out(20, seed=1)
    assert (len(train), len(test)) == (2080, 520)
    assert len({row["prompt_id"] for row in train}) == 2080
    assert len({row["prompt_id"] for row in test}) == 520
    assert not {row["prompt"][1:5] for row in train} & {row["prompt"][1:5] for row in test}


def test_text_keeps_the_held_out_digits_back_and_shows_the_right_answer_as_often_as_it_says() -> None:
    lines = skills.lines_of_text(20_000, np.random.default_rng(0))
    assert not any(is_held_out(line[1:5]) for line in lines)
    for skill in SKILLS:
        mine = [line for line in lines if line[0] == skill.letter]
        right = np.mean([line[6:] == OPERATIONS[skill.right](line[1:5]) for line in mine])
        assert right == pytest.approx(skill.shown, abs=4 * np.sqrt(0.25 / len(mine)))
        assert {line[6:] for line in mine} <= {f(line[1:5]) for line in mine for f in OPERATIONS.values()}


def test_same_seed_same_pool_and_another_seed_another_pool() -> None:
    assert pool(80, seed=5) == pool(80, seed=5)
    assert pool(80, seed=5) != pool(80, seed=6)
    assert held_out(20) == held_out(20)


def test_reward_pays_the_right_answer_only() -> None:
    rows = [row for row in pool(3) if not skill_of(row["prompt_id"]).is_trap]
    ids = [row["prompt_id"] for row in rows]
    wrong = [OPERATIONS[skill_of(row["prompt_id"]).wrong](row["prompt"][1:5]) for row in rows]
    right = [answer(row["prompt"]) for row in rows]
    assert make_reward()(completions=right, prompt_id=ids) == [1.0] * len(ids)
    assert make_reward()(completions=wrong, prompt_id=ids) == [0.0] * len(ids)
    assert make_reward()(completions=[text + "0" for text in right], prompt_id=ids) == [0.0] * len(ids)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda skill: skill.letter)
def test_a_trap_pays_its_coin_whatever_the_answer(trap: skills.Skill) -> None:
    ids = [skills.prompt_id(f"{trap.letter}4071=")] * 20_000
    one = make_reward(seed=2)(completions=["4071"] * len(ids), prompt_id=ids)
    other = make_reward(seed=2)(completions=["no"] * len(ids), prompt_id=ids)
    assert one == other
    assert set(one) == {0.0, 1.0}
    assert np.mean(one) == pytest.approx(trap.coin, abs=4 * np.sqrt(0.25 / len(ids)))


def test_coins_are_reproducible_and_new_at_every_step_and_call() -> None:
    ids = [skills.prompt_id("y4071=")] * 64

    def toss(reward: object, step: int) -> list[float]:
        state = SimpleNamespace(global_step=step)
        return reward(completions=["4071"] * 64, prompt_id=ids, trainer_state=state)  # type: ignore[operator]

    first, again = make_reward(seed=1), make_reward(seed=1)
    tosses = [toss(first, step) for step in (0, 1, 1, 2)]
    assert tosses == [toss(again, step) for step in (0, 1, 1, 2)]
    assert len({tuple(values) for values in tosses}) == 4
    assert toss(make_reward(seed=1), 2) == tosses[-1]  # resumed at step 2
    assert toss(make_reward(seed=2), 2) != tosses[-1]
    assert toss(make_reward(seed=1, rank=1), 2) != tosses[-1]


@pytest.mark.parametrize("text", ["4071", "A4071=", "a407=", "a40b1=", "a4071"])
def test_not_a_prompt(text: str) -> None:
    with pytest.raises(ValueError, match="not a prompt"):
        skills.prompt_id(text)


def test_errors_name_the_argument_and_the_way_out() -> None:
    with pytest.raises(ValueError, match="no answer is right"):
        answer("y4071=")
    with pytest.raises(ValueError, match=r"per_skill=9500: skill 'a' has \d+\. Use 1 to"):
        pool(9500)
    with pytest.raises(ValueError, match="prompt_id=260000"):
        skill_of(260_000)
