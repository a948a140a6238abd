"""What holds for every tree and its advantages; and their expected gradient, by enumerating every outcome of a small
policy."""

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
from every_outcome import every_outcome
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc.contrib.tree_growth import branch_advantages, grow
from budgetalloc.policies.group_advantages import group_advantages

END, LONGEST = 2, 3
RNG = np.random.default_rng(5)
PREFIXES = [p for n in range(LONGEST) for p in itertools.product((0, 1), repeat=n)]
CHANCE = {prefix: RNG.dirichlet([2, 2, 2]) for prefix in PREFIXES}  # of the tokens 0, 1 and END


def reward(tokens):
    return (3 * tokens[0] + 5 * sum(tokens) + len(tokens) ** 2) % 7


def score(tokens):
    """The gradient of each token's log-probability by the logits of its prefix: one entry a prefix and token."""
    for at, token in enumerate(tokens):
        prefix = tuple(tokens[:at])
        yield prefix, np.eye(3)[token] - CHANCE[prefix]


def drawing(tape):
    """Generates from the tape."""

    def extend(rows, tokens):
        made = []
        for row in rows:
            new = list(row)
            for _ in range(tokens):
                if END not in new:
                    new.append(tape.draw(CHANCE[tuple(new)]))
            made.append((new[len(row) :], []))
        return made

    return extend


def outcomes(count, roots, points, choose):
    """The rollouts of one prompt in every outcome, with its probability."""

    def grown(tape):
        ends = lambda tokens: tokens[-1] == END  # noqa: E731
        ((leaves,), _) = grow(drawing(tape), [[]], [count], [roots], points, LONGEST, ends, choose, itertools.count())
        assert len(leaves) == count
        return leaves

    return every_outcome(grown)


def branches_of(leaves):
    branch_RT = np.full((len(leaves), LONGEST), -1)
    for row, leaf in zip(branch_RT, leaves, strict=True):
        row[: len(leaf.branch_T)] = leaf.branch_T
    return branch_RT


def expected_gradient(outcomes, value_of, evidence=0.0):
    gradient, roots, total = defaultdict(lambda: np.zeros(3)), 0.0, 0.0
    for p, leaves in outcomes:
        values = np.array([value_of(leaf.tokens) for leaf in leaves], dtype=float)
        weights = np.array([leaf.weight for leaf in leaves])
        group_R = np.zeros(len(leaves), dtype=int)
        advantages_RT = branch_advantages(branches_of(leaves), weights, group_R, values, evidence)
        for leaf, advantages in zip(leaves, advantages_RT, strict=True):
            for (prefix, by_logit), advantage in zip(score(leaf.tokens), advantages, strict=False):
                gradient[prefix] += p * advantage * by_logit
        total, roots = total + p, roots + p * len({leaf.branch_T[0] for leaf in leaves})
    assert total == pytest.approx(1)
    return np.array([gradient[prefix] for prefix in PREFIXES]), roots


def true_gradient():
    gradient = defaultdict(lambda: np.zeros(3))
    for prefix in PREFIXES:
        for last in range(3):
            tokens = [*prefix, last]
            if last != END and len(tokens) < LONGEST:
                continue
            p = math.prod(CHANCE[tuple(tokens[:at])][token] for at, token in enumerate(tokens))
            for where, by_logit in score(tokens):
                gradient[where] += p * reward(tokens) * by_logit
    return np.array([gradient[prefix] for prefix in PREFIXES])


def all_first(leaves, most):
    return range(min(leaves, most))


def last(leaves, most):
    return range(max(0, leaves - most), leaves)


@pytest.mark.parametrize(
    ("count", "roots", "points", "choose", "evidence"),
    [
        (3, 2, [1], all_first, 0.0),
        (3, 2, [1, 2], last, 0.0),
        (3, 2, [2], all_first, 0.0),
        (2, 1, [1], all_first, 3.0),
        (2, 2, [1], all_first, 0.0),
    ],
)
def test_the_expected_gradient_is_that_of_the_expected_reward(count, roots, points, choose, evidence):
    """Up to a positive factor: `count` rollouts, and more weight if trees end early and further ones are grown."""
    mean = 2.5 if evidence else 0.0  # the mean of the prompt's history
    found, grown = expected_gradient(
        outcomes(count, roots, points, choose), lambda tokens: reward(tokens) - mean, evidence
    )
    np.testing.assert_allclose(found, true_gradient() * count * grown / roots, atol=1e-9)


STOP = 9


class Drawn:
    """Generates digits, of which a 9, `STOP`, ends a rollout."""

    def __init__(self, seed):
        self.rng, self.calls = np.random.default_rng(seed), []

    def __call__(self, rows, tokens):
        made = []
        for _ in rows:
            drawn = self.rng.integers(10, size=tokens).tolist()
            made.append(drawn[: drawn.index(STOP) + 1] if STOP in drawn else drawn)
        self.calls.append(sum(map(len, made)))
        return [(each, []) for each in made]


@st.composite
def forests(draw):
    counts_P = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    roots_P = [draw(st.integers(1, count)) for count in counts_P]
    points, rng = sorted(draw(st.sets(st.integers(1, 12), min_size=1, max_size=4))), draw(st.integers(0, 99))
    engine, choices = Drawn(rng), np.random.default_rng(rng)

    def choose(leaves, most):
        return choices.permutation(leaves)[: min(most, int(choices.integers(leaves + 1)))].tolist()

    ends = lambda tokens: tokens[-1] == STOP  # noqa: E731
    prompts = [[at] for at in range(len(counts_P))]
    leaves_P, tokens = grow(engine, prompts, counts_P, roots_P, points, 12, ends, choose, itertools.count())
    return engine, counts_P, roots_P, leaves_P, tokens


def columns(leaves_P):
    leaves = [leaf for each in leaves_P for leaf in each]
    branch_RT = np.full((len(leaves), 12), -1)
    for row, leaf in zip(branch_RT, leaves, strict=True):
        row[: len(leaf.branch_T)] = leaf.branch_T
    return branch_RT, np.array([leaf.weight for leaf in leaves]), np.array([leaf.prompt for leaf in leaves])


@given(forests())
@settings(deadline=None, max_examples=60)
def test_every_prompt_gets_its_rollouts_and_a_branch_shares_the_tokens_before_it(made):
    engine, counts_P, roots_P, leaves_P, tokens = made
    assert [len(leaves) for leaves in leaves_P] == counts_P
    assert tokens == sum(engine.calls)
    text = {}
    for leaves, count, roots in zip(leaves_P, counts_P, roots_P, strict=True):
        trees = {leaf.branch_T[0] for leaf in leaves}
        assert len(trees) >= min(roots, count)
        assert np.isclose(sum(leaf.weight for leaf in leaves), len(trees) * count / roots)
        for leaf in leaves:
            assert len(leaf.branch_T) == len(leaf.tokens) <= 12
            assert STOP not in leaf.tokens[:-1]
            for at, branch in enumerate(leaf.branch_T):
                assert text.setdefault((branch, at), leaf.tokens[: at + 1]) == leaf.tokens[: at + 1]
    assert len(text) == tokens


@given(forests(), st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_advantages_do_not_depend_on_the_order_of_rows_or_the_mean_of_rewards(made, seed):
    branch_RT, weight_R, group_R = columns(made[3])
    rng = np.random.default_rng(seed)
    value_R, order = rng.normal(size=len(group_R)), rng.permutation(len(group_R))
    value_R[rng.random(len(group_R)) < 0.1] = np.nan
    found = branch_advantages(branch_RT, weight_R, group_R, value_R)
    shuffled = branch_advantages(branch_RT[order], weight_R[order], group_R[order], value_R[order])
    np.testing.assert_allclose(shuffled, found[order], atol=1e-12)
    np.testing.assert_allclose(branch_advantages(branch_RT, weight_R, group_R, value_R + 3), found, atol=1e-12)
    assert not found[branch_RT < 0].any()
    assert not found[np.isnan(value_R)].any()


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-2, 2)), min_size=1, max_size=12))
@settings(deadline=None, max_examples=40)
def test_without_branches_the_advantage_is_the_reward_minus_the_mean_of_the_others(rollouts):
    group_R, value_R = np.array([at for at, _ in rollouts]), np.array([value for _, value in rollouts])
    found = branch_advantages(np.arange(len(rollouts))[:, None], np.ones(len(rollouts)), group_R, value_R)
    np.testing.assert_allclose(found[:, 0], group_advantages(value_R, group_R, "loo", "none"), atol=1e-12)
