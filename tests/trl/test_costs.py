"""Costs on TRL's real trainer: lengths are learned, and the rows are spent where they buy most."""

import numpy as np
import pytest
from conftest import rows

import budgetalloc as ba
from budgetalloc import InputError, UnsupportedError
from budgetalloc.beliefs.state import load_state
from budgetalloc.policies.costs.prices import Seconds
from budgetalloc.training.costs import Clock
from budgetalloc.training.saved import STATE_FILE
from budgetalloc.trl import AdaptiveGRPOCallback

pytestmark = pytest.mark.slow
LONG, SHORT = 13, 1  # tokens of the answers of odd and of even prompts


def coin(completions, **_):
    """Half of all rollouts pass, whatever their length."""
    coin.calls = getattr(coin, "calls", 0) + 1
    return [float((at + coin.calls) % 2) for at in range(len(completions))]


class Run:
    """A training whose answers have a length that depends on the prompt, and that records the prompts of each step."""

    def __init__(self, build, resume=None, policy=None, fake_clock=False, **given):
        coin.calls, self.elapsed, self.steps = 0, 0.0, []
        settings = {"max_steps": 12, "max_completion_length": 16, "save_strategy": "steps", "save_steps": 6}
        self.trainer = build(rows(24), reward=coin, **settings)
        self.trainer.rollout_func = self.answer
        self.callback = AdaptiveGRPOCallback(self.trainer, policy, cap=4, **given)
        if fake_clock:
            self.callback.costs.clock = Clock(lambda: self.elapsed)
        self.trainer.add_callback(self.callback)
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


def test_tokens_buy_more_short_answers_and_lengths_are_learned(build):
    plain, costed = Run(build), Run(build, cost="tokens")
    assert [len(ids) for ids in costed.steps] == [16] * 12
    assert costed.share_of_long < plain.share_of_long - 0.1
    prompt_P, answer_P = costed.callback.costs.lengths.expected(range(24), np.full(24, 0.5))
    assert (prompt_P == 4).all()
    seen = np.unique(costed.steps)
    assert answer_P[seen] == pytest.approx([LONG if n % 2 else SHORT for n in seen], abs=4)
    last = costed.logs[-1]
    long = sum(n % 2 for n in costed.steps[-1])
    real = (4 * len(set(costed.steps[-1])) + LONG * long + SHORT * (16 - long)) / 16
    assert last["budgetalloc/cost/rollout"] == pytest.approx(real)
    assert last["budgetalloc/cost/expected"] == pytest.approx(real, rel=0.25)
    assert not any("cost" in key for key in plain.logs[-1])


def test_without_costs_the_argument_changes_nothing(build):
    assert Run(build).steps == Run(build, cost=None).steps


def test_seconds_are_fitted_to_the_steps(build):
    run = Run(build, cost="seconds", fake_clock=True)
    prices = run.callback.costs.price
    assert isinstance(prices, Seconds)
    assert prices.prices[-1] == pytest.approx(0.25, rel=0.2)  # of a token of an answer
    assert run.share_of_long < 0.5


def test_a_function_prices_prompts_and_answers(build):
    run = Run(build, cost=lambda prompt, answer: (50 * prompt, answer))  # a prompt of 4 tokens costs 200
    counts = [np.unique(ids, return_counts=True)[1] for ids in run.steps[4:]]
    assert min(count.min() for count in counts) >= 2  # groups: 4 of short answers, 2 or 4 of long ones
    knapsack = Run(build, policy=ba.knapsack(), candidates="all", cost=lambda prompt, answer: (0 * prompt, answer))
    assert knapsack.share_of_long < 0.5


def test_a_resumed_run_decides_as_one_that_never_stopped(build):
    whole = Run(build, cost="tokens")
    folder = f"{whole.trainer.args.output_dir}/checkpoint-6"
    state, _ = load_state(f"{folder}/{STATE_FILE}")
    assert set(state["lengths"]["ids"]) == set(state["ids"])
    again = Run(build, resume=folder, cost="tokens")
    assert [len(ids) for ids in again.steps] == [16] * 6
    assert again.callback.costs.lengths.expected(range(24), np.full(24, 0.5))[1][again.steps[0]] is not None
    assert again.steps[0] == whole.steps[6]


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"cost": "time"}, InputError, "cost='time': use 'tokens', 'seconds', or a function"),
        ({"cost": 3}, InputError, "cost=3: use"),
        ({"cost": "tokens", "policy": ba.uniform()}, UnsupportedError, "does not weigh costs. Use ba.adaptive"),
    ],
)
def test_what_cannot_be_weighed_is_refused(build, given, error, text):
    trainer = build(rows())
    with pytest.raises(error, match=text):
        AdaptiveGRPOCallback(trainer, given.pop("policy", None), **given)


def test_a_function_that_returns_nonsense_is_named(build):
    with pytest.raises(InputError, match="return two arrays"):
        Run(build, cost=lambda prompt, answer: prompt)
