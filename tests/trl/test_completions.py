"""The completions that TRL's trainer writes, read back: the same rollouts as in the callback's own ledger."""

from collections import Counter

import numpy as np
import pytest
import trl
from conftest import low_digit
from datasets import Dataset
from packaging.version import Version

import budgetalloc as ba
from budgetalloc.beliefs.ids import text_id
from budgetalloc.logs.reader import open_log, read_all
from budgetalloc.training.prompts import prompt_hash
from budgetalloc.trl import AdaptiveGRPOCallback

pytest.importorskip("pyarrow")
# There the prompt of this tokenizer, which has no decoder, is written as "0 0 1 =", so that its id is another.
as_given = pytest.mark.skipif(
    Version(trl.__version__).release < (1, 15), reason="TRL 1.14 writes down what the tokenizer makes of a prompt"
)
QUIET = {"log_completions": True, "num_completions_to_print": 0}


def plain_rows(count=12):
    return Dataset.from_list([{"prompt": f"{n:03d}="} for n in range(count)])


def rollouts(ledger, shift=0):
    rows = zip(ledger.step_R.tolist(), ledger.ids_R, ledger.rewards_R.tolist(), ledger.counts_R.tolist(), strict=True)
    return Counter((step + shift, *row) for step, *row in rows)


@as_given
def test_completions_and_ledger_of_one_run_hold_the_same_rollouts(build, tmp_path):
    trainer = build(dataset=plain_rows(), **QUIET)
    trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.knapsack(), ledger=tmp_path / "ledger.jsonl"))
    trainer.train()
    log = open_log(tmp_path / "run")
    assert log.kind == "trl"
    shown, kept = read_all(log), ba.Ledger.read(tmp_path / "ledger.jsonl")
    assert len(set(kept.counts_R.tolist())) > 1  # uneven groups
    assert rollouts(shown) == rollouts(kept, shift=1)  # TRL names a step by the number of steps done
    assert log.notes == {"length unknown": len(kept.ids_R)}


@as_given
def test_several_rewards_with_weights_come_out_as_trl_summed_them(build, tmp_path):
    def short(completions, **_):
        return [None if "9" in text else float(len(text) < 6) for text in completions]

    trainer = build(dataset=plain_rows(), reward=[low_digit, short], reward_weights=[1.0, 0.25], **QUIET)
    trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.uniform(), ledger=tmp_path / "l", reward_range=(0, 1.25)))
    trainer.train()
    shown = ba.Ledger.read(tmp_path / "run", reward={"low_digit": 1.0, "short": 0.25})
    kept = ba.Ledger.read(tmp_path / "l")
    order = [np.lexsort((x.rewards_R, x.ids_R, x.step_R)) for x in (shown, kept)]
    np.testing.assert_allclose(shown.rewards_R[order[0]], kept.rewards_R[order[1]], atol=1e-6)


def test_a_resumed_run_has_each_step_once(build, tmp_path):
    build(dataset=plain_rows(), save_strategy="steps", save_steps=2, **QUIET).train()
    again = build(dataset=plain_rows(), save_strategy="steps", save_steps=2, max_steps=6, **QUIET)
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    ledger = ba.Ledger.read(tmp_path / "run")
    assert Counter(ledger.step_R.tolist()) == dict.fromkeys(range(1, 7), 16)


def test_an_id_of_a_prompt_is_the_callbacks():
    for prompt in ("2 + 2 =", "日本 \ud800", [{"role": "user", "content": "x", "name": None}], 7):
        assert text_id(prompt) == prompt_hash(prompt)
