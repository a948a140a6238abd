"""The screen: twins with the skills of the mixes, groups of other sizes, a file that resumes, agreement."""

import json
import sys
from pathlib import Path

import numpy as np
import operations  # of benchmarks/learning
import pytest
import reasoning
import screen
import twins
from mixes import MIXES
from twins import TWINS

OF_OPERATIONS = ("many_wrong", "hard_wrong", "hard_once", "easy_once")


def real(policy, mix, rate, seed, level):
    """A run of run.py whose success is the same at all points."""
    curve = {"rollouts": [0, 150 * 256], "expected": [level, level]}
    return {"policy": policy, "mix": mix, "rate": rate, "seed": seed, "steps": 150} | curve


@pytest.mark.parametrize("mix", OF_OPERATIONS)
def test_a_twin_has_the_prompts_and_the_skills_of_its_mix(mix):
    rows, task = MIXES[mix].rows(0), TWINS[mix]
    letters = sorted({row["skill"] for row in rows})
    skills = [skill for skill in operations.SKILLS if skill.letter in letters]
    assert [skill[2] for skill in task.skills] == [skill.shown for skill in skills]
    names = list(operations.OPERATIONS)
    assert [names[right] for right, _, _ in task.skills] == [skill.right for skill in skills]
    assert all(sorted((right, *wrong)) == list(range(12)) for right, wrong, _ in task.skills)
    assert len(task.skills) * task.per_skill == len(rows)
    assert len(task.skills) * task.held_out == len(MIXES[mix].held_out())


def test_the_command_prints_the_agreement_and_says_where_policies_are_too_few(tmp_path, monkeypatch, capsys):
    results = tmp_path / "results.jsonl"
    rows = [real("uniform", "many_wrong", 3e-4, 100, 0.5), real("uniform2", "many_wrong", 3e-4, 100, 0.6)]
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["screen.py", "--policy", "uniform2", "--mix", "many_wrong", "--seeds", "1", "--rate", "3e-4"]
    monkeypatch.setattr(sys, "argv", [*words, "--steps", "2", "--results", str(Path(results))])
    screen.main()
    printed = capsys.readouterr().out
    assert "many_wrong, 1 seeds" in printed
    assert "over 2 policies" in printed
    assert "too few to mean anything" in printed
    assert "Real runs on tuning seeds alone: uniform, uniform2" in printed


def test_the_twin_of_reasoning_has_its_cells_and_starts_where_the_model_does():
    world = twins.world("reasoning", 3e-4, 0)
    assert len(TWINS["reasoning"].skills) == len(reasoning.CELLS)
    assert abs(world.success() - 0.363) < 0.02  # the held-out success of the model before training


@pytest.mark.parametrize("name", screen.POLICIES)
def test_every_policy_on_offer_can_be_screened(name):
    _, curve, _ = screen.run((name, "u_shape", 3e-4, 0, 1))
    assert np.isfinite(curve).all()
