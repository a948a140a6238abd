"""The range of rewards that is mapped to [0, 1] for the beliefs, given by the user or learned."""

import logging
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL, to_unit
from budgetalloc.errors import StateError

logger = logging.getLogger(__name__)
Range = tuple[float, float]
_RECENT = 1000  # the latest rewards, from which the range is learned
_WIDE = 4.0  # factor by which a given range may exceed the rewards seen, and distance of an outlier


class RewardRange:
    """The lowest and highest reward, to be mapped to 0 and 1.

    A learned range is (0, 1) while all rewards lie in [0, 1], and otherwise contains all rewards seen except outliers.
    It changes between steps only, and only grows, so that beliefs can be rescaled exactly.

    Args:
        given: The user's range; None learns it.

    >>> rewards = RewardRange()
    >>> rewards.of(np.array([0.0, 1.0])), rewards.of(np.array([-2.0, 1.0, 3.0]))  # what a first step would use
    ((0.0, 1.0), (-2.0, 3.0))
    >>> rewards.learn(np.array([0.0, 1.0]), used=(0.0, 1.0))  # by which what is believed is to change: not at all
    (1.0, 0.0)
    >>> rewards.learn(np.array([-1.0, 3.0]), used=(0.0, 1.0)), rewards.of(np.zeros(2))  # 0 was 0, and is now 1/4
    ((0.25, 0.25), (-1.0, 3.0))
    """

    def __init__(self, given: Range | None = None) -> None:
        self.given = given
        self.range = given
        self._recent: FloatArray = np.zeros(0)
        self._seen = 0
        self._extremes: FloatArray = np.array([np.inf, -np.inf])
        self._said: set[str] = set()

    def of(self, values_R: FloatArray) -> Range:
        """The range of a step with these first rewards."""
        return self.range or _containing(_without_outliers(values_R))

    def learn(self, values_R: FloatArray, used: Range, quiet: bool = False) -> tuple[float, float]:
        """Learns from the rewards of a step that has ended.

        Args:
            values_R: Rewards, shape (R,), NaN where there is none.
            used: The range in that step, as returned by `of`.
            quiet: Whether to leave out the warnings.

        Returns:
            Scale and shift: a success u before the change of the range is scale * u + shift after it.
        """
        scored_R = values_R[~np.isnan(values_R)]
        if not scored_R.size:
            return 1.0, 0.0
        self._seen += scored_R.size
        self._extremes = np.array([min(self._extremes[0], scored_R.min()), max(self._extremes[1], scored_R.max())])
        if self.given is not None:
            if not quiet:
                self._say_what_does_not_fit(self.given)
            return 1.0, 0.0
        self._recent = np.concatenate([self._recent, scored_R])[-_RECENT:]
        low, high = _without_outliers(self._recent)
        before = self.range or used
        edge = EQUAL * (before[1] - before[0])  # rounding errors of float32 sums are ignored
        grown = (low if low < before[0] - edge else before[0], high if high > before[1] + edge else before[1])
        self.range = grown
        return change(before, grown)

    def _say_what_does_not_fit(self, given: Range) -> None:
        low, high = self._extremes
        edge = EQUAL * (given[1] - given[0])
        if (low < given[0] - edge or high > given[1] + edge) and "narrow" not in self._said:
            self._said.add("narrow")
            logger.warning(
                "reward_range=%s: rewards from %g to %g were observed. Training uses them unchanged; for the beliefs, "
                "rewards outside the range are clipped (counted in budgetalloc/rewards_clipped). Pass a wider range, "
                "or leave out reward_range, so that it is learned.",
                given,
                low,
                high,
            )
        if self._seen >= _RECENT and 0 < high - low < (given[1] - given[0]) / _WIDE and "wide" not in self._said:
            self._said.add("wide")
            logger.warning(
                "reward_range=%s is more than %g times as wide as the %d rewards so far, from %g to %g: the beliefs "
                "about different prompts are nearly equal. Pass a narrower range, or leave out reward_range, so that "
                "it is learned.",
                given,
                _WIDE,
                self._seen,
                low,
                high,
            )

    def state_dict(self) -> dict[str, Any]:
        """All of it in JSON types, for `load_state_dict`."""
        extremes = self._extremes.tolist() if self._seen else None
        return {
            "range": None if self.range is None else list(self.range),
            "recent": self._recent.tolist(),
            "seen": self._seen,
            "extremes": extremes,
        }

    def load_state_dict(self, state: dict[str, Any]) -> tuple[float, float]:
        """Restores a saved state; a range given by the user is kept.

        Returns:
            Scale and shift, as in `learn`, from the saved range to the current one.

        Raises:
            StateError: damaged, or the given range does not hold the saved one; nothing has changed then.
        """
        try:
            saved = None if state["range"] is None else (float(state["range"][0]), float(state["range"][1]))
            recent = np.array(state["recent"], dtype=np.float64).reshape(-1)
            seen = int(state["seen"])
            extremes = np.array(state["extremes"] or [np.inf, -np.inf], dtype=np.float64).reshape(2)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StateError(f"The state does not hold a range of rewards: it is damaged. {error}") from error
        if saved is not None and not (np.isfinite(saved).all() and saved[0] < saved[1]):
            raise StateError(f"The state's range of rewards {saved} is not two ascending numbers: it is damaged.")
        scale, shift = (1.0, 0.0) if saved is None else change(saved, self.given or saved)
        if shift < -EQUAL or scale + shift > 1 + EQUAL:
            raise StateError(
                f"reward_range={self.given}: the beliefs of the checkpoint are about rewards in {saved}, which lies "
                "partly outside. Pass a range that contains both, or leave out reward_range to continue with that of "
                "the checkpoint."
            )
        self.range, self._recent, self._seen, self._extremes = self.given or saved, recent, seen, extremes
        return scale, shift


def change(before: Range, after: Range) -> tuple[float, float]:
    """Scale and shift: a reward that was a success of u in one range is one of scale * u + shift in the other.

    >>> change((0.0, 1.0), (-1.0, 3.0))
    (0.25, 0.25)
    """
    width = after[1] - after[0]
    return (before[1] - before[0]) / width, (before[0] - after[0]) / width


def clipped(values_R: FloatArray, reward_range: Range) -> tuple[FloatArray, int]:
    """Rewards mapped to [0, 1] and clipped, and the number of clipped rewards.

    >>> clipped(np.array([-1.0, 0.5, np.nan]), (0.0, 1.0))
    (array([0. , 0.5, nan]), 1)
    """
    unit_R = to_unit(values_R, reward_range)
    return np.clip(unit_R, 0.0, 1.0), int(np.sum((unit_R < 0) | (unit_R > 1)))  # False for NaN


def _without_outliers(values_R: FloatArray) -> Range:
    """Lowest and highest reward without outliers: at most one in 200 (or one) that is far from all others."""
    ordered = np.sort(values_R[~np.isnan(values_R)])
    if not ordered.size:
        return 0.0, 1.0
    few = max(1, ordered.size // 200) if ordered.size >= 8 else 0
    low, high = float(ordered[few]), float(ordered[-1 - few])
    far = _WIDE * (high - low)
    if not far:  # rare successes, for instance
        return float(ordered[0]), float(ordered[-1])
    inside = ordered[(ordered >= low - far) & (ordered <= high + far)]
    return float(inside[0]), float(inside[-1])


def _containing(seen: Range) -> Range:
    """(0, 1) if it contains the rewards seen; a range around a single value outside it."""
    low, high = seen
    if low >= -EQUAL and high <= 1 + EQUAL:
        return 0.0, 1.0
    if high - low > EQUAL * max(1.0, abs(low), abs(high)):
        return low, high
    return low - 0.5 - abs(low), high + 0.5 + abs(high)
