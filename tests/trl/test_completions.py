"""The completions that TRL's trainer writes hold the same rollouts as the callback's ledger."""

from collections import Counter

import pytest
import trl
from conftest import rows, trained
from packaging.version import Version

import budgetalloc as ba
from budgetalloc.logs.ledger import read_log

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


def test_a_resumed_run_has_each_step_once(quiet, tmp_path):
    quiet(save_strategy="steps", save_steps=2).train()
    quiet(max_steps=6).train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert Counter(ba.Ledger.read(tmp_path / "run").frame.step.tolist()) == dict.fromkeys(range(1, 7), 16)
