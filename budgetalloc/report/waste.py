"""The use of the rollouts of a finished run: by kind of group, over time, and by prompt."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.group_kinds import KINDS, WITHOUT_GRADIENT
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL
from budgetalloc.report.forecast import Forecast, share

Ints = NDArray[np.int64]
_EQUAL = [KINDS.index(kind) for kind in WITHOUT_GRADIENT]


@dataclass(frozen=True, eq=False)
class Waste:
    """The use of a run's rollouts. A group is the scored rollouts of one prompt in one step; K stands for `KINDS`.

    Args:
        step_S: The steps of the log.
        groups_SK, rollouts_SK, tokens_SK: Groups, their rollouts and their tokens by kind, shape (S, K).
        reward_S: The sum of rewards, in the log's own units.
        success_S: The sum of success, in [0, 1] each.
        surprise_S: The sum of |success - prediction|.
        ids_P: The prompts with a reward.
        visits_P, rollouts_P, wasted_P, wasted_tokens_P: Groups, rollouts, wasted rollouts and their tokens.
        successes_P: The sum of success.
        forecast: Whether the success of rollouts was predicted.
        as_predicted: Single rollouts whose success was predicted to within 0.1 (see `Forecast`).
        reward_range: The rewards that stand for failure and success, where success is the reward mapped by them.
        reward_seen: Lowest and highest reward in the log, in its own units.
        graded: Whether success between 0 and 1 occurred.
        trainer_steps: Steps of the trainer; fewer than decisions where a step has several generation batches.
        unscored: Rollouts without a reward, left out of everything else.
        unmeasured: Scored rollouts whose length is unknown; they count no tokens.
        broken: Lines of the log that could not be read.
    """

    step_S: Ints
    groups_SK: Ints
    rollouts_SK: Ints
    tokens_SK: Ints
    reward_S: FloatArray
    success_S: FloatArray
    surprise_S: FloatArray
    ids_P: list[Id]
    visits_P: Ints
    rollouts_P: Ints
    wasted_P: Ints
    wasted_tokens_P: Ints
    successes_P: FloatArray
    forecast: Forecast
    as_predicted: int
    reward_range: tuple[float, float]
    reward_seen: tuple[float, float]
    graded: bool
    trainer_steps: int
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
        """Rollouts without gradient under a group baseline: in groups of two or more with equal rewards."""
        return int(_equal(self.rollouts_SK).sum())

    @property
    def predictable(self) -> bool:
        """Whether the log has predictions, or prompts that came twice."""
        return self.forecast.logged > 0 or bool((self.visits_P > 1).any())

    @property
    def tokens(self) -> int | None:
        """Tokens of the scored rollouts whose length is known; None where no length is."""
        return None if self.unmeasured == self.rollouts else int(self.tokens_SK.sum())

    @property
    def wasted_tokens(self) -> int | None:
        return None if self.tokens is None else int(_equal(self.tokens_SK).sum())

    def shares(self) -> dict[str, float]:
        """The share of rollouts in groups of each kind."""
        return dict(zip(KINDS, (self.rollouts_SK.sum(axis=0) / max(self.rollouts, 1)).tolist(), strict=True))

    def over_time(self, bins: int) -> list[dict[str, float]]:
        """Figures over time, in at most `bins` runs of consecutive steps.

        Runs of steps have about equally many rollouts, so that a last step with few rollouts is not a separate run.

        Returns:
            For each run its `first` and `last` step, its `rollouts`, the shares of rollouts by kind, the means `reward`
            (in the log's units), `success` and `surprise` (|success - prediction|).
        """
        rollouts_S = self.rollouts_SK.sum(axis=1)
        reached_S = rollouts_S.cumsum() - rollouts_S / 2
        run_S = np.minimum(reached_S * max(min(bins, len(rollouts_S)), 1) / max(self.rollouts, 1), bins - 1)
        runs = []
        for at in np.split(np.arange(len(run_S)), np.flatnonzero(np.diff(run_S.astype(np.int64))) + 1):
            rollouts = int(rollouts_S[at].sum())
            kinds = (self.rollouts_SK[at].sum(axis=0) / max(rollouts, 1)).tolist()
            row: dict[str, float] = {
                "first": int(self.step_S[at[0]]),
                "last": int(self.step_S[at[-1]]),
                "rollouts": rollouts,
            }
            row |= dict(zip(KINDS, kinds, strict=True))
            for name in ("reward", "success", "surprise"):
                row[name] = share(getattr(self, f"{name}_S")[at].sum(), rollouts)
            runs.append(row)
        return runs

    def never(self) -> Ints:
        """Indices in `ids_P` of the prompts that never had success; those with most rollouts come first."""
        return self._most(np.flatnonzero(self.successes_P <= EQUAL * self.rollouts_P))

    def always(self) -> Ints:
        """Indices in `ids_P` of the prompts whose success was always 1; those with most rollouts come first."""
        return self._most(np.flatnonzero(self.successes_P >= (1 - EQUAL) * self.rollouts_P))

    def _most(self, at_P: Ints) -> Ints:
        return at_P[np.argsort(-self.rollouts_P[at_P], kind="stable")]


def _equal(x_SK: Ints) -> Ints:
    return np.asarray(x_SK[:, _EQUAL].sum(axis=1))
