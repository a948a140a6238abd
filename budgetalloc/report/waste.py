"""Where a finished run's rollouts went: groups that taught and groups that did not, and whether that was foreseeable.

One pass over a log, in memory proportional to its prompts and steps, not to its rollouts.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import Id, check_ids
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError
from budgetalloc.logs.base import Chunk
from budgetalloc.report.foresight import BINS, SURE, Foresight, believer, bin_of, equal_chance, share

Ints = NDArray[np.int64]
KINDS = MIXED, FAILED, PASSED, TIED, ALONE = ("mixed", "all_fail", "all_pass", "tied", "alone")
"""Of a group: unequal rewards; all lowest; all highest; all equal in between; a group of one."""
_EQUAL = 1e-6  # rewards closer than this share of their range are equal


@dataclass(frozen=True, eq=False)
class Waste:
    """What became of a run's rollouts. A group is the scored rollouts of one prompt in one step; K is `KINDS`.

    Args:
        step_S: The steps of the log.
        groups_SK, rollouts_SK, tokens_SK: Groups, their rollouts and their tokens by kind, shape (S, K).
        reward_S: The sum of rewards, mapped to [0, 1].
        foreseen_S: Wasted rollouts that were predicted to be with at least 90 %.
        cold_S: Wasted rollouts of prompts met for the first time.
        ids_P: The prompts with a reward.
        visits_P, rollouts_P, wasted_P, wasted_tokens_P: Groups, rollouts, rollouts in wasted groups and their tokens.
        successes_P: The sum of rewards, mapped to [0, 1].
        foresight: Whether waste was foreseeable.
        reward_range: The rewards that stand for failure and success.
        reward_seen: Lowest and highest reward in the log, in its own units.
        graded: Whether rewards between those two occurred.
        unscored: Rollouts without a reward, left out of everything else.
        unmeasured: Scored rollouts whose length is unknown; they count no tokens.
        broken: Lines of the log that could not be read.
    """

    step_S: Ints
    groups_SK: Ints
    rollouts_SK: Ints
    tokens_SK: Ints
    reward_S: FloatArray
    foreseen_S: Ints
    cold_S: Ints
    ids_P: list[Id]
    visits_P: Ints
    rollouts_P: Ints
    wasted_P: Ints
    wasted_tokens_P: Ints
    successes_P: FloatArray
    foresight: Foresight
    reward_range: tuple[float, float]
    reward_seen: tuple[float, float]
    graded: bool
    unscored: int
    unmeasured: int
    broken: int

    @property
    def groups(self) -> int:
        return int(self.groups_SK.sum())

    @property
    def rollouts(self) -> int:
        """Scored rollouts."""
        return int(self.rollouts_SK.sum())

    @property
    def wasted(self) -> int:
        """Rollouts in groups of at least two with equal rewards: their advantage under a group baseline is 0."""
        return int(_wasted(self.rollouts_SK).sum())

    @property
    def tokens(self) -> int | None:
        """Tokens of the scored rollouts whose length is known; None where no length is."""
        return None if self.unmeasured == self.rollouts else int(self.tokens_SK.sum())

    @property
    def wasted_tokens(self) -> int | None:
        return None if self.tokens is None else int(_wasted(self.tokens_SK).sum())

    def shares(self) -> dict[str, float]:
        """The share of rollouts in groups of each kind."""
        return dict(zip(KINDS, (self.rollouts_SK.sum(axis=0) / max(self.rollouts, 1)).tolist(), strict=True))

    def over_time(self, bins: int) -> list[dict[str, float]]:
        """Shares of rollouts by kind, mean `reward` and `foreseen` share of the waste, in at most `bins` runs of steps.

        Runs have about as many rollouts each, so that a last step with few of them is no run of its own. Each has its
        `first` and `last` step and its `rollouts`; `foreseen` is NaN where nothing was wasted.
        """
        rollouts_S = self.rollouts_SK.sum(axis=1)
        reached_S = rollouts_S.cumsum() - rollouts_S / 2
        run_S = np.minimum(reached_S * max(min(bins, len(rollouts_S)), 1) / max(self.rollouts, 1), bins - 1)
        found = []
        for at in np.split(np.arange(len(run_S)), np.flatnonzero(np.diff(run_S.astype(np.int64))) + 1):
            rollouts = int(rollouts_S[at].sum())
            kinds = (self.rollouts_SK[at].sum(axis=0) / max(rollouts, 1)).tolist()
            row = {"first": int(self.step_S[at[0]]), "last": int(self.step_S[at[-1]]), "rollouts": rollouts}
            row |= dict(zip(KINDS, kinds, strict=True)) | {"reward": share(self.reward_S[at].sum(), rollouts)}
            found.append(row | {"foreseen": share(self.foreseen_S[at].sum(), _wasted(self.rollouts_SK[at]).sum())})
        return found

    def never(self) -> Ints:
        """Places in `ids_P` of prompts with the lowest reward each time, most rollouts first."""
        return self._most(np.flatnonzero(self.successes_P <= _EQUAL * self.rollouts_P))

    def always(self) -> Ints:
        """Places in `ids_P` of prompts with the highest reward each time, most rollouts first."""
        return self._most(np.flatnonzero(self.successes_P >= (1 - _EQUAL) * self.rollouts_P))

    def _most(self, at_P: Ints) -> Ints:
        return at_P[np.argsort(-self.rollouts_P[at_P], kind="stable")]


def measure(chunks: Iterable[Chunk], *, reward_range: tuple[float, float] = (0.0, 1.0)) -> Waste:
    """Reads a log once and says where its rollouts went.

    Args:
        chunks: Parts of the log that hold whole steps, in ascending order; a whole `Ledger` in a list is one.
        reward_range: The rewards that stand for failure and success; what lies between is graded.

    Raises:
        InputError: a reward outside the range, a step in two chunks, or no reward at all.

    >>> log = Chunk(
    ...     step_R=np.repeat([0, 1], 8), ids_R=(["a"] * 4 + ["b"] * 4) * 2,
    ...     rewards_R=np.array([0, 0, 0, 0] + [0, 1, 1, 1] + [0, 0, 0, 0] + [1] * 4), lengths_R=np.full(16, 10),
    ...     predicted_R=np.full(16, 0.5), counts_R=np.full(16, 4))
    >>> waste = measure([log])
    >>> waste.rollouts, waste.wasted, waste.wasted_tokens
    (16, 12, 120)
    >>> waste.shares()
    {'mixed': 0.25, 'all_fail': 0.5, 'all_pass': 0.25, 'tied': 0.0, 'alone': 0.0}
    >>> [waste.ids_P[at] for at in waste.never()]
    ['a']
    >>> round(waste.foresight.predicted_B.sum(), 4)  # at the second visits, under Beta(.5, 4.5) and Beta(3.5, 1.5)
    np.float64(1.0924)
    """
    low, high = reward_range
    if not low < high:
        raise InputError(f"reward_range={reward_range!r}: give the lowest reward, then a higher one, such as (0, 1).")
    run = _Run()
    for chunk in chunks:
        run.add(chunk, float(low), float(high))
    return run.result((float(low), float(high)))


def _wasted(x_SK: Ints) -> Ints:
    return np.asarray(x_SK[:, 1:4].sum(axis=1))  # all_fail, all_pass, tied


class _Run:
    """What is known of the log so far."""

    def __init__(self) -> None:
        self.place: dict[Id, int] = {}
        self.prompts_P5: FloatArray = np.zeros((0, 5))  # visits, rollouts, wasted, wasted tokens, successes
        self.steps: list[Ints] = []
        self.tables: list[NDArray[np.float64]] = []  # of each chunk: groups, rollouts and tokens by kind, and the rest
        self.belief = believer()
        self.bins_5B: FloatArray = np.zeros((5, BINS))
        self.squared = self.surprise = 0.0
        self.cold = np.zeros(3, dtype=np.int64)
        self.seen = (np.inf, -np.inf)
        self.graded = False
        self.unscored = self.unmeasured = self.broken = 0

    def add(self, log: Chunk, low: float, high: float) -> None:
        self.broken += log.broken
        rewards_R = np.asarray(log.rewards_R, dtype=np.float64)
        scored_R = ~np.isnan(rewards_R)
        self.unscored += int((~scored_R).sum())
        steps_S = np.unique(log.step_R)
        if not len(steps_S):
            return
        if self.steps and steps_S[0] <= self.steps[-1][-1]:
            raise InputError(
                f"chunks: step {steps_S[0]} comes after step {self.steps[-1][-1]}. Give whole steps in ascending order."
            )
        own = rewards_R[scored_R]
        if len(own):
            self.seen = min(self.seen[0], float(own.min())), max(self.seen[1], float(own.max()))
        if self.seen[0] < low or self.seen[1] > high:
            wrong = self.seen[0] if self.seen[0] < low else self.seen[1]
            raise InputError(
                f"The log has a reward of {wrong:g}, outside reward_range=({low:g}, {high:g}): give the rewards that "
                "stand for failure and success."
            )
        value_R = (own - low) / (high - low)
        self.graded |= bool(((value_R > _EQUAL) & (value_R < 1 - _EQUAL)).any())
        ids = check_ids(log.ids_R, "ids_R")
        kept = [x for x, ok in zip(ids, scored_R.tolist(), strict=True) if ok]
        prompt_R = np.fromiter((self.place.setdefault(x, len(self.place)) for x in kept), np.int64, len(kept))
        self._groups(
            steps_S, np.searchsorted(steps_S, log.step_R[scored_R]), prompt_R, value_R, log.lengths_R[scored_R]
        )

    def _groups(self, steps_S: Ints, at_R: Ints, prompt_R: Ints, value_R: FloatArray, length_R: Ints) -> None:
        """Sums by group, then by step and by prompt."""
        order = np.lexsort((prompt_R, at_R))
        at_R, prompt_R, value_R, length_R = at_R[order], prompt_R[order], value_R[order], length_R[order]
        opens_R = np.ones(len(order), dtype=bool)
        opens_R[1:] = (at_R[1:] != at_R[:-1]) | (prompt_R[1:] != prompt_R[:-1])
        rows_G = np.flatnonzero(opens_R)
        at_G, prompt_G, n_G = at_R[rows_G], prompt_R[rows_G], np.diff(np.append(rows_G, len(order)))
        known_R = length_R >= 0
        self.unmeasured += int((~known_R).sum())
        sums_G, tokens_G, low_G, high_G = (
            f.reduceat(x, rows_G) if len(rows_G) else np.zeros(0)
            for f, x in (
                (np.add, value_R),
                (np.add, np.where(known_R, length_R, 0)),
                (np.minimum, value_R),
                (np.maximum, value_R),
            )
        )
        conditions = [n_G == 1, high_G - low_G > _EQUAL, high_G <= _EQUAL, low_G >= 1 - _EQUAL]
        kind_G = np.select(conditions, [4, 0, 1, 2], 3)
        wasted_G = (kind_G > 0) & (kind_G < 4)
        predicted_G, cold_G = self._predict(len(steps_S), at_G, at_R, prompt_G, prompt_R, value_R, n_G)
        many_G = n_G > 1
        self._score(predicted_G[many_G], cold_G[many_G], wasted_G[many_G], n_G[many_G])

        def by_step(x_G: NDArray[np.float64], kinds: int) -> FloatArray:
            cell_G = at_G * kinds + (kind_G if kinds > 1 else 0)
            table = np.bincount(cell_G, weights=x_G, minlength=len(steps_S) * kinds)
            return np.asarray(table.reshape(len(steps_S), kinds))

        foreseen_G = wasted_G & ~cold_G & (bin_of(predicted_G) >= bin_of(np.array([SURE]))[0])
        tables = [by_step(x, len(KINDS)) for x in (np.ones(len(n_G)), n_G, tokens_G)]
        tables += [by_step(x, 1) for x in (sums_G, n_G * foreseen_G, n_G * (wasted_G & cold_G))]
        self.steps.append(steps_S)
        self.tables.append(np.concatenate(tables, axis=1))
        more = len(self.place) - len(self.prompts_P5)
        if more > 0:
            self.prompts_P5 = np.concatenate([self.prompts_P5, np.zeros((max(more, len(self.prompts_P5)), 5))])
        for column, x_G in enumerate((np.ones(len(n_G)), n_G, n_G * wasted_G, tokens_G * wasted_G, sums_G)):
            self.prompts_P5[:, column] += np.bincount(prompt_G, weights=x_G, minlength=len(self.prompts_P5))

    def _predict(
        self, steps: int, at_G: Ints, at_R: Ints, prompt_G: Ints, prompt_R: Ints, value_R: FloatArray, n_G: Ints
    ) -> tuple[FloatArray, NDArray[np.bool_]]:
        """P(equal rewards) of each group as believed before its step, and which prompts were new."""
        predicted_G, cold_G = np.zeros(len(n_G)), np.zeros(len(n_G), dtype=bool)
        groups_S, rows_S = (np.searchsorted(x, np.arange(steps + 1)) for x in (at_G, at_R))
        for s in range(steps):
            group, row = slice(groups_S[s], groups_S[s + 1]), slice(rows_S[s], rows_S[s + 1])
            names = prompt_G[group].tolist()
            cold_G[group] = self.belief.cold(names)
            predicted_G[group] = equal_chance(self.belief.belief(names), n_G[group])
            self.belief.observe(prompt_R[row].tolist(), np.clip(value_R[row], 0.0, 1.0))
            self.belief.tick()
        return predicted_G, cold_G

    def _score(
        self, predicted_G: FloatArray, cold_G: NDArray[np.bool_], wasted_G: NDArray[np.bool_], n_G: Ints
    ) -> None:
        self.cold += [int(cold_G.sum()), int((cold_G & wasted_G).sum()), int(n_G[cold_G & wasted_G].sum())]
        p_G, wasted_G, n_G = predicted_G[~cold_G], wasted_G[~cold_G], n_G[~cold_G]
        for b, x_G in enumerate((np.ones(len(p_G)), wasted_G, p_G, n_G, n_G * wasted_G)):
            self.bins_5B[b] += np.bincount(bin_of(p_G), weights=x_G, minlength=BINS)
        self.squared += float(((p_G - wasted_G) ** 2).sum())
        self.surprise -= float(np.log(np.maximum(np.where(wasted_G, p_G, 1 - p_G), 1e-12)).sum())

    def result(self, reward_range: tuple[float, float]) -> Waste:
        if not self.place:
            raise InputError(
                f"The log holds no rollout with a reward ({self.unscored} without one, {self.broken} broken lines): "
                "there is nothing to report. Is it the right file, and is the reward's column named?"
            )
        k = len(KINDS)
        table = np.concatenate(self.tables)
        whole = np.rint(table).astype(np.int64)
        prompts_P5 = self.prompts_P5[: len(self.place)]
        visits_P, rollouts_P, wasted_P, tokens_P = np.rint(prompts_P5[:, :4]).astype(np.int64).T
        groups_B, wasted_B, rollouts_B, lost_B = np.rint(self.bins_5B[[0, 1, 3, 4]]).astype(np.int64)
        predicted = int(groups_B.sum())
        return Waste(
            step_S=np.concatenate(self.steps),
            groups_SK=whole[:, :k],
            rollouts_SK=whole[:, k : 2 * k],
            tokens_SK=whole[:, 2 * k : 3 * k],
            reward_S=table[:, 3 * k],
            foreseen_S=whole[:, 3 * k + 1],
            cold_S=whole[:, 3 * k + 2],
            ids_P=list(self.place),
            visits_P=visits_P,
            rollouts_P=rollouts_P,
            wasted_P=wasted_P,
            wasted_tokens_P=tokens_P,
            successes_P=prompts_P5[:, 4],
            foresight=Foresight(
                groups_B,
                wasted_B,
                self.bins_5B[2],
                rollouts_B,
                lost_B,
                share(self.squared, predicted),
                share(self.surprise, predicted),
                *(int(x) for x in self.cold),
            ),
            reward_range=reward_range,
            reward_seen=self.seen,
            graded=self.graded,
            unscored=self.unscored,
            unmeasured=self.unmeasured,
            broken=self.broken,
        )
