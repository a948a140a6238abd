"""Costs on TRL's real trainer: lengths are learned, and rollouts go where a token buys most."""

import numpy as np
import pytest
from conftest import attach, rows
from transformers import TrainerCallback

import budgetalloc as ba
from budgetalloc import InputError
from budgetalloc.contrib.costs import Costs
from budgetalloc.contrib.prices import Seconds
from budgetalloc.training.clock import Clock

pytestmark = pytest.mark.slow
LONG, SHORT = 13, 1  # tokens of the answers of odd and of even prompts


def coin(completions, **_):
    """Half of all rollouts pass, whatever their length."""
    coin.calls = getattr(coin, "calls", 0) + 1
    return [float((at + coin.calls) % 2) for at in range(len(completions))]


class Run:
    """A training whose answer lengths depend on the prompt. It records the prompts of each step.

    Args:
        build: The fixture.
        resume: A checkpoint.
        policy: The policy.
        fake_clock: Measure seconds by `elapsed`. A generation takes 0.5 s, and 0.25 s per token.
        before: Functions of the run that make callbacks. These are added before budgetalloc's.
        config: More settings of the trainer.
        **given: Arguments of the callback.
    """

    def __init__(self, build, resume=None, policy=None, fake_clock=False, before=(), config=None, **given):
        coin.calls, self.elapsed, self.steps = 0, 0.0, []
        settings = {"max_steps": 12, "max_completion_length": 16, "save_strategy": "steps", "save_steps": 6}
        self.trainer = build(rows(24), reward=coin, eval_dataset=rows(4), **settings | (config or {}))
        self.trainer.rollout_func = self.answer
        for make in before:
            self.trainer.add_callback(make(self))
        self.callback = attach(self.trainer, policy, cap=4, **given)
        if fake_clock:
            self.callback.session.part(Costs).clock = Clock(lambda: self.elapsed)
        self.trainer.train(resume_from_checkpoint=resume)
        self.logs = [entry for entry in self.trainer.state.log_history if "loss" in entry]

    def answer(self, prompts, trainer):
        ids = [int(text[:3]) for text in prompts]
        self.steps.append(ids)
        completions = [[n % 10] * ((LONG if n % 2 else SHORT) - 1) + [12] for n in ids]
        self.elapsed += 0.5 + 0.25 * sum(map(len, completions))
        return {
            "prompt_ids": [trainer.processing_class(text)["input_ids"] for text in prompts],
            "completion_ids": completions,
            "logprobs": [[0.0] * len(each) for each in completions],
        }

    @property
    def share_of_long(self):
        """Of the rollouts after the first steps."""
        return float(np.mean(np.array(self.steps[4:]) % 2))


def test_short_answers_get_more_rollouts_and_lengths_are_learned(build):
    plain, costed = Run(build), Run(build, cost="tokens")
    assert [len(ids) for ids in costed.steps] == [16] * 12
    assert costed.share_of_long < plain.share_of_long - 0.1
    prompt_P, answer_P = costed.callback.session.part(Costs).lengths.expected(range(24), np.full(24, 0.5))
    assert (prompt_P == 4).all()
    seen = np.unique(costed.steps)
    assert answer_P[seen] == pytest.approx([LONG if n % 2 else SHORT for n in seen], abs=4)
    last = costed.logs[-1]
    long = sum(n % 2 for n in costed.steps[-1])
    real = (4 * len(set(costed.steps[-1])) + LONG * long + SHORT * (16 - long)) / 16
    assert last["budgetalloc/cost/rollout"] == pytest.approx(real)
    assert last["budgetalloc/cost/expected"] == pytest.approx(real, rel=0.25)
    assert not any("cost" in key for key in plain.logs[-1])


def test_seconds_are_fitted_to_the_steps(build):
    run = Run(build, cost="seconds", fake_clock=True)
    prices = run.callback.session.part(Costs).price
    assert isinstance(prices, Seconds)
    assert prices.prices[-1] == pytest.approx(0.25, rel=0.2)  # of a token of an answer
    assert run.share_of_long < 0.5


class Sleeper(TrainerCallback):
    """Takes two minutes of the run's fake clock in every event, and evaluates in some."""

    def __init__(self, run):
        self.run, self.events = run, set()

    def sleep(self, event):
        self.events.add(event)
        self.run.elapsed += 120.0

    def on_step_end(self, args, state, control, **_):
        self.sleep("on_step_end")
        if state.global_step % 5 == 0:
            self.run.trainer.evaluate()


def sleeping(event):
    return lambda self, *_, **__: self.sleep(event)


for name in ("begin", "end"):
    for part in ("train", "epoch", "step", "substep"):
        if (event := f"on_{part}_{name}") not in ("on_step_end", "on_substep_begin"):
            setattr(Sleeper, event, sleeping(event))
for event in ("on_pre_optimizer_step", "on_optimizer_step", "on_evaluate", "on_log", "on_save", "on_prediction_step"):
    setattr(Sleeper, event, sleeping(event))


class Late(TrainerCallback):
    """A callback that is added when training has begun, and comes after all others."""

    def __init__(self, run):
        self.run = run

    def on_train_begin(self, *_, **__):
        self.run.trainer.add_callback(Sleeper(self.run))


def test_seconds_are_those_of_the_trainers_own_steps(build):
    """Other callbacks, in any order, evaluations, logging and checkpoints do not count."""
    config = {
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "eval_strategy": "steps",
        "eval_steps": 4,
        "per_device_eval_batch_size": 4,
        "max_steps": 10,
        "save_steps": 4,
        "num_train_epochs": 9,
    }
    given = {"cost": "seconds", "fake_clock": True, "config": config}
    quiet, busy = Run(build, **given), Run(build, **given, before=[Sleeper, Late])
    sleeper = next(x for x in busy.trainer.callback_handler.callbacks if isinstance(x, Sleeper))
    within = {"on_step_begin", "on_step_end", "on_pre_optimizer_step", "on_optimizer_step", "on_log", "on_save"}
    assert within | {"on_evaluate", "on_prediction_step", "on_substep_end"} <= sleeper.events
    assert busy.callback.session.part(Costs).price.steps == pytest.approx(
        quiet.callback.session.part(Costs).price.steps, rel=1e-6
    )
    assert "call_event" not in vars(busy.trainer.callback_handler)


def test_several_optimizer_steps_of_one_generation_are_one_measurement(build):
    config = {"num_iterations": 2, "steps_per_generation": 2, "per_device_train_batch_size": 8, "max_steps": 24}
    run = Run(build, cost="seconds", fake_clock=True, before=[Sleeper], config=config)
    price = run.callback.session.part(Costs).price
    assert len(price.steps) == 4  # of six generations: the first is left out, and the last is not finished
    assert price.steps[:, 4] == pytest.approx(0.5 + 0.25 * price.steps[:, 3])


def test_a_function_prices_prompts_and_answers(build):
    run = Run(build, cost=lambda prompt, answer: (50 * prompt, answer))  # a prompt of 4 tokens costs 200
    counts = [np.unique(ids, return_counts=True)[1] for ids in run.steps[4:]]
    assert min(count.min() for count in counts) >= 2  # groups: 4 of short answers, 2 or 4 of long ones
    knapsack = Run(build, policy=ba.knapsack(), candidates="all", cost=lambda prompt, answer: (0 * prompt, answer))
    assert knapsack.share_of_long < 0.5


def test_a_function_that_returns_nonsense_is_named(build):
    with pytest.raises(InputError, match="return two arrays"):
        Run(build, cost=lambda prompt, answer: prompt)
