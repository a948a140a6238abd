"""One warning for each reward function that is dead, drifts, or disagrees with itself."""

import logging
from collections.abc import Hashable, Sequence

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.training.judges.constant import ConstantScores
from budgetalloc.training.judges.disagreement import Disagreement
from budgetalloc.training.judges.drift import ScoreDrift

__all__ = ["JudgeAlarm"]

logger = logging.getLogger(__name__)
_REPEATS, _SHARE = 20, 0.05  # fewest repeated completions, and the share of them whose scores may differ


class JudgeAlarm:
    """Watches the scores of each reward function, and warns once for each function and fault. It changes nothing.

    - **Dead**: the scores varied and have stopped to vary (`ConstantScores`). Or they have never varied while those of
      another function do, if the function has more than half of the total weight and its score is not 0. Other
      functions may be constant by design, such as a penalty that nothing incurs, and a score that is always 0 may
      become 1 when the first prompt is solved.
    - **Drift**: prompts get lower scores than before, and the other functions do not explain it (`ScoreDrift`).
    - **Disagreement**: more than 5 % of at least 20 repeated completions got another score (`Disagreement`).

    What is remembered is not saved: a resumed run begins anew.

    Args:
        names, weights: Names and weights of the reward functions.
        quiet: Whether to suppress log messages, as in all processes but one.
    """

    def __init__(self, names: Sequence[str], weights: Sequence[float], quiet: bool = False) -> None:
        self.names, self.quiet = names, quiet
        size_F = np.abs(np.asarray(weights, dtype=np.float64))
        self._main_F = size_F > size_F.sum() / 2
        self._constant = [ConstantScores() for _ in names]
        self._drift, self._repeats = ScoreDrift(weights), Disagreement(len(names))
        self._said: set[tuple[str, str]] = set()

    def look(
        self,
        ids_R: Sequence[Id],
        group_R: IntArray,
        scores_RF: FloatArray,
        completions_R: Sequence[Hashable] | None = None,
    ) -> dict[str, float]:
        """Adds a step, and returns its metrics.

        Args:
            ids_R: Prompt of each rollout.
            group_R: Number of its group.
            scores_RF: Its scores by function; those that are not finite count as none.
            completions_R: A key of its completion, equal for equal completions; None if unknown.

        Returns:
            `judge/NAME/dead`, 1 if the function is dead; `judge/NAME/drift`, the fall of its scores in standard
            deviations at the last test; `judge/NAME/disagree` and `judge/NAME/difference`, the share of repeated
            completions with another score and the mean difference. What is not known yet is left out.
        """
        scores_RF = np.where(np.isfinite(scores_RF), scores_RF, np.nan)
        for f, seen in enumerate(self._constant):
            seen.add(scores_RF[:, f], group_R)
        drifted = self._drift.add(ids_R, scores_RF)
        if completions_R is not None:
            self._repeats.add(ids_R, completions_R, scores_RF)
        metrics: dict[str, float] = {}
        for f, name in enumerate(self.names):
            metrics |= self._look_at(f, name, f in drifted)
        return metrics

    def _look_at(self, f: int, name: str, drifted: bool) -> dict[str, float]:
        seen, repeats = self._constant[f], self._repeats
        others_vary = any(other.varied for at, other in enumerate(self._constant) if at != f)
        never = seen.never_varied and others_vary and bool(self._main_F[f]) and seen.value != 0
        if seen.stopped or never:
            since = "although they varied before" if seen.stopped else f"for all of the first {seen.groups} groups"
            self._say(
                name,
                "dead",
                "The reward function %s may be dead: its scores are all %g, %s. Check the judge or verifier behind it.",
                name,
                seen.value,
                since,
            )
        if drifted:
            self._say(
                name,
                "drift",
                "The reward function %s may drift: in the last 8 steps its scores fell by %.2f standard deviations on "
                "prompts it had scored before, and the other reward functions did not shift. Check whether its model, "
                "prompt or server has changed.",
                name,
                self._drift.fall_F[f],
            )
        if repeats.repeats_F[f] >= _REPEATS and repeats.share_F[f] > _SHARE:
            self._say(
                name,
                "disagreement",
                "The reward function %s disagrees with itself: of %d completions that were scored again, %.0f %% got "
                "another score (mean difference %.3g). Its noise is in every advantage. Score at temperature 0, or "
                "average several scores; a function that compares the rollouts of a batch may do this by design.",
                name,
                repeats.repeats_F[f],
                100 * repeats.share_F[f],
                repeats.difference_F[f],
            )
        known = {
            "dead": float(seen.stopped or never) if seen.groups >= 512 else np.nan,
            "drift": self._drift.fall_F[f],
            "disagree": repeats.share_F[f],
            "difference": repeats.difference_F[f],
        }
        return {f"judge/{name}/{key}": float(value) for key, value in known.items() if not np.isnan(value)}

    def _say(self, name: str, fault: str, text: str, *values: object) -> None:
        if not self.quiet and (name, fault) not in self._said:
            logger.warning(text, *values)
        self._said.add((name, fault))
