"""Published methods that give more rollouts to harder prompts: by rank, by a pilot, by a threshold."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_choice, check_integer, check_number
from budgetalloc.policies.base import Policy
from budgetalloc.policies.decision import Needs, Rounds, View
from budgetalloc.policies.focus import batch, in_proportion, keep_only
from budgetalloc.policies.rounds import Rollouts
from budgetalloc.solvers.proportional import clipped_shares, largest_remainder

Variant = Literal["ET", "HW"]


def hardness_ranks(rates_P: ArrayLike) -> FloatArray:
    """Each prompt's place from the easiest to the hardest, divided by their number; equal rates share a place.

    >>> hardness_ranks([1.0, 0.5, 0.0, 0.5])
    array([0.25 , 0.625, 1.   , 0.625])
    """
    ease = -np.asarray(rates_P, dtype=np.float64)
    ordered = np.sort(ease)
    places = np.searchsorted(ordered, ease, side="left") + np.searchsorted(ordered, ease, side="right") + 1
    return np.asarray(places / (2 * max(1, ease.size)))


def rank_shares(ranks_P: ArrayLike, rollouts: int, fewest: int, most: int) -> IntArray:
    """E3's counts: `fewest` each, the rest in proportion to rank, at most `most` each; the sum is `rollouts`.

    Shares are rounded down, and the few rollouts left fill the hardest prompts first. Where a share is above `most`
    even then, it is clipped, and what that refuses is shared again by rank. A rank of NaN stands for the mean of the
    known ones.

    Args:
        ranks_P: Larger is harder, positive or NaN.
        rollouts: From P * fewest to P * most.
        fewest, most: G_min and G_max.

    >>> rank_shares([0.25, 0.5, 0.75, 1.0], 32, 4, 12)  # 4 + floor(16 k / 2.5) = 5, 7, 8, 10; two left for the hardest
    array([ 5,  7,  8, 12])
    >>> rank_shares([0.1, 0.1, 0.1, 1.0], 32, 4, 12)  # unclipped, the last would have 16
    array([ 8,  6,  6, 12])
    """
    ranks = np.asarray(ranks_P, dtype=np.float64)
    if not len(ranks) * fewest <= rollouts <= len(ranks) * most:
        raise InputError(
            f"rollouts={rollouts!r}: {len(ranks)} prompts with {fewest} to {most} rollouts each use "
            f"{len(ranks) * fewest} to {len(ranks) * most}."
        )
    known = ~np.isnan(ranks)
    ranks = np.where(known, ranks, ranks[known].mean() if known.any() else 1.0)
    rest, room = rollouts - len(ranks) * fewest, most - fewest
    shares = clipped_shares(ranks, rest, 0, room + 1)  # below room + 1 they round down to at most `room`
    extra_P = np.minimum(np.floor(shares + 1e-9).astype(np.int64), room)
    hardest = np.argsort(-ranks, kind="stable")
    free = room - extra_P[hardest]
    extra_P[hardest] += np.clip(rest - int(extra_P.sum()) - (np.cumsum(free) - free), 0, free)
    return fewest + extra_P


def e3(*, group: int = 8, fewest: int = 4, most: int = 12, change: int = 2, epoch: int = 160, seed: int = 0) -> Policy:
    """Rollouts by rank of the mean reward, the hardest prompts most (E3, arXiv 2505.18573, Algorithm 1).

    A prompt's mean is over all its rewards so far, with no decay; ranks are over all prompts seen and are taken anew
    when an epoch ends. In the first epoch all get `group`; in each later one the bounds G_min and G_max move apart by
    `change`, down to `fewest` and up to `most`. They are meant for a mean of `group` rollouts a prompt, and are scaled
    to the mean that the budget has. With `floor=0` a batch of budget / `group` prompts is drawn at random first.

    Unlike the paper's algorithm and code, shares are clipped at G_max and the total is exact (`rank_shares`). In the
    code a prompt without a rank counts as the easiest and gets G_min; here it counts as the mean of its batch and gets
    the default share, since nothing is known about it. The rule does not look at variance: prompts that never pass get
    the most. The paper's temperature control is not part of this.

    Args:
        group: Mean rollouts of a prompt, G.
        fewest, most: The last G_min and G_max, 1 <= fewest <= group <= most.
        change: By which both bounds move an epoch, at least 0.
        epoch: Steps of an epoch, at least 1: prompts of the dataset / prompts of a step. The paper's runs have 480
            steps in 3 epochs.
        seed: Of the batch and ties.

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

    def decide(view: View) -> IntArray:
        budget, everybody_P = view.budget, np.full(len(view.belief_P), group)
        chosen = np.arange(len(everybody_P)) if budget.floor else batch(everybody_P, view)
        apart = change * (view.step // epoch)
        low, high = max(fewest, group - apart), min(most, group + apart)
        usual = group * len(chosen)
        total = usual if budget.rollouts is None else int(budget.rollouts)
        low, high = max(1, total * low // usual), -(-total * high // usual)
        everybody_P[chosen] = rank_shares(view.recall["rank"][chosen], total, low, high)
        return in_proportion(keep_only(everybody_P, chosen), view)

    memory = Memory({"rewards": 0.0, "scored": 0.0, "rank": np.nan}, learn)
    name = f"e3(group={group}, fewest={fewest}, most={most}, change={change}, epoch={epoch}, seed={seed})"
    return Policy(name, decide, BetaEstimator(), seed, Needs(baseline="group"), memory=memory)


def dars_counts(
    successes_P: ArrayLike, group: int, variant: Variant, most: int | None = None, std: bool = False
) -> IntArray:
    """Rollouts of each prompt, pilot included, that lift its group's sum of |advantage| to the target of DARS.

    With a = successes / group (1 / (2 group) for no success) the sum is 2 group a (1-a), and the target that of a =
    1/2 ("ET", equal treatment) or 2 (1-a) times it ("HW", hardness weighted): the total is group / (4 a (1-a)) or
    group / (2 a), rounded up; `group` for a >= 1/2 (arXiv 2508.13755, as in the released code).

    Args:
        successes_P: Sum of the pilot's rewards, in [0, group].
        group: Rollouts of the pilot, N.
        variant: "ET" or "HW".
        most: N_max, at least `group`; None is no limit.
        std: Advantages divided by the group's standard deviation: the sum is then 2 group sqrt(a (1-a)).

    >>> dars_counts([0, 1, 2, 3, 4], 8, "ET", most=32), dars_counts([0, 1, 2, 3, 4], 8, "HW", most=64)
    (array([32, 19, 11,  9,  8]), array([64, 32, 16, 11,  8]))
    """
    check_integer("group", group, 1)
    check_choice("variant", variant, ("ET", "HW"))
    successes = np.asarray(successes_P, dtype=np.float64)
    if not ((successes >= 0) & (successes <= group)).all():
        raise InputError(f"successes_P={successes_P!r}: give sums of rewards from 0 to group={group}.")
    totals_P = _deepened(successes / group, np.full(successes.shape, group), variant, std)
    return totals_P if most is None else np.minimum(totals_P, check_integer("most", most, group))


def _deepened(rate_P: FloatArray, pilot_P: IntArray, variant: Variant, std: bool) -> IntArray:
    a = np.minimum(np.where(rate_P <= 1e-6, 0.5 / pilot_P, rate_P), 0.5)  # at 1/2 every rule gives the pilot itself
    if variant == "ET":
        factor = 1 / (2 * np.sqrt(a * (1 - a))) if std else 1 / (4 * a * (1 - a))
    else:
        factor = np.sqrt((1 - a) / a) if std else 1 / (2 * a)
    return np.asarray(np.ceil(pilot_P * factor - 1e-9).astype(np.int64))


def dars(
    *,
    group: int = 8,
    variant: Variant = "ET",
    most: int | None = None,
    std: bool = False,
    share: float = 0.625,
    seed: int = 0,
) -> Policy:
    """A pilot of `group` rollouts, then more for every prompt that passed less than half of it (arXiv 2508.13755).

    The second round fills prompts up to `dars_counts`. The released code adds these rollouts on top of the step's; here
    they come out of the budget, which is spent exactly: pilots take `share` of it, as many prompts as that is enough
    for, and if the second round wants more than the rest, all extras are scaled down alike. What it does not want
    starts further prompts with a pilot's rollouts, then goes to all alike. With a floor every prompt has a
    pilot, as large as `share` allows, and its size takes the place of `group` in the rule.

    The mean of such a group is biased: how often a prompt is sampled depends on its first rewards, which stay in the
    group. What was believed before the step, `baseline=policy.belief(ids_R).mean` taken then, is not. The code drops
    merged groups of equal rewards; they have no advantage under a group baseline.

    Args:
        group: Rollouts of a pilot, N: 8 for Qwen, 16 for Llama.
        variant: "ET" or "HW", as in `dars_counts`.
        most: N_max, at least `group`. None is that of the released scripts, 32 for ET and 64 for HW (or `group`).
        std: As in `dars_counts`.
        share: Of the budget, spent on pilots, in (0, 1); ours. 0.625 is 8 of the 12.8 rollouts that a prompt has on
            average with ET and Qwen2.5-Math-7B.
        seed: Of the batch and ties.

    >>> from budgetalloc import Budget
    >>> step = dars(group=4, share=0.5, seed=0).begin(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    >>> step.request()
    array([4, 4, 0, 0])
    >>> step.observe(["a"] * 4 + ["b"] * 4, [0, 0, 1, 0, 0, 1, 1, 0])
    >>> step.request()  # a is filled up to 4 / (4 * 1/4 * 3/4) = 5.3; b needs no more; the rest starts others
    array([2, 0, 4, 2])
    """
    check_integer("group", group, 1)
    check_choice("variant", variant, ("ET", "HW"))
    top = max(group, 32 if variant == "ET" else 64) if most is None else check_integer("most", most, group)
    check_number("share", share, 0, 1, without=(0, 1))

    def decide(view: View) -> Rounds:
        budget, prompts = view.budget, len(view.belief_P)
        given = Rollouts(budget, prompts)
        size, pilots = group, max(1, int(share * given.left / group + 1e-9))
        if budget.floor:
            pilots = prompts
            size = min(group, max(int(share * given.left / prompts + 1e-9), budget.smallest_group))
            size = max(size // budget.quantum * budget.quantum, budget.smallest_group)
        for at in range(min(pilots, prompts)):
            given.give(at, size)
        had_P = given.counts_P.copy()
        tally = yield had_P
        rate_P = np.where(tally.scored_P > 0, tally.successes_P / np.maximum(tally.scored_P, 1), 1.0)
        totals_P = np.minimum(_deepened(rate_P, np.maximum(had_P, 1), variant, std), min(top, budget.largest_group))
        wanted_P = np.where(had_P > 0, np.maximum(totals_P - had_P, 0), 0)
        short = np.flatnonzero(wanted_P)
        if wanted_P.sum() > given.left:
            units = given.left // budget.quantum
            wanted_P[short] = budget.quantum * largest_remainder(wanted_P[short] / 1.0, units, 0, units)
        for at in short.tolist():
            given.give(at, int(wanted_P[at]))
        for at in np.flatnonzero(given.counts_P == 0).tolist():
            if not given.give(at, group):
                break
        while given.left:
            each = max(budget.quantum, given.left // prompts)
            for at in np.argsort(given.counts_P, kind="stable").tolist():
                given.give(at, each)
        yield given.counts_P - had_P

    settings = f"group={group}, variant={variant!r}, most={top}, std={std}, share={share}"
    return Policy(
        f"dars({settings}, seed={seed})", decide, BetaEstimator(), seed, Needs(candidates=2, baseline="group")
    )


def dart(*, group: int = 8, reduced: int = 4, easy: float = 0.6, discount: float = 0.9, seed: int = 0) -> Policy:
    """Fewer rollouts for prompts that pass more than 60 %: DART's dynamic rollout number (arXiv 2509.23866).

    A prompt whose posterior mean is above `easy` gets `reduced` rollouts, any other, a cold one too, `group`. What that
    saves goes, with `floor=0`, to further prompts, which are drawn at random; with a floor, to all in proportion. So
    the budget is spent exactly. The paper's formula for the reduction was not found, and the released code has a fixed
    number. Its limits on length, experience pool and choice of steps are not part of this.

    Args:
        group: Rollouts of a prompt, at least `reduced`.
        reduced: Rollouts of an easy prompt, at least 1; ours.
        easy: Success rate above which a prompt is easy, in [0, 1].
        discount: Of `BetaEstimator`; ours.
        seed: Of the batch and ties.

    >>> from budgetalloc import Budget
    >>> policy = dart(seed=0)
    >>> policy.observe(["easy"] * 8 + ["half"] * 8, [1] * 8 + [0, 1] * 4)
    >>> policy.allocate(["easy", "half", "new"], Budget(rollouts=20))
    array([4, 8, 8])
    """
    check_integer("group", group, 1)
    check_integer("reduced", reduced, 1, group)
    check_number("easy", easy, 0, 1)

    def decide(view: View) -> IntArray:
        wanted_P = np.where(view.belief_P.mean > easy, reduced, group)
        return in_proportion(wanted_P if view.budget.floor else keep_only(wanted_P, batch(wanted_P, view)), view)

    name = f"dart(group={group}, reduced={reduced}, easy={easy}, discount={discount}, seed={seed})"
    return Policy(name, decide, BetaEstimator(discount=discount), seed, Needs(baseline="group"))
