"""Where the rollouts of a finished run went: by kind of group, over time, and by prompt."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL
from budgetalloc.report.foresight import Foresight, share

Ints = NDArray[np.int64]
KINDS = MIXED, FAILED, PASSED, TIED, ALONE = ("mixed", "all_fail", "all_pass", "tied", "alone")
"""Of a group: unequal rewards; all lowest; all highest; all equal in between; a single rollout."""


@dataclass(frozen=True, eq=False)
class Waste:
    """What became of a run's rollouts. A group is the scored rollouts of one prompt in one step; K stands for `KINDS`.

    Args:
        step_S: The steps of the log.
        groups_SK, rollouts_SK, tokens_SK: Groups, their rollouts and their tokens by kind, shape (S, K).
        reward_S: The sum of rewards, mapped to [0, 1].
        foreseen_S: Wasted rollouts that were predicted to be wasted with a probability of at least 90 %.
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

        Runs of steps have about equally many rollouts, so that a last step with few of them is no run of its own. Each
        has its `first` and `last` step and its `rollouts`; `foreseen` is NaN where nothing was wasted.
        """
        rollouts_S = self.rollouts_SK.sum(axis=1)
        reached_S = rollouts_S.cumsum() - rollouts_S / 2
        run_S = np.minimum(reached_S * max(min(bins, len(rollouts_S)), 1) / max(self.rollouts, 1), bins - 1)
        runs = []
        for at in np.split(np.arange(len(run_S)), np.flatnonzero(np.diff(run_S.astype(np.int64))) + 1):
            rollouts = int(rollouts_S[at].sum())
            kinds = (self.rollouts_SK[at].sum(axis=0) / max(rollouts, 1)).tolist()
            row = {"first": int(self.step_S[at[0]]), "last": int(self.step_S[at[-1]]), "rollouts": rollouts}
            row |= dict(zip(KINDS, kinds, strict=True)) | {"reward": share(self.reward_S[at].sum(), rollouts)}
            runs.append(row | {"foreseen": share(self.foreseen_S[at].sum(), _wasted(self.rollouts_SK[at]).sum())})
        return runs

    def never(self) -> Ints:
        """Places in `ids_P` of the prompts whose rewards were all the lowest; those with most rollouts come first."""
        return self._most(np.flatnonzero(self.successes_P <= EQUAL * self.rollouts_P))

    def always(self) -> Ints:
        """Places in `ids_P` of the prompts whose rewards were all the highest; those with most rollouts come first."""
        return self._most(np.flatnonzero(self.successes_P >= (1 - EQUAL) * self.rollouts_P))

    def _most(self, at_P: Ints) -> Ints:
        return at_P[np.argsort(-self.rollouts_P[at_P], kind="stable")]


def _wasted(x_SK: Ints) -> Ints:
    return np.asarray(x_SK[:, 1:4].sum(axis=1))  # all_fail, all_pass, tied
