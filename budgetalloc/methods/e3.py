"""E3: rollouts by rank of the mean reward, the hardest prompts most."""

from typing import Annotated

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.methods.rules import batch, in_proportion
from budgetalloc.methods.table import Between, Count, method, policy
from budgetalloc.policies import Policy, View
from budgetalloc.solvers.proportional import clipped_shares


def hardness_ranks(rates_P: FloatArray) -> FloatArray:
    """Each prompt's rank from the easiest to the hardest, divided by the number of prompts; equal
    rates share a rank.

    >>> hardness_ranks(np.array([1.0, 0.5, 0.0, 0.5]))
    array([0.25 , 0.625, 1.   , 0.625])
    """
    ordered = np.sort(-rates_P)
    below, upto = (np.searchsorted(ordered, -rates_P, side=side) for side in ("left", "right"))
    return np.asarray((below + upto + 1) / (2 * max(1, rates_P.size)))


def rank_shares(ranks_P: FloatArray, rollouts: int, fewest: int, most: int) -> IntArray:
    """E3's counts: `fewest` each, the rest in proportion to rank, at most `most` each; the sum is
    `rollouts`, from P * fewest to P * most.

    Shares are rounded down, and the remaining rollouts go to the hardest prompts first. A share
    above `most` is clipped, and its excess is shared again by rank. A rank of NaN is replaced by
    the mean of the known ones.

    >>> rank_shares(np.array([0.25, 0.5, 0.75, 1.0]), 32, 4, 12)  # 4 + floor(16 k / 2.5), two left
    array([ 5,  7,  8, 12])
    """
    known_P = ~np.isnan(ranks_P)
    ranks_P = np.where(known_P, ranks_P, ranks_P[known_P].mean() if known_P.any() else 1.0)
    rest, room = rollouts - len(ranks_P) * fewest, most - fewest
    # below room + 1 they round down to at most `room`
    shares_P = clipped_shares(ranks_P, rest, 0, room + 1)
    extra_P = np.minimum(np.floor(shares_P + 1e-9).astype(np.int64), room)
    hardest = np.argsort(-ranks_P, kind="stable")
    free = room - extra_P[hardest]
    extra_P[hardest] += np.clip(rest - int(extra_P.sum()) - (np.cumsum(free) - free), 0, free)
    return fewest + extra_P


@method("across prompts", "released code", of_rates=True)
def e3(
    *,
    group: Count = 8,
    fewest: Annotated[int, Between(1, "group")] = 4,
    most: Annotated[int, Between("group")] = 12,
    change: Annotated[int, Between(0)] = 2,
    epoch: Count = 160,
    seed: int = 0,
) -> Policy:
    """Gives more rollouts to the prompts with the lowest mean reward so far and fewer to the
    others. Hard prompts are explored more for the same total.

    Formula: G_min + (B - P G_min) k / sum of k, at most G_max; k the rank by cumulative mean
    reward.

    Source: E3 (arXiv 2505.18573, Algorithm 1). Compared with the released code. The total is exact
    here. A prompt never seen gets the default share, where the code ranks it easiest in the first
    epoch and hardest after it. Equal means share a rank, where the code ranks them in turn. The
    algorithm and the code do not clip shares at G_max.

    The bounds widen by 2 an epoch, to 4 and 12. Graded success is ranked by its mean. All prompts
    seen are ranked at the end of an epoch. The bounds are scaled to the budget's mean rollouts of a
    prompt. With `floor=0` a batch of budget / `group` prompts is drawn first.

    Args:
        group: Mean rollouts of a prompt, G.
        fewest, most, change: The last G_min and G_max, and their step in an epoch.
        epoch: Steps of an epoch: prompts of the dataset / prompts of a step; 160 in the paper.

    >>> from budgetalloc import Budget
    >>> policy, ids = e3(epoch=1), ["easy", "half", "never", "new"]
    >>> policy.observe([x for x in ids[:3] for _ in range(8)], [1] * 8 + [0, 1] * 4 + [0] * 8)
    >>> policy.allocate(ids, Budget(rollouts=32))  # G_min = 6, G_max = 10
    array([7, 8, 9, 8])
    """

    def learn(memory: Memory, seen: ByPrompt) -> None:
        columns = memory.columns
        at_P = memory.rows(seen.ids_P)
        columns["rewards"][at_P] += seen.successes_P
        columns["scored"][at_P] += seen.n_P
        if (memory.step + 1) % epoch == 0:
            columns["rank"] = hardness_ranks(columns["rewards"] / columns["scored"])

    def decide(view: View) -> IntArray:
        wanted_P = np.full(len(view.belief_P), group)
        chosen = np.arange(len(wanted_P)) if view.budget.fewest else batch(wanted_P, view)
        apart = change * (view.step // epoch)
        low, high = max(fewest, group - apart), min(most, group + apart)
        usual = group * len(chosen)
        total = usual if view.budget.rollouts is None else int(view.budget.rollouts)
        low, high = max(1, total * low // usual), -(-total * high // usual)
        wanted_P[chosen] = rank_shares(view.recall["rank"][chosen], total, low, high)
        return in_proportion(wanted_P, view, chosen)

    columns = {"rewards": 0.0, "scored": 0.0, "rank": np.nan}
    return policy(decide, memory=Memory(columns, learn))
