"""Thoughts that are truncated at several budgets: their expected gradient by enumerating every outcome of a small
policy, and what TRL's real trainer trains on. "=" ends a thought."""

import itertools
from collections import Counter, defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import SAVES, attach, behind_the_best, logged, recorded, rows, same_weights, weights

from budgetalloc.contrib import thought_and_answer, truncated_thoughts
from budgetalloc.contrib.tree_growth import branch_advantages
from budgetalloc.contrib.truncated_thoughts import TruncatedThoughts
from budgetalloc.errors import InputError, UnsupportedError

END, STOP = 10, 12  # "=", and the end of the text
TOKENS = (1, END, STOP)


# --- the expected gradient


class Tape:
    """Answers draws from a list, and then with 0; `next` is the list of the next outcome, in lexicographic order."""

    def __init__(self, given):
        self.given, self.taken, self.sizes, self.p = given, [], [], 1.0

    def draw(self, chances):
        at = self.given[len(self.taken)] if len(self.taken) < len(self.given) else 0
        self.taken.append(at)
        self.sizes.append(len(chances))
        self.p *= chances[at]
        return at

    def next(self):
        while self.taken and self.taken[-1] + 1 == self.sizes[len(self.taken) - 1]:
            self.taken.pop()
        return self.taken and [*self.taken[:-1], self.taken[-1] + 1]

    def extended(self, trainer, rows, limits_R):
        made = []
        for row, limit in zip(rows, limits_R, strict=True):
            new = list(row)
            for _ in range(limit):
                if new[-1:] != [STOP]:
                    new.append(TOKENS[self.draw(chance(new))])
            made.append((new[len(row) :], []))
        return made


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
    ((row, _),) = tape.extended(None, [[]], [budget])
    own = [1] * len(row)
    if row[-1] != STOP and END not in row:
        row, own = [*row, END], [*own, 0]
    if row[-1] != STOP:
        ((new, _),) = tape.extended(None, [row], [max(0, row.index(END) + 2 - len(row))])
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

    def outcomes(arrange):
        given = []
        while given is not None:
            tape = Tape(given)
            for module in (truncated_thoughts, thought_and_answer):
                monkeypatch.setattr(module, "extended", tape.extended)
            yield tape, arrange()
            given = tape.next() or None

    found = defaultdict(lambda: np.zeros(3))
    draws = list(itertools.product((1 / 6, 3 / 6, 5 / 6) if shares else (0.5,), repeat=roots))
    for drawn in draws:
        monkeypatch.setattr(np.random, "default_rng", lambda _, drawn=drawn: Fixed(drawn))
        total = 0.0
        for tape, ((leaves,), tokens) in outcomes(lambda: thoughts.grown(trainer, [[]], [count], [roots])):
            branch_RT = np.full((count, 4), -1)
            for row, leaf in zip(branch_RT, leaves, strict=True):
                row[: len(leaf.branch_T)] = leaf.branch_T
            value_R = np.array([reward(leaf.tokens) - mean for leaf in leaves])
            weight_R = np.array([leaf.weight for leaf in leaves])
            advantages_RT = branch_advantages(branch_RT, weight_R, np.zeros(count, int), value_R, evidence)
            for leaf, advantages in zip(leaves, advantages_RT, strict=True):
                add_scores(found, leaf.tokens, leaf.own_T, tape.p * advantages)
            distinct = {(b, at) for leaf in leaves for at, b in enumerate(leaf.branch_T) if leaf.own_T[at]}
            assert tokens == len(distinct)
            total += tape.p
        assert total == pytest.approx(1)

    wanted = defaultdict(lambda: np.zeros(3))
    for budget, share in zip(budgets, np.array(shares or (1, 1)) / sum(shares or (1, 1)), strict=True):
        given = []
        while given is not None:
            tape = Tape(given)
            row, own = alone(tape, budget)
            add_scores(wanted, row, own, [count * share * tape.p * reward(row)] * len(row))
            given = tape.next() or None
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


@pytest.mark.parametrize("policy", ["uniform", "thompson"])
def test_the_loss_of_the_trainer_has_the_gradient_of_each_part_of_a_thought_once(build, policy):
    thoughts = TruncatedThoughts([2, 4], 3, end="=", roots=0.5, seed=3)
    trainer, callback = build_with(build, thoughts, policy, loss_type="dr_grpo", max_steps=1)
    batches = recorded(trainer)
    trainer.train()
    (batch,) = batches
    branch_RT = thoughts.branches(batch["completion_ids"].size(1))["branch_ids"].numpy()
    own_RT = (batch["tool_mask"] * batch["completion_mask"]).numpy()
    paths = [list(dict.fromkeys(row[row >= 0].tolist())) for row in branch_RT]
    weights_R, group_R = np.array([leaf.weight for leaf in thoughts._leaves]), callback.batch.group_R

    def value(branch):
        leaves = [row for row, path in enumerate(paths) if branch in path]
        return np.average(callback.batch.rewards_R[leaves], weights=weights_R[leaves])

    def others(row, depth):
        near = [p for p, g in zip(paths, group_R, strict=True) if g == group_R[row] and p[:depth] == paths[row][:depth]]
        return {p[depth] for p in near if len(p) > depth} - {paths[row][depth]}

    inputs = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    logps, _, _ = trainer._get_per_token_logps_and_entropies(trainer.model, inputs, mask, branch_RT.shape[1])
    total, compared = torch.zeros(()), 0
    for branch in {branch for path in paths for branch in path}:
        leaves = [row for row, path in enumerate(paths) if branch in path]
        depth = paths[leaves[0]].index(branch)
        means = [[value(x) for x in others(leaves[0], at)] for at in range(depth + 1)]
        if baselines := [np.mean(each) for each in means if each]:
            advantage = (value(branch) - np.mean(baselines)) * weights_R[leaves].sum()
            written = torch.as_tensor((branch_RT[leaves[0]] == branch) & (own_RT[leaves[0]] > 0))
            total = total + advantage * logps[leaves[0], written].sum()
            compared += 1
    assert compared > 16
    parameters = list(trainer.model.parameters())
    wanted = torch.autograd.grad(-total / (16 * 16), parameters)
    found = torch.autograd.grad(trainer._compute_loss(trainer.model, batch), parameters)
    assert max(each.abs().max() for each in wanted) > 1e-3
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-3)


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


def test_without_a_callback_it_is_refused(build):
    trainer, _ = build_with(build, TruncatedThoughts([2, 4], 3, end="="))
    with pytest.raises(UnsupportedError, match=r"TruncatedThoughts computes .* needs an AdaptiveGRPOCallback"):
        trainer.train()


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
