"""Advantages by branch: a token has the advantage of the branch that it belongs to."""

from dataclasses import replace

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.policies.batch_advantages import batch_advantages
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.options import Options
from budgetalloc.trl.experimental.trees.growth import WAVE

__all__ = ["branch_advantages", "tree_advantages"]


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
        branch_RT: The branch of each token, shape (R, T); -1 after the end of a rollout. Numbers as
            in `growth`.
        weight_R: The weight of each leaf (`growth.Leaf`).
        group_R: The group (the prompt) of each rollout.
        value_R: Its reward, or its reward minus a baseline that does not depend on the step; NaN
            for none.
        evidence_R: How many rollouts of mean 0 a group's history counts for among its trees, at
            least 0.

    Returns:
        Shape (R, T). 0 where nothing can be compared, as for a group of one tree without branches
            or history.

    >>> branch_RT = np.array([[0, 1, 1], [0, 2, -1], [3, 3, 3]])  # two roots, of which the first branches
    >>> branch_advantages(branch_RT, np.array([0.75, 0.75, 1.5]), np.zeros(3, int), np.array([1.0, 0.0, 0.0]))
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
            others = [
                x
                for x in below[point]
                if x != branch and wave_B[x] <= wave_B[branch] and known_B[x] > 0
            ]
            counted = len(others) + (evidence_R[row] if point[0] else 0.0)
            if counted > 0:
                baselines.append(value_B[others].sum() / counted)
            if baselines:
                away = value_B[branch] - np.mean(baselines)
                advantages_RT[row, branch_RT[row] == branch] = (
                    away * weight_B[branch] / rows_B[branch]
                )
    return advantages_RT


def tree_advantages(
    batch: Rollouts, options: Options, branch_RT: IntArray, weight_R: FloatArray
) -> FloatArray:
    """The advantages of a step's tokens, shape (R, T), with the baseline and scale of `options`.

    Under the baseline "posterior", the prompt's history counts as evidence beside its other trees.
    The scale is that of the same step with separate rollouts.
    """
    rollouts, posterior = batch, options.baseline == "posterior" and not batch.uniform
    history = batch.baseline_R
    if posterior:
        rollouts = replace(rollouts, expected_R=history.mean)
    values_R = batch_advantages(
        rollouts,
        "policy" if posterior else "group",
        options.scale or "group",
        options.weight or "rollout",
    ).values_R
    values_R = np.where(np.isnan(batch.rewards_R), np.nan, values_R)
    evidence_R = history.mass if posterior else 0.0
    return branch_advantages(branch_RT, weight_R, batch.group_R, values_R, evidence_R)
