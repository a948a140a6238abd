"""Set-ups of TRL's own tests with the callback attached: streams, and reward functions that are partials.

Environments, tools and images: test_row_shapes.py. Reward functions of every kind: test_reward_functions.py.
"""

import numpy as np
import pyarrow as pa
import pytest
import torch
from conftest import Watched, low_digit, rows, same_weights, trained, weights

import budgetalloc as ba
from budgetalloc.beliefs.ids import check_ids
from budgetalloc.errors import check_array
from budgetalloc.trl import AdaptiveGRPOCallback

POLICIES = {"uniform": ba.uniform, "knapsack": ba.knapsack, "adaptive": ba.adaptive}


@pytest.fixture(params=POLICIES)
def policy(request):
    return POLICIES[request.param](seed=1)


@pytest.mark.parametrize("columns", ["known", "unknown"])
def test_streams(build, policy, columns):
    """Over more than one pass; a generator's columns are not known before its first row."""
    data = rows(12).to_iterable_dataset()
    if columns == "unknown":
        data = data.map(lambda row: row)
        assert data.column_names is None
    trainer = trained(build(data, max_steps=5), policy, candidates=1).trainer
    assert trainer.state.global_step == policy.estimator.step == 5
    assert set(policy.state_dict()["ids"]) == set(range(12))


# What is unusual and correct under TRL: it runs, equal to the bit under uniform(), or is said or refused at the start.


def strict(prompts, completions, completion_ids, prompt_id, trainer_state, log_extra, log_metric):
    """A reward function that names all of TRL's arguments, and takes no others."""
    return low_digit(completions)


async def strict_later(prompts, completions, completion_ids, prompt_id, trainer_state, log_extra, log_metric):
    return low_digit(completions)


class Strict:
    __name__ = "Strict"

    def __call__(self, prompts, completions, completion_ids, prompt_id, trainer_state, log_extra, log_metric):
        return low_digit(completions)


@pytest.mark.parametrize("reward", [strict, strict_later, Strict()])
def test_reward_functions_that_take_no_other_arguments(build, reward):
    (alone := build(reward=reward, max_steps=2)).train()
    attached = trained(build(reward=reward, max_steps=2), ba.uniform()).trainer
    assert same_weights(weights(alone), weights(attached))
    trained(build(reward=[reward, low_digit], max_steps=2), ba.adaptive(), success=1)


@pytest.mark.parametrize("shape", ["torch", "numpy"])
def test_formats_of_a_dataset(build, policy, shape):
    trained(build(rows(12).with_format(shape), max_steps=2), policy)
    assert set(map(type, policy.state_dict()["ids"])) == {int}


def test_a_dataset_that_was_replaced_is_refused_before_anything_is_generated(build):
    trainer = trained(build(max_steps=1), ba.adaptive()).trainer
    trainer.train_dataset = rows(30)
    seen = Watched(trainer)
    with pytest.raises(ba.InputError, match="train_dataset was replaced after the callback was made"):
        trainer.train()
    assert not seen.prompts
    batch = trained(build(max_steps=1), ba.knapsack(), candidates=1).trainer
    batch.train_dataset = rows(30)
    batch.train()  # the rows are the loader's own


@pytest.mark.parametrize(("candidates", "said"), [("all", 1), (1, 0)])
def test_an_order_of_rows_that_is_given_up_is_said(build, caplog, candidates, said):
    trained(build(max_steps=1, shuffle_dataset=False), ba.adaptive(), candidates=candidates)
    assert caplog.text.count("The order of the rows (shuffle_dataset=False) is not kept") == said


def test_a_callback_that_was_made_and_not_added_is_said(build, caplog):
    trainer = build(max_steps=1)
    AdaptiveGRPOCallback(trainer)
    trainer.train()
    assert caplog.text.count("is not among its callbacks: TRL trains without it") == 1


def test_a_callback_in_place_of_another_is_no_forgotten_one(build, caplog):
    """Both have wrapped `train`, and one of them is among the callbacks."""
    trainer = build(max_steps=1)
    first = AdaptiveGRPOCallback(trainer)
    trainer.add_callback(first)
    trainer.remove_callback(first)
    trainer.add_callback(AdaptiveGRPOCallback(trainer))
    trainer.train()
    assert "is not among its callbacks" not in caplog.text


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64, torch.bool])
def test_tensors_of_any_dtype_are_numbers(dtype):
    values = torch.tensor([1, 0]).to(dtype)
    if dtype.is_floating_point:
        values.requires_grad_()
    for given in (values, list(values)):
        assert check_array("rewards_R", given, "numbers").tolist() == [1.0, 0.0]


def test_scalars_of_torch_and_arrow_are_ids():
    assert check_ids([torch.tensor(3), np.int64(4), pa.scalar(5), pa.scalar("a")], "ids") == [3, 4, 5, "a"]
    for wrong in (torch.tensor(0.5), torch.tensor([1]), pa.scalar(0.5)):
        with pytest.raises(ba.InputError, match="a prompt id is an int or a str"):
            check_ids([wrong], "ids")
