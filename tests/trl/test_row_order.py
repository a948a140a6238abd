"""Reward functions that take blocks of rows for the completions of a prompt."""

import random
from functools import partial

import numpy as np
import pytest
import torch
from conftest import attach, low_digit, same_weights, trained, weights
from test_surface import rebuilt

import budgetalloc as ba

SIZE = 4


def value(text):
    """A number with many values, and the same for the same text."""
    return sum((at + 1) * ord(symbol) for at, symbol in enumerate(text)) / 1000


def blocks_of(items, size):
    at = 0
    while at < len(items):
        yield items[at : at + size]
        at += size


def ranked_with_ties(completions, **_):
    scores = np.reshape(low_digit(completions), (-1, SIZE))
    return [float((row < x).sum()) for row in scores for x in row]


def less_the_mean_and_long(completions, **_):
    made = []
    for start in range(0, len(completions), SIZE):
        scores = [value(text) for text in completions[start : start + SIZE]]
        made += [
            score - sum(scores) / SIZE + len(score_text) / 10
            for score, score_text in zip(scores, completions[start : start + SIZE], strict=True)
        ]
    return made


def best_of_a_block(completions, **_):
    scores = torch.tensor([value(text) for text in completions]).view(-1, SIZE)
    return (scores / scores.max(dim=1, keepdim=True).values).flatten().tolist()


def in_a_helper(completions, **_):
    return [value(text) - max(map(value, block)) for block in blocks_of(completions, SIZE) for text in block]


def by_division(completions, **_):
    best = {}
    for at, text in enumerate(completions):
        best[at // SIZE] = max(best.get(at // SIZE, 0), value(text))
    return [value(text) - best[at // SIZE] for at, text in enumerate(completions)]


class Ranker:
    __name__ = "ranker"

    def __init__(self, size):
        self.size = size

    def __call__(self, completions, **columns):
        return self.ranks(np.array([value(text) for text in completions]))

    def ranks(self, scores):
        return (scores.reshape(-1, self.size) - scores.reshape(-1, self.size).min(1, keepdims=True)).ravel().tolist()


def of_size(completions, size, **_):
    return in_a_helper(completions) if size == SIZE else low_digit(completions)


BLOCKS = [
    ranked_with_ties,
    less_the_mean_and_long,
    best_of_a_block,
    in_a_helper,
    by_division,
    Ranker(SIZE),
]
BLOCKS += [partial(of_size, size=SIZE)]


def found(caplog):
    return [text for text in caplog.messages if "other rewards in another order" in text]


@pytest.mark.parametrize("function", BLOCKS, ids=lambda each: getattr(each, "__name__", "partial"))
def test_blocks_are_recognised_in_the_first_step_and_change_nothing_else(build, caplog, function):
    trainer = build(reward=[low_digit, function], max_steps=1)
    trained(trainer)
    (text,) = found(caplog)
    assert text.startswith(f"{trainer.reward_func_names[1]} gives the rows")
    assert "budgetalloc_group" in text
    caplog.clear()
    trained(build(reward=[low_digit, function], max_steps=1), ba.uniform())  # its blocks are those of TRL
    assert not found(caplog)


def by_prompt(completions, prompts, **_):
    groups = {}
    for at in range(len(prompts)):
        groups.setdefault(prompts[at], []).append(value(completions[at]))
    return [value(text) - max(groups[name]) for name, text in zip(prompts, completions, strict=True)]


def by_row(completions, **_):
    return [value(text[: len(text) // 2 + 1]) for text in completions]


def of_the_batch(completions, **_):
    scores = np.array([value(completions[at]) for at in range(len(completions))])
    return ((scores - scores.mean()) / (scores.std() + 1e-6)).tolist()


@pytest.mark.parametrize("function", [by_prompt, by_row, of_the_batch, low_digit])
def test_rewards_that_follow_their_rows_are_not_warned_about(build, caplog, function):
    trained(build(reward=function, max_steps=2))
    assert not found(caplog)


CALLS = []


def random_in_blocks(completions, **_):
    CALLS.append(len(completions))
    return [random.random() + at % SIZE for at in range(len(completions))]


def recording_in_blocks(completions, **_):
    CALLS.extend(range(len(completions)))
    return [value(text) for block in blocks_of(completions, SIZE) for text in block]


class Judge:
    """Asks a judge in blocks, which costs."""

    __name__ = "judge"

    def __init__(self):
        self.calls = 0

    def __call__(self, completions, **_):
        self.calls += 1
        return [self.client(block) for block in blocks_of(completions, SIZE) for _ in block]

    def client(self, block):
        return value(block[0])


async def later(completions, **_):
    CALLS.append(0)
    return [value(text) for block in blocks_of(completions, SIZE) for text in block]


def one_by_one(completions, **_):
    CALLS.append(0)
    return low_digit(completions)


@pytest.mark.parametrize(
    ("function", "calls"),
    [(random_in_blocks, 2), (recording_in_blocks, 32), (later, 2), (one_by_one, 2)],
)
def test_functions_that_are_random_dear_or_keep_a_record_are_called_once_a_step(build, function, calls):
    CALLS.clear()
    trained(build(reward=function, max_steps=2))
    assert len(CALLS) == calls


def test_a_judge_that_counts_its_calls_is_called_once_a_step(build):
    judge = Judge()
    trained(build(reward=judge, max_steps=2))
    assert judge.calls == 2


def test_what_a_second_call_draws_does_not_count(build, monkeypatch):
    """Its draws are hidden from the code that is read, behind a name."""
    draw, drawn = getattr(np, "random").uniform, []  # noqa: B009

    def noisy(completions, **_):
        return [value(completions[at]) + draw() for at in range(len(completions))]

    def trained_with(again):
        if not again:
            monkeypatch.setattr("budgetalloc.trl.row_order.may_be_called_again", lambda _: False)
        np.random.seed(5)
        trainer = rebuilt(build(reward=noisy, max_steps=2))
        attach(trainer, ba.thompson())
        trainer.train()
        drawn.append(draw())
        return weights(trainer)

    assert same_weights(trained_with(True), trained_with(False))
    assert drawn[0] == drawn[1]
