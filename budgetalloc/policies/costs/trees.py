"""The cost of tree rollouts, whose trajectories share their first tokens, and how many rollouts grow as branches.

A leaf is a trajectory to train on. Each generated token counts once. The cost of caching prefixes is not counted.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import MOST, InputError, check_array, check_integer, check_list, check_number, check_type, shown

__all__ = [
    "LATR_COUNTDOWN",
    "LATR_MATH",
    "TreeCost",
    "aepo_branch_probability",
    "aepo_split",
    "latr_split",
    "regular_tree",
    "tree_cost",
    "tree_grpo",
    "treepo",
]

LATR_COUNTDOWN = {0: 1.0, 10: 0.75, 20: 0.5, 80: 0.25, 200: 0.0}  # schedules of LATR's released scripts
LATR_MATH = {0: 1.0, 100: 0.75, 200: 0.5, 300: 0.25}


@dataclass(frozen=True)
class TreeCost:
    """The cost of one or several trees.

    Args:
        leaves: Trajectories.
        nodes: Segments generated, without the prompt.
        tokens: Tokens generated.
        chain_tokens: Tokens of as many trajectories of the same lengths, each generated alone.

    >>> TreeCost(leaves=4, nodes=6, tokens=600, chain_tokens=800).share
    0.75
    """

    leaves: int
    nodes: float
    tokens: float
    chain_tokens: float

    def __post_init__(self) -> None:
        check_integer("leaves", self.leaves, 0, 2**200)  # a tree's leaves grow as a power of its depth
        for name in ("nodes", "tokens", "chain_tokens"):
            check_number(name, getattr(self, name), 0, math.inf)

    @property
    def share(self) -> float:
        """Tokens generated, divided by those of separate chains."""
        return self.tokens / self.chain_tokens if self.chain_tokens else 1.0


def tree_cost(parents_N: ArrayLike, tokens_N: ArrayLike) -> TreeCost:
    """Cost of trees that were rolled out, given each node's parent.

    Args:
        parents_N: Row of each node's parent, before its own row; -1 for the first segment after a prompt. Shape (N,).
        tokens_N: Tokens of each node, at least 0, shape (N,).

    >>> tree_cost([-1, 0, 0, 1, 1], [100, 50, 80, 20, 30])  # leaves are rows 2, 3 and 4
    TreeCost(leaves=3, nodes=5, tokens=280.0, chain_tokens=530.0)
    """
    try:
        parents = np.asarray(parents_N)
    except ValueError as error:  # rows of unequal lengths
        raise InputError(f"parents_N={shown(parents_N)}: give one row number a node, -1 for the prompt.") from error
    tokens = check_array("tokens_N", tokens_N, "the tokens of each node")
    if parents.ndim != 1 or not parents.size or parents.dtype.kind != "i" or tokens.shape != parents.shape:
        raise InputError(f"parents_N has shape {parents.shape}, tokens_N {tokens.shape}: give integers, one a node.")
    before_N = (parents >= -1) & (parents < np.arange(parents.size))
    if not before_N.all():
        at = int(np.argmin(before_N))
        raise InputError(f"parents_N[{at}]={parents[at]}: give a row before {at}, or -1 for the prompt.")
    if not (np.isfinite(tokens) & (tokens >= 0)).all():
        raise InputError("tokens_N holds a number that is negative or not finite: give tokens of at least 0.")
    paths_N = (np.bincount(parents[parents >= 0], minlength=parents.size) == 0).astype(np.int64)  # 1 for a leaf
    leaves = int(paths_N.sum())
    for row in range(parents.size - 1, -1, -1):  # adds up the trajectories that run through each node
        if parents[row] >= 0:
            paths_N[parents[row]] += paths_N[row]
    return TreeCost(leaves, parents.size, float(tokens.sum()), float((tokens * paths_N).sum()))


def regular_tree(divisions: Sequence[int], segment: float = 1.0) -> TreeCost:
    """Cost of a tree in which all nodes of a level have equally many children, and no trajectory ends early.

    Args:
        divisions: Children of each node, level by level; the first is the prompt's. 1 continues without branching.
        segment: Tokens of a node.

    >>> regular_tree([2, 1, 2], segment=512)  # 2 + 2 + 4 segments, for 4 trajectories of 3
    TreeCost(leaves=4, nodes=8, tokens=4096.0, chain_tokens=6144.0)
    """
    divisions = check_list("divisions", divisions, "the children of each node level by level, such as [2, 2]")
    if not divisions:
        raise InputError("divisions is empty: give the children of each node level by level, such as [2, 2].")
    segment = check_number("segment", segment, 0, math.inf)
    nodes, width = 0, 1
    for children in divisions:
        width *= check_integer("divisions", children, 1)
        if width > MOST:
            raise InputError(f"divisions={shown(divisions)}: the tree has more than {MOST} leaves.")
        nodes += width
    return TreeCost(width, nodes, nodes * segment, width * len(divisions) * segment)


def tree_grpo(
    *, trees: int = 2, expand: int = 2, rounds: int = 1, keep: int = 3, tokens: float = 1.0, depth: int = 1
) -> tuple[int, TreeCost]:
    """Trajectories kept of a prompt, and the expected cost of its trees (Tree-GRPO; defaults of its scripts).

    A tree begins as a chain. Each of l rounds grows branches at n nodes, drawn with replacement among the root and all
    inner nodes. The tree then has 1 + n l leaves, of which k are kept. We assume that a branch costs half a chain; with
    D nodes a chain it is (D + 1) / (2 D) in the first round and less in later ones.

    Args:
        trees: Trees of a prompt.
        expand: n, branches grown a round.
        rounds: l.
        keep: k, at most 1 + n l.
        tokens: Tokens of a chain.
        depth: Nodes of a chain; only the number of nodes depends on it.

    >>> tree_grpo(tokens=3000, depth=4)
    (6, TreeCost(leaves=6, nodes=16.0, tokens=12000.0, chain_tokens=18000.0))
    """
    trees, depth = check_integer("trees", trees, 1), check_integer("depth", depth, 1)
    grown = check_integer("expand", expand, 0) * check_integer("rounds", rounds, 0)
    kept = trees * check_integer("keep", keep, 1, 1 + grown)
    tokens = check_number("tokens", tokens, 0, math.inf)
    chains, leaves = trees * (1 + grown / 2), trees * (1 + grown)
    return kept, TreeCost(leaves, chains * depth, chains * tokens, leaves * tokens)


def treepo(*, segment: int = 512, depth: int = 14, divisor: int = 2, first: int = 8, leaves: int = 16) -> TreeCost:
    """Largest cost of a TreePO tree (defaults of its scripts); trajectories that end early cost less.

    The prompt has `first` children, later nodes `divisor`, and no level more than `leaves` nodes.

    Args:
        segment: Tokens.
        depth: Segments of a trajectory.
        divisor: Children of a node, at least 1.
        first: Children of the prompt.
        leaves: Trajectories wanted.

    >>> treepo(first=2)  # 2 + 4 + 8 + 11 x 16 segments
    TreeCost(leaves=16, nodes=190, tokens=97280, chain_tokens=114688)
    """
    segment, depth = check_integer("segment", segment, 1), check_integer("depth", depth, 1)
    divisor, leaves = check_integer("divisor", divisor, 1), check_integer("leaves", leaves, 1)
    width = min(check_integer("first", first, 1), leaves)
    nodes = width
    levels = depth - 1
    while levels and divisor > 1 and width < leaves:
        width, levels = min(width * divisor, leaves), levels - 1
        nodes += width
    nodes += width * levels  # the remaining levels have this width
    return TreeCost(width, nodes, nodes * segment, width * depth * segment)


def aepo_split(k: int, entropy_root: float, entropy_tool: float, *, beta: float = 1.0) -> tuple[int, int]:
    """Rollouts from scratch and branches: m = k sigmoid(beta (H_root - H_tool)) and k - m (AEPO, arXiv 2510.14545).

    m is rounded to the nearest integer and is at least 1. We did not find the paper's beta; 1 is a guess.

    Args:
        k: Rollouts of the prompt.
        entropy_root: Mean entropy at the question, at least 0.
        entropy_tool: Mean entropy after tool calls, at least 0.
        beta: Sharpness, at least 0.

    >>> aepo_split(16, 1.0, 1.0), aepo_split(16, 2.0, 0.5), aepo_split(16, 0.0, 9.0)
    ((8, 8), (13, 3), (1, 15))
    """
    k, beta = check_integer("k", k, 1), check_number("beta", beta, 0, math.inf)
    root = check_number("entropy_root", entropy_root, 0, math.inf)
    tool = check_number("entropy_tool", entropy_tool, 0, math.inf)
    scratch = max(1, math.floor(k * (1 + math.tanh(beta * (root - tool) / 2)) / 2 + 0.5))  # a sigmoid without overflow
    return scratch, k - scratch


def aepo_branch_probability(
    entropy_change: ArrayLike, consecutive: ArrayLike, *, alpha: float = 0.5, gamma: float = 0.2, penalty: float = 0.25
) -> FloatArray:
    """Probability of a branch at a tool step, (alpha + gamma dH) (1 - penalty l) (AEPO, arXiv 2510.14545).

    The second factor limits branches that follow each other on one trajectory. Each factor is clipped to [0, 1]. We
    did not find the paper's penalty; 0.25 is a guess. alpha and gamma are those of the predecessor's code (ARPO).

    Args:
        entropy_change: dH at the step, any shape, finite.
        consecutive: l, branches in a row on the trajectory, at least 0, broadcast against `entropy_change`.
        alpha: In [0, 1].
        gamma: At least 0.
        penalty: At least 0.

    >>> aepo_branch_probability([0.5, 0.5, 0.5, -1.0], [0, 1, 4, 0])
    array([0.6 , 0.45, 0.  , 0.3 ])
    """
    alpha, gamma = check_number("alpha", alpha, 0, 1), check_number("gamma", gamma, 0, math.inf)
    penalty = check_number("penalty", penalty, 0, math.inf)
    change = check_array("entropy_change", entropy_change, "a number for each tool step")
    row = check_array("consecutive", consecutive, "a number of branches for each tool step")
    try:
        np.broadcast_shapes(change.shape, row.shape)
    except ValueError as error:
        raise InputError(
            f"consecutive has shape {row.shape}, entropy_change {change.shape}: give one number a tool step."
        ) from error
    if not np.isfinite(change).all() or not (np.isfinite(row) & (row >= 0)).all():
        raise InputError("entropy_change, consecutive: give finite numbers, and at least 0 in consecutive.")
    return np.asarray(np.clip(alpha + gamma * change, 0, 1) * np.clip(1 - penalty * row, 0, 1))


def latr_split(rollouts: int, step: int, schedule: Mapping[int, float] = LATR_COUNTDOWN) -> tuple[int, int]:
    """Tree rollouts and independent samples of a step (LATR); the tree's share is rounded to the nearest rollout.

    Args:
        rollouts: Rollouts of the step.
        step: From 0.
        schedule: The first step of each phase, one of them 0, and its share of tree rollouts, such as `LATR_MATH`.

    >>> [latr_split(8, step) for step in (0, 10, 80, 200)], latr_split(8, 500, LATR_MATH)
    ([(8, 0), (6, 2), (2, 6), (0, 8)], (2, 6))
    """
    rollouts, step = check_integer("rollouts", rollouts, 1), check_integer("step", step, 0)
    check_type("schedule", schedule, Mapping, "a mapping from steps to shares, such as LATR_MATH")
    shares = {check_integer("schedule", at, 0): check_number("schedule", x, 0, 1) for at, x in schedule.items()}
    if 0 not in shares:
        raise InputError(f"schedule={dict(schedule)!r} has no share for step 0: add {{0: 1.0}}.")
    tree = math.floor(rollouts * shares[max(at for at in shares if at <= step)] + 0.5)
    return tree, rollouts - tree
