"""Two runs side by side: what they used, and what each needed to reach the same reward."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.logs.progress import Progress
from budgetalloc.offline.curves import reached
from budgetalloc.report.summary import Report
from budgetalloc.report.waste import Waste

__all__ = ["Curve", "Side", "levels"]

Curve = list[tuple[float, float]]
"""Rollouts so far and the reward then, in ascending order of the rollouts."""
_POINTS = 20  # of the curve of the batches' reward
# shares of the way from the lower start to the highest reward that both reached
_LEVELS = (0.5, 0.75, 1.0)


@dataclass(frozen=True, eq=False)
class Side:
    """A run.

    Args:
        report: Its report, without a replay.
        progress: Seconds of its steps, and held-out evaluations; empty where they are not known.
    """

    report: Report
    progress: Progress

    @property
    def waste(self) -> Waste:
        return self.report.waste

    @property
    def rollouts_S(self) -> FloatArray:
        """Rollouts up to the end of each step."""
        return np.cumsum(self.waste.rollouts_SK.sum(axis=1)).astype(np.float64)

    @property
    def tokens_S(self) -> FloatArray | None:
        """Tokens up to the end of each step; None if lengths are missing."""
        complete = self.waste.tokens is not None and not self.waste.unmeasured
        return np.cumsum(self.waste.tokens_SK.sum(axis=1)).astype(np.float64) if complete else None

    @property
    def seconds_S(self) -> FloatArray | None:
        """Seconds of training up to the end of each step, without evaluations; None if any is
        missing."""
        known = [self.progress.seconds.get(step) for step in self.waste.step_S.tolist()]
        return None if None in known else np.cumsum(np.array(known, dtype=np.float64))

    def held_out(self) -> Curve:
        """The reward on held-out prompts; empty without evaluations."""
        reached_S = np.concatenate([[0.0], self.rollouts_S])
        return [
            (float(reached_S[np.searchsorted(self.waste.step_S, before)]), reward)
            for before, reward in self.progress.held_out
            if not math.isnan(reward)
        ]

    def batches(self) -> Curve:
        """The mean reward of the rollouts of consecutive steps, placed at their middle."""
        runs = self.waste.over_time(_POINTS)
        ends = np.cumsum([run["rollouts"] for run in runs])
        scored = [(end, run) for end, run in zip(ends, runs, strict=True) if run["rollouts"]]
        return [(float(end - run["rollouts"] / 2), run["reward"]) for end, run in scored]

    def spent(self, rollouts: float) -> tuple[float, float, float]:
        """These rollouts, and the tokens and seconds that they took; NaN for what is not known."""

        def at(sums_S: FloatArray | None) -> float:
            if sums_S is None:
                return math.nan
            return float(
                np.interp(rollouts, np.append(0.0, self.rollouts_S), np.append(0.0, sums_S))
            )

        return rollouts, at(self.tokens_S), at(self.seconds_S)


def levels(one: Side, other: Side, curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """What both runs needed for the same reward: the highest that both reached, and two on the way
    there.

    Args:
        one, other: The runs.
        curves: The reward of each. Empty ones, and runs that never rise, have no level.

    Returns:
        For each level its `reward`, and for both runs the `rollouts`, `tokens` and `seconds` when
            it was first reached.
    """
    if not all(curves):
        return []
    low = min(curve[0][1] for curve in curves)
    high = min(max(reward for _, reward in curve) for curve in curves)
    needed = []
    for share in _LEVELS if high > low else ():
        reward = high if share == 1 else low + share * (high - low)
        first = [
            reached([at for at, _ in curve], [seen for _, seen in curve], reward)
            for curve in curves
        ]
        spent = [side.spent(rollouts) for side, rollouts in zip((one, other), first, strict=True)]
        rollouts, tokens, seconds = map(list, zip(*spent, strict=True))
        needed.append(
            {"reward": reward, "rollouts": rollouts, "tokens": tokens, "seconds": seconds}
        )
    return needed
