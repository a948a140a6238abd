"""AERO: extra rollouts until a first success, balanced rows of hard prompts, a signal from groups
of equal rewards."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_integer
from budgetalloc.methods.downselect.groups import check_rows, turn
from budgetalloc.policies.interface import Needs, Outcome, Rounds, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.spending import Spending

__all__ = ["aero", "kept_rows", "useful_first", "useful_rollouts"]

_ALIKE = 4  # rows kept of a group of equal successes


def useful_rollouts(successes_P: FloatArray, n_P: FloatArray) -> FloatArray:
    """Rows that AERO trains on from a group with this many successes in n rollouts, shape (P,).

    4 rows if all successes are equal, twice the successes if they are below one half, otherwise all
    rows.
    """
    alike_P = (successes_P <= 0) | (successes_P >= n_P)
    return np.minimum(
        n_P, np.where(alike_P, _ALIKE, np.where(2 * successes_P < n_P, 2 * successes_P, n_P))
    )


def kept_rows(group_R: IntArray, success_R: FloatArray) -> NDArray[np.bool_]:
    """Which rollouts AERO trains on, shape (R,): the first ones of each outcome, and none whose
    success is NaN."""
    scored_R, won_R = ~np.isnan(success_R), np.nan_to_num(success_R) > 0.5
    groups = int(group_R.max(initial=-1)) + 1
    wins_G = np.bincount(group_R, won_R, groups).astype(np.float64)
    n_G = np.bincount(group_R, scored_R, groups).astype(np.float64)
    kept_G = useful_rollouts(wins_G, n_G)
    alike_G = (wins_G == 0) | (wins_G == n_G)
    # of each kind
    most_R = np.where(alike_G, kept_G, np.where(2 * wins_G < n_G, wins_G, n_G))[group_R]
    return np.asarray(scored_R & (turn(3 * group_R + won_R + 2 * ~scored_R) < most_R))


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


def aero(
    *, group: int = 8, rescue: int = 2, most: int = 16, generate: int = 2, seed: int = 0
) -> Policy:
    """Groups of 8; without a success, 2 more at a time up to 16; half-failed groups balanced (AERO,
    arXiv 2602.14338).

    A group with fewer successes than failures trains on its successes and as many failures. A group
    of n equal rewards with c successes trains on 4 rows against the mean (c + 1) / (n + 2) of
    Beta(1 + c, 1 + n - c), so that all 4 have the same small advantage. Other groups train on all
    rows. Advantages are (r - m) / sqrt(m (1-m)), with m the mean of the rows trained on, or that of
    the Beta. Graded success enters through its mean alone.

    New prompts start until the rows to train on fill the trainer's batch, or `generate` batches
    were generated. Rows that the rule drops then fill the batch, with advantage 0.

    From an unofficial implementation and summaries; the full text was not read. That code subtracts
    the group's mean from the Beta rows again, which gives 0; the abstract says that they have a
    signal.

    Args:
        group: Rollouts to start a prompt with, at least 1.
        rescue: Rollouts to add to it while all fail, at least 1.
        most: Most rollouts of a prompt, at least `group`.
        generate: Most batches that a step may generate, at least 2; our default.
        seed: Seeds the ties.

    >>> from budgetalloc import Budget
    >>> step = aero(group=4, most=8, generate=2).begin(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    >>> step.request()
    array([4, 4, 0, 0])
    >>> step.observe(["a"] * 4 + ["b"] * 4, [0, 0, 0, 0, 1, 1, 0, 1]); step.request()  # a is to be rescued
    array([2, 0, 0, 0])
    >>> step.observe(["a"] * 2, [0, 1])
    >>> step.expected_success(["a"] * 6 + ["b"] * 4, [0, 0, 0, 0, 0, 1, 1, 1, 0, 1])  # a trains on one of each
    array([0.5 ,  nan,  nan,  nan,  nan, 0.5 , 0.75, 0.75, 0.75, 0.75])
    """
    check_integer("group", group, 1)
    check_integer("rescue", rescue, 1)
    check_integer("most", most, group)
    check_integer("generate", generate, 2)

    def decide(view: View) -> Rounds:
        prompts = len(view.belief_P)
        spending = Spending(view.budget, prompts)
        total, started = spending.left, 0
        batch = -(-total // generate)
        each = group
        if view.budget.fewest:
            each = min(group, total // prompts // view.budget.quantum * view.budget.quantum)
        open_P, useful = np.zeros(prompts, dtype=np.bool_), 0.0
        while spending.left and (open_P.any() or useful < batch):
            before_P = spending.counts_P.copy()
            spending.give_each(
                np.flatnonzero(open_P), np.minimum(rescue, np.maximum(most - before_P[open_P], 1))
            )
            starts = int(max(batch - useful - _ALIKE * int(open_P.sum()), 0) // group)
            starts = max(starts, int((spending.counts_P == before_P).all() and useful < batch))
            if view.budget.fewest:
                starts = prompts - started
            at = np.arange(started, min(started + starts, prompts))
            spending.give_each(at, each)
            started += len(at)
            if (spending.counts_P == before_P).all():
                break
            tally = yield spending.counts_P - before_P
            rolled_out_P = spending.counts_P > 0
            open_P = rolled_out_P & (tally.successes_P <= 0) & (spending.counts_P < most)
            useful = float(
                useful_rollouts(tally.successes_P, tally.scored_P)[rolled_out_P & ~open_P].sum()
            )
        before_P = spending.counts_P.copy()  # too few prompts fill the batch with larger groups
        spending.spread(np.argsort(before_P, kind="stable"), keep=min(total - batch, spending.left))
        yield spending.counts_P - before_P

    def expect(outcome: Outcome) -> FloatArray:
        group_R, success_R = outcome.group_R, outcome.success_R
        groups, kept_R = len(outcome.ids_G), kept_rows(group_R, success_R)
        wins_G, n_G = np.bincount(group_R, np.nan_to_num(success_R) > 0.5, groups), outcome.scored_G
        trained_G = np.bincount(group_R, np.where(kept_R, success_R, 0.0), groups)
        mean_G = trained_G / np.maximum(np.bincount(group_R, kept_R, groups), 1)
        alike_G = (wins_G == 0) | (wins_G == n_G)
        return np.where(
            kept_R, np.where(alike_G, (wins_G + 1) / (n_G + 2), mean_G)[group_R], np.nan
        )

    name = f"aero(group={group}, rescue={rescue}, most={most}, generate={generate}, seed={seed})"
    needs = Needs(candidates=generate, baseline="policy", scale="group", generate=generate)
    return Policy(name, decide, BetaEstimator(), seed, needs, keep=useful_first, expect=expect)
