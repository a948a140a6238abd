"""Prompts that always fail get rollouts with the user's hint, in TRL's real trainer."""

import numpy as np
import pytest
from conftest import Watched, attach, logged

import budgetalloc as ba

HARD = {f"{n:03d}=" for n in range(0, 24, 2)}


def hopeless_without_a_hint(prompts, completions, **_):
    """A hard prompt never pays; with the hint, which ends in "9=", every second completion does."""
    paid = []
    for at, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        easy = bool(completion) and completion[0] in "01234"
        paid.append(float(at % 2) if prompt.endswith("9=") and len(prompt) > 4 else float(prompt not in HARD and easy))
    return paid


def with_nine(row):
    return {**row, "prompt": row["prompt"][:-1] + "9="}


def run(build, ledger=None, **options):
    asked = []

    def hint(ids):
        asked.append(list(ids))

    policy = ba.methods.on_all_fail(ba.uniform(seed=1), hint, rollouts=4, share=0.25, fewest=3)
    trainer = build(reward=hopeless_without_a_hint)
    attach(trainer, policy, ledger=ledger, **options)
    seen = Watched(trainer)
    trainer.train()
    return trainer, policy, asked, seen


def test_hinted_rollouts_are_counted_and_trained_on_but_not_learned_by_beliefs(build, ledger):
    trainer, policy, asked, seen = run(build, ledger, hint=with_nine)
    log = ba.Ledger.read(ledger)
    assert np.isfinite(logged(trainer, "loss")).all()
    hinted = [str(name).endswith("(hinted)") for name in log.frame.prompt.tolist()]
    assert any(asked)
    assert any(hinted)
    assert len(log) == 4 * 16  # the hints are paid from the step's own budget
    assert np.isnan(log.frame.predicted.to_numpy()[hinted]).all()
    with_hint = [prompt for prompts in seen.prompts for prompt in prompts if len(prompt) > 4]
    assert len(with_hint) == sum(hinted)
    assert log.frame.reward.to_numpy()[hinted].max() == 1.0
    for name in {n for ids in asked for n in ids}:
        alpha, beta = (x[0] for x in (policy.belief([name]).alpha_P, policy.belief([name]).beta_P))
        own_R = [r for x, r in zip(log.frame.prompt.tolist(), log.frame.reward.to_numpy(), strict=True) if x == name]
        assert (alpha, beta) == (0.5 + sum(own_R), 0.5 + len(own_R) - sum(own_R))
    assert sum(logged(trainer, "budgetalloc/hinted")) == sum(hinted)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ba.UnsupportedError, "pass AdaptiveGRPOCallback"),
        ({"hint": with_nine, "baseline": "posterior"}, ba.InputError, "hint= with baseline='posterior'"),
    ],
)
def test_hints_without_their_function_or_with_a_posterior_baseline_are_refused(build, options, error, message):
    with pytest.raises(error, match=message):
        run(build, **options)
