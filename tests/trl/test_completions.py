"""The completions that TRL's trainer writes hold the same rollouts as the callback's ledger."""

from collections import Counter

import numpy as np
import pytest
import trl
from conftest import low_digit, rows, trained
from packaging.version import Version

import budgetalloc as ba
from budgetalloc.beliefs.ids import text_id
from budgetalloc.logs.ledger import read_log
from budgetalloc.training.prompts import prompt_hash

pytest.importorskip("pyarrow")
# There the prompt of this tokenizer, which has no decoder, is written as "0 0 1 =", so that its id is another.
as_given = pytest.mark.skipif(
    Version(trl.__version__).release < (1, 15), reason="TRL 1.14 writes down what the tokenizer makes of a prompt"
)
QUIET = {"log_completions": True, "num_completions_to_print": 0}


@pytest.fixture
def quiet(build):
    """`quiet(**config)`: a trainer that writes completions of 12 prompts, named by their text."""
    return lambda **config: build(rows(12).remove_columns("prompt_id"), **QUIET, **config)


def rollouts(ledger, shift=0):
    rows = zip(
        ledger.frame.step.tolist(),
        ledger.frame.prompt.tolist(),
        ledger.frame.reward.tolist(),
        ledger.frame.groupby(["step", "prompt"]).prompt.transform("size").tolist(),
        strict=True,
    )
    return Counter((step + shift, *row) for step, *row in rows)


@as_given
def test_completions_and_ledger_of_one_run_hold_the_same_rollouts(quiet, tmp_path, ledger):
    trained(quiet(), ba.knapsack(), ledger=ledger)
    log = read_log(tmp_path / "run")
    assert log.kind == "trl"
    shown, kept = log, ba.Ledger.read(ledger)
    assert len(set(kept.frame.groupby(["step", "prompt"]).prompt.transform("size").tolist())) > 1  # uneven groups
    assert rollouts(shown) == rollouts(kept, shift=1)  # TRL names a step by the number of steps done
    assert log.notes == {"length unknown": len(kept)}


@as_given
def test_several_rewards_with_weights_are_summed_as_in_trl(quiet, tmp_path, ledger):
    def short(completions, **_):
        return [None if "9" in text else float(len(text) < 6) for text in completions]

    trainer = quiet(reward=[low_digit, short], reward_weights=[1.0, 0.25])
    trained(trainer, ba.uniform(), ledger=ledger, reward_range=(0, 1.25))
    shown = ba.Ledger.read(tmp_path / "run", reward={"low_digit": 1.0, "short": 0.25})
    kept = ba.Ledger.read(ledger)
    order = [np.lexsort((x.frame.reward, x.frame.prompt.tolist(), x.frame.step)) for x in (shown, kept)]
    np.testing.assert_allclose(shown.frame.reward[order[0]], kept.frame.reward[order[1]], atol=1e-6)


def test_a_resumed_run_has_each_step_once(quiet, tmp_path):
    quiet(save_strategy="steps", save_steps=2).train()
    quiet(max_steps=6).train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert Counter(ba.Ledger.read(tmp_path / "run").frame.step.tolist()) == dict.fromkeys(range(1, 7), 16)


def test_an_id_of_a_prompt_is_the_callbacks():
    for prompt in ("2 + 2 =", "日本 \ud800", [{"role": "user", "content": "x", "name": None}], 7):
        assert text_id(prompt) == prompt_hash(prompt)
