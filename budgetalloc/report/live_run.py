"""The figures of a running training, step by step."""

import math
from dataclasses import dataclass, field

import numpy as np

from budgetalloc.beliefs.group_kinds import KINDS, WITHOUT_GRADIENT, rollouts_by_kind
from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.logs.chunk import Rows, finite
from budgetalloc.logs.steps import joined
from budgetalloc.report.forecast import share

__all__ = ["Live", "LiveStep"]


@dataclass(frozen=True)
class LiveStep:
    """One step of the policy.

    Args:
        step, trainer_step: Number of the step, and the trainer's.
        rollouts, scored: All rollouts, and those with a reward and a success.
        reward, success: Sums over the scored rollouts.
        squared, predicted: Sum of (success - prediction)^2, and the number of rollouts with a prediction.
        kinds: Scored rollouts in groups of each of `KINDS`.
        prompts: Number of groups.
        tokens, measured: Tokens of the rollouts whose length is known, and the number of these rollouts.
        cost, priced: Cost of the rollouts whose cost the ledger states, and the number of these rollouts.
    """

    step: int
    trainer_step: int
    rollouts: int
    scored: int
    reward: float
    success: float
    squared: float
    predicted: int
    kinds: tuple[int, ...]
    prompts: int
    tokens: int
    measured: int
    cost: float
    priced: int

    @classmethod
    def of(cls, rows: Rows) -> "LiveStep":
        """The figures of all rows of one step."""
        assert rows.success_R is not None  # a ledger has this column
        ids_G, group_R = factorize(rows.ids_R)
        rewards_R, success_R = finite(rows.rewards_R), np.clip(rows.success_R, 0.0, 1.0)  # as in a report
        scored_R = ~np.isnan(success_R) & ~np.isnan(rewards_R)
        known_R = scored_R & (rows.predicted_R >= 0) & (rows.predicted_R <= 1)  # False for NaN
        error_R = success_R[known_R] - rows.predicted_R[known_R]
        lengths_R = rows.lengths_R[rows.lengths_R >= 0]
        return cls(
            step=int(rows.step_R[0]),
            trainer_step=int(rows.trainer_step_R[0]),
            rollouts=len(rows),
            scored=int(scored_R.sum()),
            reward=float(rewards_R[scored_R].sum()),
            success=float(success_R[scored_R].sum()),
            squared=float((error_R**2).sum()),
            predicted=int(known_R.sum()),
            kinds=tuple(rollouts_by_kind(rewards_R, success_R, group_R, len(ids_G)).values()),
            prompts=len(ids_G),
            tokens=int(lengths_R.sum()),
            measured=len(lengths_R),
            cost=float(np.nansum(rows.costs_R)),
            priced=int((~np.isnan(rows.costs_R)).sum()),
        )

    def figures(self) -> dict[str, float]:
        """Means over scored rollouts, the shares of them by `KINDS` and `wasted`; NaN where nothing is known."""
        shares = {kind: share(count, self.scored) for kind, count in zip(KINDS, self.kinds, strict=True)}
        return {
            "reward": share(self.reward, self.scored),
            "success": share(self.success, self.scored),
            "brier": share(self.squared, self.predicted),
            **shares,
            "wasted": sum(shares[kind] for kind in WITHOUT_GRADIENT),
            "length": share(self.tokens, self.measured),
            "tokens_per_success": share(self.tokens if self.measured else math.nan, self.success),
            "cost_per_success": share(self.cost if self.priced == self.rollouts else math.nan, self.success),
        }


@dataclass
class Live:
    """The steps of a run so far. Rows come in the order of the ledger; a resume removes the steps that it repeats.

    >>> live = Live()
    >>> rewards_R = np.array([1.0, 0.0, 1.0])
    >>> columns = {"lengths_R": np.array([4, 6, 5]), "predicted_R": np.full(3, 0.5), "success_R": rewards_R}
    >>> live.add(Rows(np.zeros(3, int), ["a", "a", "b"], rewards_R, trainer_step_R=np.zeros(3, int), **columns))
    >>> live.steps[0].figures()["mixed"], live.steps[0].kinds, live.rollouts
    (0.6666666666666666, (2, 0, 0, 0, 1), 3)
    >>> live.add(0)  # resumed from the trainer's step 0
    >>> live.steps
    {}
    """

    steps: dict[int, LiveStep] = field(default_factory=dict)
    seen_ids: set[Id] = field(default_factory=set)
    """Prompts that had rollouts, also in steps that a resume repeats."""
    _open: list[Rows] = field(default_factory=list)

    @property
    def rollouts(self) -> int:
        return sum(step.rollouts for step in self.steps.values())

    def add(self, news: Rows | int) -> None:
        """Adds rows, whose last step may continue in the next call, or removes the steps from a trainer's step on."""
        if isinstance(news, int):
            self.steps = {at: step for at, step in self.steps.items() if step.trainer_step < news}
            self._open = []
            return
        self.seen_ids.update(news.ids_R)
        edges = np.flatnonzero(np.diff(news.step_R)) + 1
        for start, end in zip([0, *edges.tolist()], [*edges.tolist(), len(news)], strict=True):
            part = news.cut(slice(start, end))
            if self._open and self._open[0].step_R[0] != part.step_R[0]:
                self._open = []
            self._open.append(part)
            step = LiveStep.of(joined(self._open))
            self.steps[step.step] = step
