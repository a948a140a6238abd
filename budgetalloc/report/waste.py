"""The use of the rollouts of a finished run: by kind of group, over time, and by prompt."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.group_kinds import KINDS, WITHOUT_GRADIENT
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL
from budgetalloc.report.forecast import Forecast, share

__all__ = ["Ints", "Waste"]

Ints = NDArray[np.int64]
_WASTED = [KINDS.index(kind) for kind in WITHOUT_GRADIENT]
_MEANS = ("reward", "success", "surprise")


@dataclass(frozen=True, eq=False)
class Waste:
    """The use of a run's rollouts. A group is the scored rollouts of one prompt in one step; K
    stands for `KINDS`.

    Args:
        step_S: The steps of the log.
        groups_SK, rollouts_SK, tokens_SK: Groups, their rollouts and their tokens by kind, shape
            (S, K).
        reward_S, success_S: Sums of rewards in the log's own units, and of success in [0, 1].
        surprise_S: The sum of |success - prediction|.
        cost_S: The sum of the costs that the ledger states, NaN if it states none in the step.
        ids_P: The prompts with a reward.
        visits_P, rollouts_P, wasted_P, wasted_tokens_P: Groups, rollouts, wasted rollouts and their
            tokens.
        successes_P: The sum of success.
        forecast: How well the success of rollouts was predicted.
        as_predicted: Single rollouts whose success was predicted to within 0.1 (see `Forecast`).
        reward_range: The rewards of failure and success, from which success was computed.
        graded: Whether success between 0 and 1 occurred.
        trainer_steps: Steps of the trainer. There are fewer of them than decisions if a step has
            several generation batches.
        unscored: Rollouts without a reward, which count nowhere else.
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
    cost_S: FloatArray
    ids_P: list[Id]
    visits_P: Ints
    rollouts_P: Ints
    wasted_P: Ints
    wasted_tokens_P: Ints
    successes_P: FloatArray
    forecast: Forecast
    as_predicted: int
    reward_range: tuple[float, float]
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
        """Rollouts without gradient under a group baseline: in groups of two or more with equal
        rewards."""
        return int(self.rollouts_SK[:, _WASTED].sum())

    @property
    def predictable(self) -> bool:
        """Whether the log has predictions, or prompts that came twice."""
        return self.forecast.logged > 0 or bool((self.visits_P > 1).any())

    @property
    def tokens(self) -> int | None:
        """Tokens of the scored rollouts whose length is known; None if no length is known."""
        return None if self.unmeasured == self.rollouts else int(self.tokens_SK.sum())

    @property
    def wasted_tokens(self) -> int | None:
        """Tokens of the wasted rollouts; None if no length is known."""
        return None if self.tokens is None else int(self.tokens_SK[:, _WASTED].sum())

    def per_success(self, at_S: Ints | slice = slice(None)) -> dict[str, float]:
        """Tokens and cost for each success in these steps, NaN if unknown or without any success.

        Returns:
            `tokens_per_success` and `cost_per_success`, in the unit of the run's `cost=`.
        """
        tokens = math.nan if self.tokens is None else float(self.tokens_SK[at_S].sum())
        successes = float(self.success_S[at_S].sum())
        costs = {"tokens_per_success": tokens, "cost_per_success": float(self.cost_S[at_S].sum())}
        return {name: share(cost, successes) for name, cost in costs.items()}

    @property
    def kinds(self) -> list[str]:
        """The kinds of groups in the log, in the order of `KINDS`."""
        return [
            kind
            for kind, rollouts_S in zip(KINDS, self.rollouts_SK.T, strict=True)
            if rollouts_S.any()
        ]

    def shares(self) -> dict[str, float]:
        """The share of rollouts in groups of each kind."""
        return dict(
            zip(KINDS, (self.rollouts_SK.sum(axis=0) / max(self.rollouts, 1)).tolist(), strict=True)
        )

    def over_time(self, bins: int) -> list[dict[str, float]]:
        """Figures over time, in at most `bins` runs of consecutive steps.

        Runs of steps have about equally many rollouts, so that a last step with few rollouts is not
        a separate run.

        Returns:
            For each run its `first` and `last` step, its `rollouts`, the shares of rollouts by
                kind, the means `reward`
            (in the log's units), `success` and `surprise` (|success - prediction|), and what
                `per_success` returns.
        """
        rollouts_S = self.rollouts_SK.sum(axis=1)
        reached_S = rollouts_S.cumsum() - rollouts_S / 2
        run_S = np.minimum(
            reached_S * max(min(bins, len(rollouts_S)), 1) / max(self.rollouts, 1), bins - 1
        )
        runs = []
        for at in np.split(
            np.arange(len(run_S)), np.flatnonzero(np.diff(run_S.astype(np.int64))) + 1
        ):
            rollouts = int(rollouts_S[at].sum())
            kinds = (self.rollouts_SK[at].sum(axis=0) / max(rollouts, 1)).tolist()
            means = {name: share(getattr(self, f"{name}_S")[at].sum(), rollouts) for name in _MEANS}
            steps = {"first": int(self.step_S[at[0]]), "last": int(self.step_S[at[-1]])}
            runs.append(
                {**steps, "rollouts": rollouts, **dict(zip(KINDS, kinds, strict=True)), **means}
            )
            runs[-1] |= self.per_success(at)
        return runs

    def never(self) -> Ints:
        """Indices in `ids_P` of the prompts that never had success; those with most rollouts come
        first."""
        return self._most_rollouts_first(self.successes_P <= EQUAL * self.rollouts_P)

    def always(self) -> Ints:
        """Indices in `ids_P` of the prompts whose success was always 1; those with most rollouts
        come first."""
        return self._most_rollouts_first(self.successes_P >= (1 - EQUAL) * self.rollouts_P)

    def _most_rollouts_first(self, chosen_P: NDArray[np.bool_]) -> Ints:
        at_P = np.flatnonzero(chosen_P)
        return at_P[np.argsort(-self.rollouts_P[at_P], kind="stable")]
