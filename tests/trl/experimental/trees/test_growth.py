"""What holds for every tree, and for its advantages."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc.policies.advantages import group_advantages
from budgetalloc.trl.experimental.trees.advantages import branch_advantages
from budgetalloc.trl.experimental.trees.growth import Active, grow

END = 9


class Drawn:
    """An engine that draws digits, of which a 9 ends a rollout."""

    def __init__(self, seed):
        self.rng, self.calls = np.random.default_rng(seed), []

    def start(self, prompts):
        self.rows = [[] for _ in prompts]

    def extend(self, tokens):
        made = []
        for row in self.rows:
            drawn = self.rng.integers(10, size=tokens).tolist()
            made.append(drawn[: drawn.index(END) + 1] if END in drawn else drawn)
            row += made[-1]
        self.calls.append(sum(map(len, made)))
        return [Active(each, [], 0.0) for each in made]

    def select(self, rows):
        self.rows = [list(self.rows[row]) for row in rows]


@st.composite
def forests(draw):
    counts_P = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    roots_P = [draw(st.integers(1, count)) for count in counts_P]
    points, rng = sorted(draw(st.sets(st.integers(1, 12), min_size=1, max_size=4))), draw(st.integers(0, 99))
    engine, choices = Drawn(rng), np.random.default_rng(rng)

    def choose(leaves, most):
        return choices.permutation(len(leaves))[: min(most, int(choices.integers(len(leaves) + 1)))].tolist()

    ends = lambda tokens: tokens[-1] == END  # noqa: E731
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
            assert END not in leaf.tokens[:-1]
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
