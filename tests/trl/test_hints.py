"""Prompts that nothing solves get rollouts with the user's hint, in TRL's real trainer."""

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc import policies
from budgetalloc.trl import AdaptiveGRPOCallback

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


def run(build, tmp_path, **attach):
    asked = []

    def hint(ids):
        asked.append(list(ids))

    policy = policies.on_all_fail(ba.uniform(seed=1), hint, rollouts=4, share=0.25, fewest=3)
    ledger = tmp_path / "ledger.jsonl"
    trainer = build(reward=hopeless_without_a_hint, max_steps=4)
    trainer.add_callback(AdaptiveGRPOCallback(trainer, policy, ledger=ledger, **attach))
    prompts = []
    own = trainer._generate_and_score_completions

    def generate(inputs):
        output = own(inputs)
        prompts.append(([row["prompt"] for row in inputs], output["advantages"].tolist()))
        return output

    trainer._generate_and_score_completions = generate
    trainer.train()
    return trainer, policy, ba.Ledger.read(ledger), asked, prompts


def test_hinted_rollouts_are_counted_and_trained_on_but_teach_no_belief(build, tmp_path, losses):
    trainer, policy, log, asked, prompts = run(build, tmp_path, hint=with_nine)
    assert np.isfinite(losses(trainer)).all()
    hinted = [str(name).endswith("(hinted)") for name in log.ids_R]
    assert any(asked)
    assert any(hinted)
    assert len(log.ids_R) == 4 * 16  # the hints are paid from the step's own budget
    assert np.isnan(log.predicted_R[hinted]).all()
    with_hint = [prompt for own, _ in prompts for prompt in own if len(prompt) > 4]
    assert len(with_hint) == sum(hinted)
    assert log.rewards_R[hinted].max() == 1.0
    for name in {n for ids in asked for n in ids}:
        alpha, beta = (x[0] for x in (policy.belief([name]).alpha_P, policy.belief([name]).beta_P))
        own_R = [r for x, r in zip(log.ids_R, log.rewards_R, strict=True) if x == name]
        assert (alpha, beta) == (0.5 + sum(own_R), 0.5 + len(own_R) - sum(own_R))
    shown = [entry["budgetalloc/hinted"] for entry in trainer.state.log_history if "budgetalloc/hinted" in entry]
    assert sum(shown) == sum(hinted)


def test_a_policy_with_hints_needs_the_function_that_puts_them_in(build, tmp_path):
    with pytest.raises(ba.UnsupportedError, match="pass AdaptiveGRPOCallback"):
        run(build, tmp_path)


def test_hints_and_the_posterior_baseline_do_not_go_together(build, tmp_path):
    with pytest.raises(ba.InputError, match="hint= with baseline='posterior'"):
        run(build, tmp_path, hint=with_nine, baseline="posterior")
