"""Rewards that are not the exact verdict: what they pay, and a real step with each."""

from types import SimpleNamespace
from typing import Any

import gradings  # of benchmarks/learning
import numpy as np
import operations
import pytest
from gradings import (
    composite,
    edits,
    erring,
    noisy_score,
)
from hypothesis import given
from hypothesis import strategies as st

ROWS = operations.pool(2)
PROMPTS, IDS = [row["prompt"] for row in ROWS], [row["prompt_id"] for row in ROWS]
RIGHT = [operations.answer(text) for text in PROMPTS]


def at_step(step: int) -> Any:
    return SimpleNamespace(global_step=step)


def pay(reward: Any, texts: list[str], step: int = 0) -> list[float]:
    paid: list[float] = reward(completions=texts, prompts=PROMPTS, prompt_id=IDS, trainer_state=at_step(step))
    return paid


@given(st.text("ab", max_size=6), st.text("ab", max_size=6), st.text("ab", max_size=6))
def test_edits_are_a_distance(a: str, b: str, c: str) -> None:
    assert edits(a, b) == edits(b, a) <= edits(a, c) + edits(c, b)
    assert (edits(a, b) == 0) == (a == b)
    assert abs(len(a) - len(b)) <= edits(a, b) <= max(len(a), len(b))


def test_the_judge_prefers_right_answers_on_average_and_is_reproducible() -> None:
    one, again = (noisy_score(operations).functions(3)[0] for _ in range(2))
    paid = np.array([pay(one, RIGHT, step) for step in range(50)])
    assert (paid == [pay(again, RIGHT, step) for step in range(50)]).all()
    assert set(np.ravel(paid)) <= set(range(1, 11))
    assert 8.0 < paid.mean() < 9.0  # 9, and what is above 10 is cut
    assert 1.0 < paid.std() < 2.0
    assert np.mean([pay(one, ["none"] * len(RIGHT), step) for step in range(50, 100)]) == pytest.approx(2.4, abs=0.3)


def test_accuracy_and_format_are_two_functions_whose_weights_sum_to_one() -> None:
    grading = composite(operations)
    accuracy, form = grading.functions(0)
    assert sum(grading.weights) == 1
    assert pay(accuracy, RIGHT) == pay(form, RIGHT) == [1.0] * len(RIGHT)
    turned = [text[::-1] if text[::-1] != text else "0000" for text in RIGHT]
    assert (set(pay(accuracy, turned)), set(pay(form, turned))) == ({0.0}, {1.0})
    for malformed in ("407", "40711", "4b71", ""):
        assert set(pay(form, [malformed] * len(RIGHT))) == {0.0}


def test_a_verifier_errs_in_its_share_of_cases_reproducibly_and_anew_at_each_step_and_call() -> None:
    one, again = (erring(operations).functions(3)[0] for _ in range(2))
    wrong = ["none"] * len(RIGHT)
    paid = [pay(one, RIGHT, step) for step in (*range(200), 199)]
    assert paid == [pay(again, RIGHT, step) for step in (*range(200), 199)]
    assert paid[199] != paid[200]
    assert set(np.ravel(paid)) == {0.0, 1.0}
    spread = 4 * (0.05 * 0.95 / np.size(paid)) ** 0.5
    assert np.mean(paid) == pytest.approx(1 - gradings.ERRS, abs=spread)
    assert np.mean([pay(one, wrong, step) for step in range(200, 400)]) == pytest.approx(gradings.ERRS, abs=spread)
    assert pay(erring(operations).functions(4)[0], RIGHT, 0) != paid[0]
    assert erring(operations).expected(0.5) == pytest.approx(0.5)
    assert erring(operations).expected(1.0) == pytest.approx(0.95)


@pytest.mark.parametrize("name", ["composite", "edit_distance", "reward_model"])
def test_real_steps_measure_success_and_not_the_reward(name: str) -> None:
    pytest.importorskip("trl")
    from mixes import MIXES
    from train import train  # of benchmarks/learning

    import budgetalloc as ba
    from budgetalloc.trl import AdaptiveGRPOCallback

    mix = MIXES[name]
    small: dict[str, Any] = {"steps": 2, "prompts": 16, "generations": 4, "eval_every": 2, "progress": False}
    attached: list[AdaptiveGRPOCallback] = []

    def attach(trainer: Any) -> None:
        attached.append(AdaptiveGRPOCallback(trainer, ba.adaptive(seed=1)))
        trainer.add_callback(attached[0])

    run = train(
        attach,
        seed=1,
        language=mix.language,
        reward_funcs=mix.grading.functions(1),
        reward_weights=list(mix.grading.weights),
        rows=mix.rows(1),
        held_out_rows=mix.held_out()[::10],
        **small,
    )
    plain = train(seed=1, language=mix.language, held_out_rows=mix.held_out()[::10], **{**small, "steps": 1})
    assert run.curve[0].expected == plain.curve[0].expected
    assert run.curve[-1].rollouts == 128
    assert any(loss != 0 for loss in run.losses)
    paid = {round(float(reward), 6) for reward in attached[0].batch.rewards_R}
    if name == "composite":
        assert paid <= {0.0, 0.2, 1.0}
    else:
        assert len(paid) > 2


def test_a_schedule_gets_stricter_and_its_bonus_fades() -> None:
    strict, bonus = gradings.scheduled(operations).functions(0)
    half = [text[: len(text) // 2] + "x" * (len(text) - len(text) // 2) for text in RIGHT]
    assert [set(pay(strict, half, step)) for step in (0, 49, 50, 100)] == [{1.0}, {1.0}, {0.0}, {0.0}]
    assert set(pay(strict, RIGHT, 149)) == {1.0}
    assert [set(pay(bonus, RIGHT, step)) for step in (0, 25, 100, 149)] == [{1.0}, {0.75}, {0.0}, {0.0}]
    assert set(pay(bonus, half, 0)) == {0.0}
    assert gradings.scheduled(operations).weights == (1.0, 0.5)
