"""The expected gradient of trees, by enumerating every outcome of a small policy."""

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest

from budgetalloc.trl.experimental.trees.advantages import branch_advantages
from budgetalloc.trl.experimental.trees.growth import Active, grow

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


class Enumerated:
    """An engine that draws from the tape."""

    def __init__(self, tape):
        self.tape = tape

    def start(self, prompts):
        self.rows = [[] for _ in prompts]

    def extend(self, tokens):
        before = [len(row) for row in self.rows]
        for row in self.rows:
            for _ in range(tokens):
                if END not in row:
                    row.append(self.tape.draw(CHANCE[tuple(row)]))
        return [Active(row[n:], [], 0.0) for row, n in zip(self.rows, before, strict=True)]

    def select(self, rows):
        self.rows = [list(self.rows[row]) for row in rows]


def outcomes(count, roots, points, choose):
    """The rollouts of one prompt in every outcome, with its probability."""
    given = []
    while given is not None:
        tape = Tape(given)
        ends = lambda tokens: tokens[-1] == END  # noqa: E731
        ((leaves,), _) = grow(
            Enumerated(tape), [[]], [count], [roots], points, LONGEST, ends, choose, itertools.count()
        )
        assert len(leaves) == count
        yield tape.p, leaves
        given = tape.next() or None


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


def first_ones(leaves, most):
    """Branches depend on what was written: those that wrote a 1 last."""
    return [at for at, leaf in enumerate(leaves) if leaf.tokens[-1] == 1][:most]


def all_first(leaves, most):
    return list(range(min(most, len(leaves))))


@pytest.mark.parametrize(
    ("count", "roots", "points", "choose", "evidence"),
    [
        (3, 2, [1], all_first, 0.0),
        (3, 2, [1, 2], first_ones, 0.0),
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


def test_advantages_by_leaf_would_be_biased():
    """The mean of the group, as a number for each leaf: shared tokens are compared with themselves."""
    gradient = defaultdict(lambda: np.zeros(3))
    for p, leaves in outcomes(3, 2, [1, 2], first_ones):
        mean = np.mean([reward(leaf.tokens) for leaf in leaves])
        for leaf in leaves:
            for prefix, by_logit in score(leaf.tokens):
                gradient[prefix] += p * (reward(leaf.tokens) - mean) * by_logit
    found, true = np.array([gradient[prefix] for prefix in PREFIXES]).ravel(), true_gradient().ravel()
    assert found @ true / np.linalg.norm(found) / np.linalg.norm(true) < 0.995
