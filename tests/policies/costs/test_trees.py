"""What trees cost: known answers, enumeration and simulated trees."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc.policies.costs.trees import (
    LATR_MATH,
    aepo_branch_probability,
    aepo_split,
    latr_split,
    regular_tree,
    tree_cost,
    tree_grpo,
    treepo,
)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 50)), min_size=1, max_size=30))
@settings(deadline=None, max_examples=50)
def test_a_tree_costs_what_a_walk_over_its_paths_finds(nodes):
    parents = [pick % (row + 1) - 1 for row, (pick, _) in enumerate(nodes)]
    tokens = [length for _, length in nodes]
    leaves = [row for row in range(len(nodes)) if row not in parents]
    alone = 0
    for row in leaves:
        while row >= 0:
            alone, row = alone + tokens[row], parents[row]
    cost = tree_cost(parents, tokens)
    assert (cost.leaves, cost.nodes, cost.tokens, cost.chain_tokens) == (len(leaves), len(nodes), sum(tokens), alone)
    assert 0 <= cost.share <= 1


@given(st.lists(st.integers(1, 3), min_size=1, max_size=5))
@settings(deadline=None, max_examples=30)
def test_a_regular_tree_costs_what_the_same_tree_does_node_by_node(divisions):
    parents, level = [], [-1]
    for children in divisions:
        grown = []
        for parent in level:
            grown += range(len(parents), len(parents) + children)
            parents += [parent] * children
        level = grown
    assert regular_tree(divisions, 7) == tree_cost(parents, np.full(len(parents), 7))


def test_branches_at_four_of_sixteen_steps_double_the_leaves_four_times():
    """The tree of BranchGRPO, which branches at steps 0, 3, 6 and 9."""
    cost = regular_tree([2 if step in (0, 3, 6, 9) else 1 for step in range(16)])
    assert (cost.leaves, cost.nodes) == (2**4, 3 * 2 + 3 * 4 + 3 * 8 + 7 * 16)
    assert regular_tree([1] * 5).share == 1


def test_tree_grpo_of_the_scripts_keeps_six_trajectories_for_two_thirds_of_their_tokens():
    kept, cost = tree_grpo(trees=2, expand=2, rounds=1, keep=3, tokens=900)  # exact: (1 + 2/2) / (1 + 2)
    assert (kept, cost.leaves, cost.tokens, cost.chain_tokens) == (6, 6, 3600, 5400)
    assert cost.share == pytest.approx(2 / 3)


def simulated_share(expand, rounds, depth, trees, seed):
    """Share of tokens of trees grown as Tree-GRPO grows them, every trajectory `depth` nodes long."""
    rng = np.random.default_rng(seed)
    tokens = alone = 0.0
    for _ in range(trees):
        parents, at = list(range(-1, depth - 1)), list(range(1, depth + 1))  # parent and depth of each node
        for _ in range(rounds):
            inner = [-1, *(row for row in range(len(at)) if at[row] < depth)]
            for start in rng.choice(inner, size=expand).tolist():
                parent, here = start, at[start] if start >= 0 else 0
                for below in range(here + 1, depth + 1):
                    parents.append(parent)
                    at.append(below)
                    parent = len(at) - 1
        cost = tree_cost(parents, np.ones(len(parents)))
        assert cost.leaves == 1 + expand * rounds
        tokens, alone = tokens + cost.tokens, alone + cost.chain_tokens
    return tokens / alone


def test_simulated_trees_cost_what_the_formula_says():
    exact = (1 + 2 * 21 / 40) / 3  # exact for one round of two branches and 20 nodes a chain
    assert simulated_share(2, 1, 20, 2000, seed=0) == pytest.approx(exact, abs=0.005)
    assert exact == pytest.approx(tree_grpo()[1].share, abs=0.02)
    later = simulated_share(2, 3, 20, 1000, seed=0)  # computed: 0.535; the formula says 4/7 = 0.571
    assert later == pytest.approx(0.535, abs=0.005)
    assert later < tree_grpo(rounds=3)[1].share


def test_treepo_counts_its_segments():
    assert treepo().nodes == 8 + 13 * 16  # exact, and so is the next: 2 + 4 + 8 + 11 x 16
    assert treepo(first=2).nodes == 190
    assert treepo(first=2).tokens == 190 * 512
    assert treepo(depth=2, first=2, divisor=2, leaves=16).leaves == 4  # no room for more
    assert treepo(depth=3, first=2, divisor=2, leaves=3).nodes == 2 + 3 + 3
    assert treepo(depth=4, first=2, divisor=2, leaves=16).nodes == regular_tree([2, 2, 2, 2]).nodes


def test_aepo_gives_half_from_scratch_where_entropies_are_equal_and_one_at_least():
    assert aepo_split(16, 1.3, 1.3) == (8, 8)
    assert aepo_split(10, 1.0, 0.0) == (7, 3)  # 10 / (1 + e^-1) = 7.31
    assert aepo_split(10, 1.0, 0.0, beta=3) == (10, 0)  # 9.53
    assert aepo_split(16, 0, 1e9) == (1, 15)
    assert aepo_split(1, 0, 5) == (1, 0)


@given(st.integers(1, 64), st.floats(0, 20), st.floats(0, 20), st.floats(0, 20))
@settings(deadline=None, max_examples=50)
def test_aepo_spends_all_and_gives_more_from_scratch_the_less_certain_the_start(k, low, high, tool):
    low, high = sorted((low, high))
    m, branches = aepo_split(k, low, tool)
    assert m + branches == k
    assert 1 <= m <= aepo_split(k, high, tool)[0]


def test_branches_in_a_row_make_the_next_less_likely():
    p = aepo_branch_probability(0.5, np.arange(6))
    np.testing.assert_allclose(p, [0.6, 0.45, 0.3, 0.15, 0, 0])
    assert aepo_branch_probability(-9, 9) == 0  # two factors below zero do not make a branch
    assert aepo_branch_probability(99, 0) == 1


def test_latr_trades_trees_for_plain_samples_over_the_run():
    assert [latr_split(8, step)[0] for step in (0, 9, 10, 19, 20, 79, 80, 199, 200, 10**6)] == [
        *(8, 8, 6, 6, 4, 4, 2, 2, 0, 0)
    ]
    assert [latr_split(4, step, LATR_MATH)[0] for step in (99, 100, 200, 300)] == [4, 3, 2, 1]
    assert [latr_split(5, step) for step in (0, 10, 20, 80, 200)] == [(5, 0), (4, 1), (3, 2), (1, 4), (0, 5)]
