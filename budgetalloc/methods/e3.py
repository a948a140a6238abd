"""E3: rollouts by rank of the mean reward, the hardest prompts most."""

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_array, check_integer, shown
from budgetalloc.methods.prompt_selection import batch, in_proportion, keep_only
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy
from budgetalloc.solvers.proportional import clipped_shares

__all__ = ["e3", "hardness_ranks", "rank_shares"]


def hardness_ranks(rates_P: ArrayLike) -> FloatArray:
    """Each prompt's rank from the easiest to the hardest, divided by the number of prompts; equal
    rates share a rank.

    >>> hardness_ranks([1.0, 0.5, 0.0, 0.5])
    array([0.25 , 0.625, 1.   , 0.625])
    """
    ease = -_one_each("rates_P", rates_P)
    ordered = np.sort(ease)
    places = (
        np.searchsorted(ordered, ease, side="left")
        + np.searchsorted(ordered, ease, side="right")
        + 1
    )
    return np.asarray(places / (2 * max(1, ease.size)))


def rank_shares(ranks_P: ArrayLike, rollouts: int, fewest: int, most: int) -> IntArray:
    """E3's counts: `fewest` each, the rest in proportion to rank, at most `most` each; the sum is
    `rollouts`.

    Shares are rounded down, and the remaining rollouts go to the hardest prompts first. A share
    above `most` is clipped, and its excess is shared again by rank. A rank of NaN is replaced by
    the mean of the known ones.

    Args:
        ranks_P: Larger is harder, positive or NaN.
        rollouts: P * fewest to P * most.
        fewest, most: G_min and G_max.

    >>> rank_shares([0.25, 0.5, 0.75, 1.0], 32, 4, 12)  # 4 + floor(16 k / 2.5), two left
    array([ 5,  7,  8, 12])
    >>> rank_shares([0.1, 0.1, 0.1, 1.0], 32, 4, 12)  # unclipped, the last would have 16
    array([ 8,  6,  6, 12])
    """
    ranks = _one_each("ranks_P", ranks_P)
    fewest, rollouts = check_integer("fewest", fewest, 0), check_integer("rollouts", rollouts, 0)
    most = check_integer("most", most, fewest)
    if not (ranks[~np.isnan(ranks)] > 0).all() or np.isinf(ranks).any():
        raise InputError(
            f"ranks_P={shown(ranks_P)}: give positive numbers; NaN where the rank is not known."
        )
    if not len(ranks) * fewest <= rollouts <= len(ranks) * most:
        raise InputError(
            f"rollouts={rollouts!r}: {len(ranks)} prompts with {fewest} to {most} rollouts each "
            "use "
            f"{len(ranks) * fewest} to {len(ranks) * most}."
        )
    known = ~np.isnan(ranks)
    ranks = np.where(known, ranks, ranks[known].mean() if known.any() else 1.0)
    rest, room = rollouts - len(ranks) * fewest, most - fewest
    # below room + 1 they round down to at most `room`
    shares = clipped_shares(ranks, rest, 0, room + 1)
    extra_P = np.minimum(np.floor(shares + 1e-9).astype(np.int64), room)
    hardest = np.argsort(-ranks, kind="stable")
    free = room - extra_P[hardest]
    extra_P[hardest] += np.clip(rest - int(extra_P.sum()) - (np.cumsum(free) - free), 0, free)
    return fewest + extra_P


def e3(
    *,
    group: int = 8,
    fewest: int = 4,
    most: int = 12,
    change: int = 2,
    epoch: int = 160,
    seed: int = 0,
) -> Policy:
    """Rollouts by rank of the mean reward, the hardest prompts most (E3, arXiv 2505.18573,
    Algorithm 1).

    A prompt's mean is over all its rewards so far, without decay. At the end of an epoch all
    prompts seen are ranked again. In the first epoch all prompts get `group`. In each later epoch
    the bounds G_min and G_max move apart by `change`, down to `fewest` and up to `most`; they are
    scaled to the budget's mean rollouts of a prompt. With `floor=0` a batch of budget / `group`
    prompts is drawn at random first.

    Unlike in the paper's algorithm and code, shares are clipped at G_max and the total is exact
    (`rank_shares`). The code treats a prompt without a rank as the easiest; here it gets the
    default share. The rule ignores variance: prompts that never pass get the most rollouts, and
    graded success is ranked by its mean. The paper's temperature control is not included.

    Args:
        group: Mean rollouts of a prompt, G.
        fewest, most: The last G_min and G_max, 1 <= fewest <= group <= most.
        change: Step of both bounds in an epoch, at least 0.
        epoch: Steps of an epoch, at least 1: prompts of the dataset / prompts of a step; 160 in the
            paper.
        seed: Seeds the batch and the ties.

    >>> from budgetalloc import Budget
    >>> policy, ids = e3(epoch=1), ["easy", "half", "never", "new"]
    >>> policy.allocate(ids, Budget(rollouts=32))
    array([8, 8, 8, 8])
    >>> policy.observe(["easy"] * 8 + ["half"] * 8 + ["never"] * 8, [1] * 8 + [0, 1] * 4 + [0] * 8)
    >>> policy.allocate(ids, Budget(rollouts=32))  # G_min = 6, G_max = 10
    array([7, 8, 9, 8])
    """
    check_integer("group", group, 1)
    check_integer("fewest", fewest, 1, group)
    check_integer("most", most, group)
    check_integer("change", change, 0)
    check_integer("epoch", epoch, 1)

    def learn(memory: Memory, visit: Visit) -> None:
        columns = memory.columns
        columns["rewards"][visit.at_V] += visit.successes_V
        columns["scored"][visit.at_V] += visit.scored_V
        if (visit.step + 1) % epoch == 0:
            columns["rank"] = hardness_ranks(columns["rewards"] / columns["scored"])

    def rescale(memory: Memory, scale: float, shift: float) -> None:  # ranks stay
        columns = memory.columns
        columns["rewards"] = np.clip(
            scale * columns["rewards"] + shift * columns["scored"], 0.0, columns["scored"]
        )

    def decide(view: View) -> IntArray:
        budget, everybody_P = view.budget, np.full(len(view.belief_P), group)
        chosen = np.arange(len(everybody_P)) if budget.fewest else batch(everybody_P, view)
        apart = change * (view.step // epoch)
        low, high = max(fewest, group - apart), min(most, group + apart)
        usual = group * len(chosen)
        total = usual if budget.rollouts is None else int(budget.rollouts)
        low, high = max(1, total * low // usual), -(-total * high // usual)
        everybody_P[chosen] = rank_shares(view.recall["rank"][chosen], total, low, high)
        return in_proportion(keep_only(everybody_P, chosen), view)

    memory = Memory({"rewards": 0.0, "scored": 0.0, "rank": np.nan}, learn, rescale=rescale)
    name = f"e3(group={group}, fewest={fewest}, most={most}, change={change}, epoch={epoch}, seed={seed})"
    return Policy(name, decide, BetaEstimator(), seed, Needs(baseline="group"), memory=memory)


def _one_each(name: str, values_P: ArrayLike) -> FloatArray:
    values = check_array(name, values_P, "one number per prompt")
    if values.ndim != 1:
        raise InputError(f"{name} has shape {values.shape}: give one number per prompt.")
    return values
