"""The selector of integrations/trinity in Trinity-RFT's own TasksetScheduler, fed by its own PassRateCalculator.

Runs in the environment that `make trainers` makes, and skips elsewhere.
"""

import asyncio
import json

import numpy as np
import pytest

pytest.importorskip("trinity")
pytestmark = pytest.mark.slow

import torch  # noqa: E402
from trinity.buffer.operators.mappers.pass_rate_calculator import PassRateCalculator  # noqa: E402
from trinity.buffer.task_scheduler import TasksetScheduler, get_taskset_scheduler  # noqa: E402
from trinity.common.config import Config, DataSelectorConfig, TasksetConfig  # noqa: E402
from trinity.common.experience import EID, Experience  # noqa: E402
from trinity.manager.state_manager import StateManager  # noqa: E402

from budgetalloc import InputError  # noqa: E402

TASKS, BATCH, N = 12, 4, 4


@pytest.fixture
def scheduler(tmp_path):
    rows = [{"question": f"q{at}", "answer": str(at)} for at in range(TASKS)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(state=None, **kwargs):
        config = Config()
        config.buffer.batch_size, config.buffer.total_epochs = BATCH, 9
        chosen = DataSelectorConfig(selector_type="budgetalloc_trinity.Selector", seed=0, kwargs={"n": N} | kwargs)
        tasks = TasksetConfig(name="t", path=str(tmp_path), split="train", batch_size=BATCH, data_selector=chosen)
        tasks.format.prompt_key, tasks.format.response_key = "question", "answer"
        tasks.total_epochs, tasks.default_workflow_type = 9, "math_workflow"
        config.buffer.explorer_input.tasksets = [tasks]
        made = get_taskset_scheduler(state or {}, config)
        assert isinstance(made, TasksetScheduler)
        return made

    return make


def chosen(scheduler):
    return [task.index["index"] for task in asyncio.run(scheduler.read())]


def steps(scheduler, number, rate):
    """So many steps: the tasks chosen in each, whose rollouts pass at this rate."""
    rng, run = np.random.default_rng(0), []
    for _ in range(number):
        tasks = asyncio.run(scheduler.read())
        run.append([task.index["index"] for task in tasks])
        rollouts = [
            Experience(
                eid=EID(task=str(at)), tokens=torch.tensor([1, 2]), prompt_length=1,
                reward=float(rng.random() < rate(task.index["index"])), info={"task_index": task.index},
            )
            for at, task in enumerate(tasks) for _ in range(N)
        ]  # fmt: skip
        _, metrics = PassRateCalculator().process(rollouts)
        scheduler.feedback(metrics)
    return run


def test_tasks_that_are_mixed_are_chosen_more_often(scheduler):
    run = steps(scheduler(), 20, lambda at: 0.5 if at < 4 else 0.0)
    assert all(len(set(tasks)) == BATCH for tasks in run)
    late = np.concatenate(run[8:])
    assert (late < 4).mean() > 0.5  # of 4 among 12 tasks


def test_the_beliefs_are_those_of_the_pass_rates(scheduler):
    made = scheduler()
    (tasks,) = steps(made, 1, lambda at: 1.0)
    policy = made.tasksets[0].reader.selector.policy
    others = [at for at in range(TASKS) if at not in tasks]
    assert policy.belief(tasks).mean.min() > policy.belief(others).mean.max()
    assert policy.estimator.step == 1


def test_a_restored_scheduler_chooses_as_one_that_never_stopped(scheduler, tmp_path):
    made = scheduler()
    steps(made, 4, lambda at: at / TASKS)
    states = StateManager(str(tmp_path / "state"), explorer_name="explorer")
    states.save_explorer(made.step, made.state_dict())
    assert chosen(scheduler(states.load_explorer())) == chosen(made)


def test_tasks_that_wait_for_feedback_are_not_chosen_again(scheduler):
    made = scheduler()
    assert sorted(chosen(made) + chosen(made) + chosen(made)) == list(range(TASKS))
    assert len(set(chosen(made))) == BATCH  # all are waiting


def test_rewards_that_are_no_pass_rates_are_refused(scheduler):
    selector = scheduler().tasksets[0].reader.selector
    with pytest.raises(InputError, match="use a reward of 0 or 1 for each rollout"):
        selector.feedback([1, 2], [0.5, -0.1])


def test_another_policy_by_its_name(scheduler):
    made = scheduler(policy="mopps")
    assert len(set(chosen(made))) == BATCH
    with pytest.raises(Exception, match="policy 'mops' is unknown, did you mean mopps"):
        scheduler(policy="mops")
