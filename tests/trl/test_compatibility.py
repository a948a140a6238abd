"""Checkpoints that fall between two generations, and evaluations of TRL next to the ledger."""

import pytest
from conftest import logged, rows, trained

from budgetalloc.logs.progress import read_progress
from budgetalloc.trl.compatibility import Facts, unaligned_saves


@pytest.mark.parametrize(("save_steps", "warned"), [(3, True), (4, False), (0.3, False), (0.75, False)])
def test_a_share_of_the_run_is_no_number_of_steps(save_steps, warned):
    settings = {"steps_per_generation": 4, "num_iterations": 1, "gradient_accumulation_steps": 2}
    facts = Facts(settings | {"save_steps": save_steps, "save_strategy": "steps"})
    assert (unaligned_saves(facts) is not None) == warned


def test_an_evaluation_of_trl_is_written_next_to_the_ledger(build, ledger):
    config = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8, "max_steps": 2}
    callback = trained(build(eval_dataset=rows(4), **config), ledger=ledger)
    progress = read_progress(ledger)
    assert [before for before, _ in progress.held_out] == [1, 2]
    assert [reward for _, reward in progress.held_out] == logged(callback.trainer, "eval_reward")
    assert set(progress.seconds) == {0, 1}
    assert all(seconds > 0 for seconds in progress.seconds.values())
    callback.held_out(0.5)  # after the training there is no file to write to
    assert read_progress(ledger) == progress
