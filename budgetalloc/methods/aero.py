"""AERO: extra rollouts until a first success, balanced rows of hard prompts, a signal from groups
of equal rewards."""

from collections.abc import Hashable, Sequence
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.methods.downselect import check_rows, turn
from budgetalloc.methods.table import Between, Count, method, policy
from budgetalloc.policies import Policy, View
from budgetalloc.policies.interface import Rounds
from budgetalloc.policies.spending import Spending

_ALIKE = 4  # rows kept of a group of equal successes


def kept_rows(group_R: IntArray, success_R: FloatArray) -> NDArray[np.bool_]:
    """Which rollouts AERO trains on, shape (R,): the first 4 of a group of equal successes; of one
    with fewer successes than failures, all successes and as many failures; otherwise all. None
    whose success is NaN."""
    scored_R, won_R = ~np.isnan(success_R), np.nan_to_num(success_R) > 0.5
    groups = int(group_R.max(initial=-1)) + 1
    wins_G = np.bincount(group_R, won_R, groups).astype(np.float64)
    n_G = np.bincount(group_R, scored_R, groups).astype(np.float64)
    alike_G = (wins_G == 0) | (wins_G == n_G)
    most_G = np.select([alike_G, 2 * wins_G < n_G], [_ALIKE, wins_G], n_G)  # of each outcome
    return np.asarray(scored_R & (turn(3 * group_R + won_R + 2 * ~scored_R) < most_G[group_R]))


def useful_first(
    ids_R: Sequence[Hashable],
    rewards_R: ArrayLike,
    rows: int,
    scores_RF: ArrayLike | None = None,
    success_R: ArrayLike | None = None,
) -> IntArray:
    """The `kept_rows`, filled up with rows of advantage 0: a rule for `Policy.keep`."""
    group_R, rewards = check_rows(ids_R, rewards_R, rows)
    success = rewards if success_R is None else check_rows(ids_R, success_R, rows)[1]
    return np.sort(np.argsort(~kept_rows(group_R, success), kind="stable")[:rows])


@method("in rounds", "a description", of_rates=True)
def aero(
    *,
    group: Count = 8,
    rescue: Count = 2,
    most: Annotated[int, Between("group")] = 16,
    generate: Annotated[int, Between(2)] = 2,
    seed: int = 0,
) -> Policy:
    """Adds rollouts to a prompt while all of them fail, and trains on as many failures as successes
    where failures prevail. Groups of equal rewards are cut to a few rows, which still give a
    signal.

    Formula: 8, without a success 2 more up to 16; below 1/2, the successes and as many failures are
    trained on.

    Source: AERO (arXiv 2602.14338). Compared with a description only: summaries and an unofficial
    implementation, which subtracts the group's mean from the Beta rows again. `generate` is our
    default.

    Groups of equal rewards train on 4 rows against the mean of Beta(1 + c, 1 + n - c), all with the
    same advantage. Other groups train against the mean of the rows trained on. Graded success
    enters through its mean.

    New prompts start until the rows to train on fill the trainer's batch, or `generate` batches
    were generated; dropped rows then fill it, with advantage 0.

    Args:
        group, rescue, most: Rollouts to start a prompt with, to add while all fail, and in all.

    >>> from budgetalloc import Budget
    >>> policy = aero(group=4, most=8, generate=2)
    >>> step = policy.begin(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    >>> step.request()
    array([4, 4, 0, 0])
    >>> step.observe(["a"] * 4 + ["b"] * 4, [0, 0, 0, 0, 1, 1, 0, 1])
    >>> step.request()  # a is to be rescued
    array([2, 0, 0, 0])
    """

    def decide(view: View) -> Rounds:
        prompts, floor = len(view.belief_P), view.budget.fewest > 0
        spending = Spending(view.budget, prompts)
        total, started, each = spending.left, 0, group
        batch = -(-total // generate)
        if floor:
            each = min(group, total // prompts // view.budget.quantum * view.budget.quantum)
        open_P, useful = np.zeros(prompts, dtype=np.bool_), 0.0
        while spending.left and (open_P.any() or useful < batch):
            before_P = spending.counts_P.copy()
            extra = np.minimum(rescue, np.maximum(most - before_P[open_P], 1))
            spending.give_each(np.flatnonzero(open_P), extra)
            starts = int(max(batch - useful - _ALIKE * int(open_P.sum()), 0) // group)
            starts = max(starts, int((spending.counts_P == before_P).all() and useful < batch))
            at = np.arange(started, prompts if floor else min(started + starts, prompts))
            spending.give_each(at, each)
            started += len(at)
            if (spending.counts_P == before_P).all():
                break
            seen = yield spending.counts_P - before_P
            counts_P = spending.counts_P
            open_P = (counts_P > 0) & (counts_P < most) & (seen.successes_P <= 0)
            kept_R = kept_rows(seen.prompt_R, seen.success_R)
            useful = float((kept_R & ~open_P[seen.prompt_R]).sum())
        before_P = spending.counts_P.copy()  # too few prompts fill the batch with larger groups
        spending.spread(np.argsort(before_P, kind="stable"), keep=min(total - batch, spending.left))
        yield spending.counts_P - before_P

    def expect(view: View, seen: ByPrompt) -> FloatArray:
        group_R, success_R = seen.prompt_R, seen.success_R
        groups, kept_R = len(seen.ids_P), kept_rows(group_R, success_R)
        wins_P, n_P = np.bincount(group_R, np.nan_to_num(success_R) > 0.5, groups), seen.n_P
        trained_P = np.bincount(group_R, np.where(kept_R, success_R, 0.0), groups)
        mean_P = trained_P / np.maximum(np.bincount(group_R, kept_R, groups), 1)
        alike_P = (wins_P == 0) | (wins_P == n_P)
        expected_P = np.where(alike_P, (wins_P + 1) / (n_P + 2), mean_P)
        return np.where(kept_R, expected_P[group_R], np.nan)

    needs = {"candidates": generate, "baseline": "policy", "scale": "group", "generate": generate}
    return policy(decide, keep=useful_first, expect=expect, **needs)
