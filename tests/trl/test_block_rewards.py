"""Reward functions that compare blocks of rows are recognised by their source, and others are not."""

import functools
import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback
from budgetalloc.trl.block_rewards import block_in

SIZE, NAMED = 4, 4
ARGS = SimpleNamespace(num_generations=4, group=4, other=5)


def ranks(completions, **_):
    scores = [float(len(x)) for x in completions]
    found = []
    for start in range(0, len(scores), 4):
        block = scores[start : start + 4]
        found += [sorted(block).index(x) / 3 for x in block]
    return found


def minus_the_mean(completions, **_):
    scores = np.array([float(len(x)) for x in completions]).reshape(-1, SIZE)
    return (scores - scores.mean(axis=1, keepdims=True)).ravel().tolist()


def best_of_a_block(completions, num_generations=4, **_):
    scores = torch.tensor([float(len(x)) for x in completions])
    best = scores.view(-1, num_generations).max(dim=1).values.repeat_interleave(num_generations)
    return (scores == best).float().tolist()


def by_integer_division(completions, **_):
    of_block = {}
    for at, text in enumerate(completions):
        of_block.setdefault(at // ARGS.group, []).append(len(text))
    return [float(len(text) == max(of_block[at // ARGS.group])) for at, text in enumerate(completions)]


def by_number_of_prompts(completions, **_):
    prompts, size = len(completions) // 4, 4
    return [float(x) for k in range(prompts) for x in np.argsort(completions[k * size : (k + 1) * size])]


def duplicates(completions, **_):
    return [
        1.0 / chunk.count(x)
        for chunk in itertools.zip_longest(*[iter(completions)] * ARGS.num_generations)
        for x in chunk
    ]


def in_chunks(completions, **_):
    scores = torch.tensor([float(len(x)) for x in completions])
    return torch.cat([x - x.mean() for x in scores.split(4)]).tolist()


def spread(scores, n):
    return (np.reshape(scores, (-1, n)) - np.reshape(scores, (-1, n)).min(axis=1, keepdims=True)).ravel()


def through_a_helper(completions, **_):
    return spread([len(x) for x in completions], 4).tolist()


class Ranker:
    def __init__(self, size):
        self.size = size

    def __call__(self, completions, **_):
        return [
            float(x) for at in range(0, len(completions), self.size) for x in np.argsort(completions[at:][: self.size])
        ]

    def method(self, completions, **_):
        return np.array([len(x) for x in completions]).reshape(-1, self.size).argsort(axis=1).ravel().tolist()


def sized(completions, n, **_):
    return np.array([len(x) for x in completions]).reshape(-1, n).argsort(axis=1).ravel().tolist()


def closure(n):
    def reward(completions, **_):
        return np.array([len(x) for x in completions]).reshape((-1, n)).argsort(axis=1).ravel().tolist()

    return reward


async def awaited(completions, **_):
    return [float(x == max(completions[at - at % 4 :][:4])) for at, x in enumerate(completions)]


def pairs(completions, **_):
    both = zip(completions[::2], completions[1::2], strict=True)
    return [float(x) for a, b in both for x in (len(a) > len(b), len(b) > len(a))]


def zipped(completions, **_):
    return [float(x == max(block)) for block in zip(*[iter(completions)] * 2, strict=True) for x in block]


def by_unique_prompts(prompts, completions, **_):
    each = len(completions) // len(set(prompts))
    return np.array([float(len(x)) for x in completions]).reshape(len(set(prompts)), each).argsort().ravel().tolist()


BLOCKS = [
    by_unique_prompts,
    ranks,
    minus_the_mean,
    best_of_a_block,
    by_integer_division,
    by_number_of_prompts,
    duplicates,
    in_chunks,
]
BLOCKS += [through_a_helper, Ranker(4), Ranker(4).method, functools.partial(sized, n=4), closure(4), awaited]


@pytest.mark.parametrize("function", BLOCKS)
def test_functions_that_divide_their_rows_into_blocks(function):
    assert block_in(function, 4)


@pytest.mark.parametrize("function", [pairs, zipped])
def test_functions_that_compare_pairs(function):
    assert block_in(function, 2)


def first_four(completions, **_):
    return [float(text[:4] == "1234") + 4 * (len(text) > 4) for text in completions]


def windows(completions, **_):
    """Of characters: of n characters each."""
    return [float(any(text[at : at + 4] == "abcd" for at in range(len(text)))) for text in completions]


def words(completions, **_):
    return [float(len(text.split(" ", 4)) == 4 and len(text) % 4 == 0) for text in completions]


def last(completions, answer, **_):
    return [float(re.sub(r"\s", "", text)[-4:] == right) for text, right in zip(completions, answer, strict=True)]


def odd(completions, **_):
    return [0.25 * sum(int(x) % 4 == 0 for x in text if x.isdigit()) for text in completions]


def grouped(prompts, completions, budgetalloc_group=None, **_):
    groups = budgetalloc_group or [at // 4 for at, _ in enumerate(completions)]
    return [float(groups.count(group)) for group in groups]


def ranked_in_all(completions, **_):
    return [sorted(completions).index(x) / 4 for x in completions]


def tries(completions, **_):
    return [float(any(text.endswith(str(k)) for k in range(4))) for text in completions]


def of_an_epoch(completions, **_):
    return [float(k) for k in np.linspace(0, 1, len(completions))]


ALONE = [first_four, windows, words, last, odd, grouped, ranked_in_all, tries, of_an_epoch, len]
ALONE += [functools.partial(sized, n=5), closure(5), Ranker(5), lambda completions, **_: [0.0] * len(completions)]


@pytest.mark.parametrize("function", ALONE)
def test_functions_that_do_not(function):
    assert block_in(function, 4) is None


def test_none_under_groups_of_one_and_where_the_user_says_so():
    assert block_in(ranks, 1) is None
    said = functools.partial(ranks)
    said.by_row = True
    assert block_in(said, 4) is None


def test_the_trainer_is_refused_under_policies_that_choose_rows_only(build):
    def best(completions, **_):
        scores = np.array([float(x[:1].isdigit()) for x in completions]).reshape(-1, 4)
        return (scores + scores.max(axis=1, keepdims=True)).ravel().tolist()

    with pytest.raises(ba.UnsupportedError, match=r"'best'.*reshape\(-1, 4\).*budgetalloc_group.*best.by_row = True"):
        AdaptiveGRPOCallback(build(reward=best, num_generations=4), ba.adaptive())
    AdaptiveGRPOCallback(build(reward=best, num_generations=4), ba.uniform())
    best.by_row = True
    AdaptiveGRPOCallback(build(reward=best, num_generations=4), ba.adaptive())
