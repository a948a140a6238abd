"""Trees of rollouts: how they grow, block of tokens by block, and the advantages of their
branches."""

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray

WAVE = 2**32  # the numbers of the branches of wave w begin at w times this


Extend = Callable[[list[list[int]], int], list[tuple[list[int], list[Any]]]]
"""Samples at most so many tokens after each of these rows: the new tokens of each, fewer only if it
has ended, and their log-probabilities, or nothing."""


@dataclass
class Leaf:
    """A rollout while it grows. A branch starts as a copy of its parent.

    `branch_T` has the number of the branch that each token belongs to. `weight` is that of the
    root, halved at each branching point. `own_T` tells which tokens the model wrote, unless empty,
    where it wrote all.
    """

    prompt: int
    branch: int
    weight: float
    tokens: list[int] = field(default_factory=list)
    logps: list[Any] = field(default_factory=list)
    branch_T: list[int] = field(default_factory=list)
    own_T: list[int] = field(default_factory=list)

    def add(self, tokens: list[int], logps: list[Any]) -> None:
        """Adds tokens that belong to the present branch."""
        self.tokens += tokens
        self.logps += logps
        self.branch_T += [self.branch] * len(tokens)

    def child(self, branch: int) -> "Leaf":
        """One of the two branches that this one becomes."""
        copied = list(self.tokens), list(self.logps), list(self.branch_T)
        return Leaf(self.prompt, branch, self.weight / 2, *copied)


def grow(
    extend: Extend,
    prompts_P: Sequence[list[int]],
    counts_P: Sequence[int],
    roots_P: Sequence[int],
    points: Sequence[int],
    longest: int,
    ends: Callable[[list[int]], bool],
    choose: Callable[[int, int], Collection[int]],
    waves: Iterator[int],
) -> tuple[list[list[Leaf]], int]:
    """The rollouts of each prompt, and the number of tokens generated for all.

    A choice depends only on tokens before it. If a prompt's trees end with too few leaves, a
    further wave of trees is grown. All roots of a prompt have the same weight: by Wald's identity,
    the expected sum over the roots is then their expected number times the expectation for one.

    Args:
        extend: Generates.
        prompts_P: The tokens of each prompt.
        counts_P, roots_P: Rollouts of each prompt, and how many of them begin at the prompt.
        points: The lengths at which rollouts may branch, increasing.
        longest: Most tokens of a rollout.
        ends: Whether these tokens end a rollout.
        choose: From the number of open rollouts of a prompt and how many more it may have, the
            places of those that branch.
        waves: Numbers the waves.
    """
    left_P, tokens = list(counts_P), 0
    leaves_P: list[list[Leaf]] = [[] for _ in counts_P]
    while any(left_P):
        names = itertools.count(next(waves) * WAVE)
        growing: list[Leaf] = []
        for at, left in enumerate(left_P):
            begun = min(left, max(1, round(left * roots_P[at] / counts_P[at])))
            growing += [Leaf(at, next(names), counts_P[at] / roots_P[at]) for _ in range(begun)]
            left_P[at] -= begun
        length = 0
        while growing:
            stop = longest
            if any(left_P[leaf.prompt] for leaf in growing):
                stop = min(longest, next((x for x in points if x > length), longest))
            made = extend([prompts_P[leaf.prompt] + leaf.tokens for leaf in growing], stop - length)
            length, going = stop, dict[int, list[Leaf]]()
            for leaf, (new, logps) in zip(growing, made, strict=True):
                leaf.add(new, logps)
                tokens += len(new)
                if len(leaf.tokens) < length or length == longest or ends(leaf.tokens):
                    leaves_P[leaf.prompt].append(leaf)
                else:
                    going.setdefault(leaf.prompt, []).append(leaf)
            growing = []
            for prompt, leaves in going.items():
                left = left_P[prompt]
                chosen = choose(len(leaves), left) if left else ()
                left_P[prompt] -= len(chosen)
                for at, leaf in enumerate(leaves):
                    twice = at in chosen
                    growing += [leaf.child(next(names)) for _ in range(2)] if twice else [leaf]
    return leaves_P, tokens


def branch_advantages(
    branch_RT: IntArray,
    weight_R: FloatArray,
    group_R: IntArray,
    value_R: FloatArray,
    evidence_R: FloatArray | float = 0,
) -> FloatArray:
    """The advantage of each token, from the rewards of the rollouts and the branches that their
    tokens belong to.

    The value V of a branch is the weighted mean reward of its leaves. Its advantage is V minus a
    baseline: the mean, over the branching points on the way to it, of the mean V of the other
    branches there. This is TreePO's average over subgroups (arXiv 2508.17445), with two
    differences, which make the expected gradient that of the expected reward: the subgroups exclude
    the branch itself and trees of later waves, whose number depends on it; and a token shared by
    several leaves has one advantage, not one for each.

    The loss sums over rows. A branch's tokens are in the row of each of its leaves, so its
    advantage is multiplied by the sum of their weights and divided by their number. That factor is
    1 in a tree that branches evenly.

    Args:
        branch_RT: The branch of each token, shape (R, T), numbered as in `grow`; -1 after the end.
        weight_R: The weight of each leaf (`Leaf`).
        group_R: The group (the prompt) of each rollout.
        value_R: Its reward, or its reward minus a baseline that does not depend on the step; NaN
            for none.
        evidence_R: How many rollouts of mean 0 a group's history counts for among its trees, at
            least 0.

    Returns:
        Shape (R, T). 0 where nothing can be compared, as for a group of one tree without branches
            or history.

    >>> branch_RT = np.array([[0, 1, 1], [0, 2, -1], [3, 3, 3]])  # two roots; the first branches
    >>> rewards_R = np.array([1.0, 0.0, 0.0])
    >>> branch_advantages(branch_RT, np.array([0.75, 0.75, 1.5]), np.zeros(3, int), rewards_R)
    array([[ 0.375,  0.75 ,  0.75 ],
           [ 0.375, -0.375,  0.   ],
           [-0.75 , -0.75 , -0.75 ]])
    """
    numbers, flat = np.unique(branch_RT, return_inverse=True)
    branch_RT = flat.reshape(branch_RT.shape) - (numbers[0] < 0)
    wave_B = numbers[numbers >= 0] // WAVE
    known_R, evidence_R = ~np.isnan(value_R), np.broadcast_to(evidence_R, value_R.shape)
    weight_B, known_B, total_B, rows_B = np.zeros((4, len(wave_B)))
    # of each rollout: branching points and its branch there
    paths: list[list[tuple[tuple[bool, int], int]]] = []
    # the branches at each point, which is a group or a branch
    below: dict[tuple[bool, int], dict[int, None]] = {}
    for row, branch_T in enumerate(branch_RT):
        path = list(dict.fromkeys(branch_T[branch_T >= 0].tolist()))
        points = [(True, int(group_R[row])), *((False, branch) for branch in path)]
        paths.append(list(zip(points, path, strict=False)))
        for point, branch in paths[-1]:
            below.setdefault(point, {})[branch] = None
        weight_B[path] += weight_R[row]
        if known_R[row]:
            known_B[path] += weight_R[row]
            total_B[path] += weight_R[row] * value_R[row]
            rows_B[path] += 1
    value_B = total_B / np.where(known_B > 0, known_B, 1.0)
    advantages_RT = np.zeros(branch_RT.shape)
    for row in map(int, np.flatnonzero(known_R)):
        baselines: list[float] = []
        for point, branch in paths[row]:
            earlier = [x for x in below[point] if x != branch and wave_B[x] <= wave_B[branch]]
            others = [x for x in earlier if known_B[x] > 0]
            counted = len(others) + (evidence_R[row] if point[0] else 0.0)
            if counted > 0:
                baselines.append(value_B[others].sum() / counted)
            if baselines:
                away = (value_B[branch] - np.mean(baselines)) * weight_B[branch] / rows_B[branch]
                advantages_RT[row, branch_RT[row] == branch] = away
    return advantages_RT
