"""Thoughts that are truncated at several budgets: their expected gradient by enumerating every outcome of a small
policy, and what TRL's real trainer trains on. "=" ends a thought."""

import itertools
from collections import Counter, defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import SAVES, attach, behind_the_best, logged, recorded, rows, same_weights, weights
from every_outcome import every_outcome

from budgetalloc.contrib import thought_and_answer, truncated_thoughts
from budgetalloc.contrib.tree_growth import branch_advantages
from budgetalloc.contrib.truncated_thoughts import TruncatedThoughts
from budgetalloc.errors import InputError

END, STOP = 10, 12  # "=", and the end of the text
TOKENS = (1, END, STOP)


# --- the expected gradient


def drawing(tape):
    """Generates from the tape, as `generation.extended` does."""

    def extended(trainer, rows, limits_R):
        made = []
        for row, limit in zip(rows, limits_R, strict=True):
            new = list(row)
            for _ in range(limit):
                if new[-1:] != [STOP]:
                    new.append(TOKENS[tape.draw(chance(new))])
            made.append((new[len(row) :], []))
        return made

    return extended


def chance(prefix):
    """The probabilities of `TOKENS` after these."""
    return np.random.Generator(np.random.PCG64([len(prefix), *prefix])).dirichlet([2, 2, 2])


def reward(tokens):
    return (3 * tokens[0] + 5 * sum(tokens) + len(tokens) ** 2) % 7


def add_scores(gradient, tokens, own, factor_T):
    """Adds the gradient of the tokens' log-probabilities by the logits of their prefixes."""
    for at, token in enumerate(tokens):
        if own[at]:
            prefix = tokens[:at]
            gradient[tuple(prefix)] += factor_T[at] * (np.eye(3)[TOKENS.index(token)] - chance(prefix))


def alone(tape, budget):
    """A thought with this budget and its answer of one token, and which tokens the model wrote."""
    ((row, _),) = drawing(tape)(None, [[]], [budget])
    own = [1] * len(row)
    if row[-1] != STOP and END not in row:
        row, own = [*row, END], [*own, 0]
    if row[-1] != STOP:
        ((new, _),) = drawing(tape)(None, [row], [max(0, row.index(END) + 2 - len(row))])
        row, own = row + new, own + [1] * len(new)
    most = row.index(END) + 2 if END in row else len(row)
    return row[:most], own[:most]


class Fixed:
    """Draws of budgets, one after the other."""

    def __init__(self, values):
        self.random = iter(values).__next__


@pytest.mark.parametrize(
    ("count", "roots", "shares", "evidence"),
    [(4, 2, None, 0.0), (2, 1, None, 3.0), (3, 2, (1, 2), 0.0), (2, 1, (1, 2), 2.0), (2, 1, (0, 1), 1.0)],
)
def test_the_expected_gradient_is_that_of_the_expected_reward(tokenizer, monkeypatch, count, roots, shares, evidence):
    """`count` times that of the mean over budgets, whether the draws of budgets are even or not."""
    trainer = SimpleNamespace(
        _tokenizer=tokenizer,
        eos_token_ids=[STOP],
        max_completion_length=9,
        model=SimpleNamespace(training=True),
        state=SimpleNamespace(global_step=0),
        _metrics={"train": defaultdict(list)},
    )
    budgets = (1, 2)
    thoughts = TruncatedThoughts(budgets, 1, end="=", shares=shares, roots=roots / count)
    mean = 2.5 if evidence else 0.0  # the mean of the prompt's history

    def grown(tape):
        for module in (truncated_thoughts, thought_and_answer):
            monkeypatch.setattr(module, "extended", drawing(tape))
        return thoughts.grown(trainer, [[]], [count], [roots])

    found, wanted = (defaultdict(lambda: np.zeros(3)) for _ in range(2))
    draws = list(itertools.product((1 / 6, 3 / 6, 5 / 6) if shares else (0.5,), repeat=roots))
    for drawn in draws:
        monkeypatch.setattr(np.random, "default_rng", lambda _, drawn=drawn: Fixed(drawn))
        total = 0.0
        for p, ((leaves,), tokens) in every_outcome(grown):
            branch_RT = np.full((count, 4), -1)
            for row, leaf in zip(branch_RT, leaves, strict=True):
                row[: len(leaf.branch_T)] = leaf.branch_T
            value_R = np.array([reward(leaf.tokens) - mean for leaf in leaves])
            weight_R = np.array([leaf.weight for leaf in leaves])
            advantages_RT = branch_advantages(branch_RT, weight_R, np.zeros(count, int), value_R, evidence)
            for leaf, advantages in zip(leaves, advantages_RT, strict=True):
                add_scores(found, leaf.tokens, leaf.own_T, p * advantages)
            assert tokens == len({(b, at) for leaf in leaves for at, b in enumerate(leaf.branch_T) if leaf.own_T[at]})
            total += p
        assert total == pytest.approx(1)
    for budget, share in zip(budgets, np.array(shares or (1, 1)) / sum(shares or (1, 1)), strict=True):
        for p, (row, own) in every_outcome(lambda tape, budget=budget: alone(tape, budget)):
            add_scores(wanted, row, own, [count * share * p * reward(row)] * len(row))
    prefixes = sorted(found.keys() | wanted.keys())
    np.testing.assert_allclose(
        [found[each] for each in prefixes], [len(draws) * wanted[each] for each in prefixes], atol=1e-9
    )
    assert len(prefixes) > 3


# --- in the trainer


def ends_with_answer(completion_ids, **_):
    """1 where the text ends by itself."""
    return [float(ids[-1] == STOP) for ids in completion_ids]


def build_with(build, thoughts, policy=None, bias=None, **config):
    """A trainer whose model has these numbers added to the logits of tokens, and a policy."""
    defaults = {"reward": ends_with_answer, "max_completion_length": 16, "scale_rewards": "none"}
    trainer = build(**{**defaults, **config})
    added = torch.zeros(13)
    for token, value in (bias or {STOP: 1.0, END: 1.0}).items():
        added[token] = value
    trainer.model.lm_head.bias = torch.nn.Parameter(added)
    trainer.rollout_func = thoughts
    return trainer, policy and attach(trainer, policy)


def thought_of(tokens):
    return tokens[: tokens.index(END)] if END in tokens else tokens


@pytest.mark.parametrize("policy", ["uniform", "ar3po"])
def test_a_thought_has_an_answer_at_each_budget(build, policy):
    """The step of ar3po has several generations."""
    thoughts = TruncatedThoughts([2, 4, 8, 9], 3, end="=", roots=0.25)
    # each prompt has one thought, or two
    trainer, _ = build_with(build, thoughts, policy, bias={STOP: 0.0}, max_steps=3)
    batches = recorded(trainer)
    trainer.train()
    lengths = Counter()
    for batch in batches:
        for ids, mask, own in zip(*(batch[k] for k in ("completion_ids", "completion_mask", "tool_mask")), strict=True):
            tokens, own = ids[mask.bool()].tolist(), own[mask.bool()].tolist()
            thought, forced = thought_of(tokens), own.count(0)
            lengths[len(thought), forced] += 1
            assert own[len(thought) : len(thought) + 1] == [1 - forced] or tokens[-1] == STOP
            assert len(thought) in (2, 4, 8, 9) or not forced
            assert len(tokens) - len(thought) - 1 <= 3
            assert tokens[-1] == STOP or len(tokens) - len(thought) - 1 == 3
    assert {(2, 1), (4, 1), (8, 1)} <= lengths.keys()
    assert sum(logged(trainer, "budgetalloc/trees/share")) < 3


def test_each_answer_goes_on_from_its_truncated_thought(build):
    """At this low temperature each token of the model is the most probable one, as computed without a cache."""
    uneven = rows().map(lambda row: {"prompt": row["prompt"] * (1 + row["prompt_id"] % 3)})
    trainer, _ = build_with(
        build,
        TruncatedThoughts([2, 4], 5, end="=", roots=0.5),
        "uniform",
        bias={STOP: 0.0},
        dataset=uneven,
        temperature=1e-4,
        max_steps=2,
        learning_rate=0,
    )
    batches = recorded(trainer)
    trainer.train()
    for batch in batches:
        behind, own = behind_the_best(trainer, batch), batch["completion_mask"] * batch["tool_mask"]
        assert (behind * own).max() < 1e-2
        assert ((batch["completion_mask"] - own) * behind > 1).any()
        assert int(batch["num_items_in_batch"]) == int(own.sum())


def test_a_resumed_run_is_that_of_an_uninterrupted_one(build):
    def run(resume=None, **config):
        trainer, _ = build_with(
            build, TruncatedThoughts([2, 4], 3, end="=", shares=[1, 2]), "adaptive", max_steps=3, **config
        )
        trainer.train(resume_from_checkpoint=resume and f"{trainer.args.output_dir}/checkpoint-{resume}")
        return weights(trainer)

    assert same_weights(run(**SAVES), run(resume=2))


def test_evaluations_have_the_largest_budget(build):
    trainer, _ = build_with(
        build,
        TruncatedThoughts([2, 5], 3, end="="),
        bias={STOP: -9.0, END: -9.0},
        eval_dataset=rows(4),
        per_device_eval_batch_size=16,
    )
    assert trainer.evaluate()["eval_completions/min_length"] == 8


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"budgets": []}, "budgets"),
        ({"budgets": [4, 2]}, "budgets"),
        ({"answer": 0}, "answer=0"),
        ({"end": ""}, "end"),
        ({"roots": 0}, "roots=0"),
        ({"shares": [1]}, r"shares=\[1\]"),
        ({"shares": [0, 0]}, "shares"),
        ({"shares": [-1, 2]}, "shares=-1"),
    ],
)
def test_bad_arguments_are_named(given, named):
    with pytest.raises(InputError, match=named):
        TruncatedThoughts(**{"budgets": [2, 4], "answer": 3, **given})
