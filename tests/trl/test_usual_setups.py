"""Set-ups of TRL's own tests with the callback attached: streams, and reward functions that are partials.

Environments, tools and images: test_row_shapes.py. Reward functions of every kind: test_reward_functions.py.
"""

import numpy as np
import pyarrow as pa
import pytest
import torch
from conftest import SAVES, Watched, logged, low_digit, rows, same_weights, trained, weights
from datasets import Dataset
from transformers import TrainerCallback

import budgetalloc as ba
from budgetalloc.beliefs.ids import check_ids
from budgetalloc.errors import check_array
from budgetalloc.logs.progress import read_progress
from budgetalloc.report import report
from budgetalloc.training.prompts import prompt_hash
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


class StrictLater:
    __name__ = "StrictLater"

    async def __call__(self, prompts, completions, completion_ids, prompt_id, trainer_state, log_extra, log_metric):
        return low_digit(completions)


class Strict:
    __name__ = "Strict"

    def __call__(self, prompts, completions, completion_ids, prompt_id, trainer_state, log_extra, log_metric):
        return low_digit(completions)


@pytest.mark.parametrize("reward", [strict, strict_later, Strict(), StrictLater()])
def test_reward_functions_that_take_no_other_arguments(build, reward):
    (alone := build(reward=reward, max_steps=2)).train()
    attached = trained(build(reward=reward, max_steps=2), ba.uniform()).trainer
    assert same_weights(weights(alone), weights(attached))
    trained(build(reward=[reward, low_digit], max_steps=2), ba.adaptive(), success=1)


@pytest.mark.parametrize("shape", ["torch", "numpy"])
def test_formats_of_a_dataset(build, policy, shape):
    trained(build(rows(12).with_format(shape), max_steps=2), policy)
    assert set(map(type, policy.state_dict()["ids"])) == {int}


HIDDEN = {
    "by the format": lambda: rows(12).with_format("torch", columns=["prompt"]),
    "by a transform": lambda: rows(12).with_transform(lambda batch: {"prompt": ["1" + x for x in batch["prompt"]]}),
}


@pytest.mark.parametrize("how", HIDDEN)
def test_a_column_of_ids_that_rows_do_not_show_names_no_prompts(build, policy, how):
    """The rows that TRL gets have a prompt only, by whose text they are named."""
    data = HIDDEN[how]()
    trained(build(data, max_steps=2), policy)
    texts = {prompt_hash(row["prompt"]) for row in (data[at] for at in range(12))}
    assert set(policy.state_dict()["ids"]) <= texts


UNNAMED = {
    "floats": lambda: rows(12).map(lambda row: {"prompt_id": row["prompt_id"] + 0.5}),
    "none": lambda: rows(12).map(lambda row: {"prompt_id": row["prompt_id"] or None}),
    "two texts": lambda: rows(12).map(lambda row: {"prompt_id": row["prompt_id"] // 2}),
}


@pytest.mark.parametrize("ids", [*UNNAMED, "unused"])
def test_uniform_trains_as_trl_where_a_column_names_no_prompts(build, ledger, caplog, ids):
    data = UNNAMED.get(ids, rows)
    more = {"remove_unused_columns": ids == "unused", "max_steps": 2}
    (alone := build(data(), **more)).train()
    attached = trained(build(data(), **more), ba.uniform()).trainer
    assert same_weights(weights(alone), weights(attached))
    assert caplog.text.count("nothing tells the prompts apart: TRL trains as without it") == 1
    for options in ({"policy": ba.adaptive()}, {"policy": ba.uniform(), "ledger": ledger}):
        with pytest.raises(ba.BudgetallocError, match="prompt_id"):
            AdaptiveGRPOCallback(build(data(), **more), **options)


def renamed(count=12):
    """The ids of `rows`, with other texts."""
    return rows(count).map(lambda row: {"prompt": "9" + row["prompt"]})


def test_beliefs_are_not_passed_to_a_prompt_with_the_same_id_and_another_text(build, caplog):
    policy = ba.adaptive()
    trained(build(rows(12), max_steps=2), policy)
    again = trained(build(rows(20), max_steps=2), policy).policy  # the same texts, and more prompts
    assert again.estimator.step == 4
    trainer = build(renamed(), max_steps=2)
    seen = Watched(trainer)
    with pytest.raises(ba.InputError, match="of the train dataset names another prompt than in the dataset from which"):
        trained(trainer, policy)
    assert not seen.prompts
    assert policy.estimator.step == 4

    every = trained(build(rows(12), max_steps=2), ba.uniform())
    every.trainer.train_dataset = renamed()
    every.trainer.train()
    assert every.policy.estimator.step == 2  # TRL trained, and uniform() did not observe it
    assert "which decides nothing. prompt_id=" in caplog.text


@pytest.mark.parametrize("allow", [False, True])
def test_a_checkpoint_is_not_resumed_with_other_texts_for_its_ids(build, allow):
    trained(build(rows(12), max_steps=2, **SAVES), ba.adaptive())
    trainer = build(renamed(), max_steps=4)
    seen = Watched(trainer)
    with pytest.raises(ba.InputError, match=r"from which .*budgetalloc_state.npz learned"):
        trained(trainer, ba.adaptive(), resume=2, allow_dataset_change=allow)
    assert not seen.prompts
    resumed = trained(build(rows(12), max_steps=4), ba.adaptive(), resume=2)
    assert resumed.policy.estimator.step == 4


def test_what_changed_between_two_trainings_is_read_or_refused(build, ledger):
    batch = trained(build(rows(12), max_steps=1), ba.knapsack(), candidates=1, ledger=ledger)
    batch.trainer.train_dataset = rows(30).select(range(12, 30))
    batch.trainer.train()
    assert batch.session.pool_size == 18
    assert ba.Ledger.read(ledger).texts.keys() & set(range(12, 30))
    batch.trainer.train_dataset = rows(3)
    with pytest.raises(ba.InputError, match="has 3 rows and a generation batch takes 4 prompts"):
        batch.trainer.train()


class Late(TrainerCallback):
    """Adds a callback when something happens in a training."""

    def __init__(self, when, callback):
        self.when, self.callback = when, callback

    def on_train_begin(self, *_, **__):
        self.when == "begin" and self.callback.trainer.add_callback(self.callback)

    def on_step_begin(self, *_, **__):
        self.when == "step" and self.callback.trainer.add_callback(self.callback)


@pytest.mark.parametrize("when", ["begin", "step"])
def test_a_callback_added_to_a_training_that_has_begun_is_refused(build, when):
    trainer = build(max_steps=2)
    trainer.add_callback(Late(when, AdaptiveGRPOCallback(trainer)))
    with pytest.raises(ba.InputError, match=r"was added after trainer\.train"):
        trainer.train()


def test_a_callback_of_a_trainer_is_refused_by_another(build):
    first, second = build(max_steps=1), build(max_steps=1)
    callback = trained(first, ba.adaptive())
    second.add_callback(callback)
    seen = Watched(second)
    with pytest.raises(ba.InputError, match="was made for another trainer"):
        second.train()
    assert not seen.prompts


@pytest.mark.parametrize(
    ("more", "policy", "options"),
    [
        ({"dataset": rows(1).select([0] * 8)}, ba.adaptive, {}),
        ({"num_generations": 16}, ba.knapsack, {"candidates": 1}),
    ],
)
def test_a_pool_that_leaves_nothing_to_decide_is_said(build, caplog, more, policy, options):
    trained(build(max_steps=1, **more), policy(), **options)
    assert caplog.text.count("one prompt to choose among, so the policy has nothing to decide") == 1
    trained(build(max_steps=1, **more), ba.uniform())
    assert caplog.text.count("nothing to decide") == 1


def ranks(completions, **_):
    """The rank of each completion among four adjacent ones."""
    return np.argsort(np.argsort(np.array(completions).reshape(-1, 4), axis=1), axis=1).ravel().tolist()


def centred(completions, **_):
    codes = np.array([sum(map(ord, text)) for text in completions], dtype=float).reshape(-1, 4)
    return (codes - codes.mean(axis=1, keepdims=True)).ravel()


@pytest.mark.parametrize(("reward", "said"), [(ranks, 1), (centred, 1), (low_digit, 0)])
def test_rewards_by_blocks_of_rows_are_said(build, caplog, reward, said):
    if said:
        with pytest.raises(ba.UnsupportedError, match="of num_generations=4 adjacent rows"):
            trained(build(reward=reward, max_steps=3), ba.adaptive())

    def hidden(completions, **_):  # its source says nothing
        return eval("function(completions)", {"function": reward, "completions": completions})  # noqa: S307

    trained(build(reward=hidden, max_steps=3), ba.adaptive())
    assert caplog.text.count("have the same sum in each 4 adjacent rows") == said
    trained(build(reward=hidden, max_steps=3), ba.uniform())  # blocks are groups
    assert caplog.text.count("adjacent rows") == said


def rollouts_by_blocks(prompts, trainer):
    ids = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts[::4] for _ in range(4)]
    return {"prompt_ids": ids, "completion_ids": [[4, 12]] * len(ids), "logprobs": [[-1.0, -1.0]] * len(ids)}


def test_a_rollout_func_hears_that_rows_are_no_blocks(build, caplog):
    trainer = build(max_steps=1)
    trainer.rollout_func = rollouts_by_blocks
    trained(trainer, ba.adaptive())
    assert caplog.text.count("rollout_func gets a prompt for each rollout") == 1


def by_answer(completions, answer, **_):
    return [float(x) for x in answer]


def test_metrics_ledger_and_completions_have_the_groups_of_trl(build, ledger, tmp_path):
    """Two rows of each prompt, of which one always fails: TRL has groups without variance."""
    pairs = Dataset.from_list([{"prompt": f"{n}{n}0=", "answer": a} for n in range(4) for a in (0, 1)])
    quiet = {"log_completions": True, "num_completions_to_print": 0, "shuffle_dataset": False}
    for reward, wasted in ((by_answer, 1.0), (low_digit, None)):
        more = {"output_dir": str(tmp_path / reward.__name__), "per_device_train_batch_size": 32, **quiet}
        trainer = build(pairs, reward, **more)
        trained(trainer, ba.uniform(), ledger=tmp_path / f"{reward.__name__}.jsonl")
        equal = logged(trainer, "frac_reward_zero_std")
        assert logged(trainer, "budgetalloc/frac_mixed") == pytest.approx([1 - share for share in equal])
        assert set(logged(trainer, "budgetalloc/prompts")) == {4.0}
        assert wasted is None or set(equal) == {wasted}
        assert wasted is not None or 0 < np.mean(equal) < 1
        for log in (f"{reward.__name__}.jsonl", f"{reward.__name__}/completions"):
            run = report(tmp_path / log, policies=())
            assert (run.groups, run.prompts) == (32, 4)
            assert run.share_wasted == pytest.approx(np.mean(equal))
            assert run.by_prompt["visits"].tolist() == [4] * 4


def test_evaluation_sets_stay_apart(build, ledger):
    sets = {"easy": rows(4), "hard set": rows(8)}
    more = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4, "max_steps": 2}
    trainer = build(eval_dataset=sets, **more)
    trained(trainer, ba.adaptive(), ledger=ledger)
    rewards = logged(trainer, "eval_reward")
    assert read_progress(ledger).held_out == {
        "easy": [(1, rewards[0]), (2, rewards[2])],
        "hard set": [(1, rewards[1]), (2, rewards[3])],
    }


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
