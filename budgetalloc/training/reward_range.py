"""The range of rewards that is mapped to [0, 1] for the beliefs, given by the user or learned."""

import logging
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL
from budgetalloc.errors import StateError

logger = logging.getLogger(__name__)
Range = tuple[float, float]
_LEARNED = 1000  # rewards after which a learned range is fixed
_WIDE = 4.0  # widths from the others at which the outermost 0.5 % of the rewards are outliers
_LONE = 0.5  # widths from all others at which a single reward is an outlier
_FEW = 16  # with fewer rewards, a learned range has a margin
_HUGE = 1e300  # rewards are clipped to this size, and no width overflows


class RewardRange:
    """The lowest and highest reward, mapped to 0 and 1 for the beliefs.

    A learned range is (0, 1) if all rewards lie in [0, 1]. Otherwise it covers the first 1,000
    rewards without outliers, and is then fixed. An outlier is a single reward at least half a width
    away from all others, or one of the at most 0.5 % that lie more than four widths away. Later,
    the range grows only to contain rewards that recur at least half a width outside.

    It changes between steps. What was learned under an earlier range fades like all evidence.

    Args:
        given: The user's range; None learns it.

    >>> rewards, first = RewardRange(), np.repeat([-2.0, 1.0, 3.0], 8)
    >>> rewards.of(np.array([0.0, 1.0])), rewards.of(first), rewards.of(np.append(first, 50.0))
    ((0.0, 1.0), (-2.0, 3.0), (-2.0, 3.0))
    >>> rewards.learn(first)
    >>> rewards.of(np.zeros(2))
    (-2.0, 3.0)
    """

    def __init__(self, given: Range | None = None) -> None:
        self.given = given
        self.range = given
        self._recent: FloatArray = np.zeros(0)
        self._seen = 0
        self._extremes = (np.inf, -np.inf)
        self._warned = False

    def of(self, values_R: FloatArray) -> Range:
        """The range of a step with these first rewards."""
        if self.range is not None:
            return self.range
        ordered = np.sort(_scored(values_R))
        return _covering(*_recurring(ordered), ordered.size) if ordered.size else (0.0, 1.0)

    def learn(self, values_R: FloatArray, quiet: bool = False) -> None:
        """Learns from the rewards of a step, shape (R,), NaN for a missing one; `quiet` suppresses
        warnings."""
        scored_R = _scored(values_R)
        if not scored_R.size:
            return
        self._seen += scored_R.size
        lowest, highest = self._extremes
        self._extremes = min(lowest, float(scored_R.min())), max(highest, float(scored_R.max()))
        if self.given is not None:
            self._warn_if_too_wide(self.given, quiet)
        else:
            self._recent = np.concatenate([self._recent, scored_R])[-max(_LEARNED, scored_R.size) :]
            ordered = np.sort(self._recent)
            lowest, highest = _recurring(ordered)
            if self.range is None or self._seen - scored_R.size < _LEARNED:
                self.range = _covering(lowest, highest, ordered.size)
            else:  # it grows on a side where rewards recur at least half a width outside
                low, high = self.range
                far = _LONE * (high - low)
                low = lowest if lowest < low - far else low
                self.range = low, highest if highest > high + far else high
        low, high = self.range or (0.0, 1.0)
        outside_R = np.maximum(low - scored_R, scored_R - high)
        allowed = EQUAL * (high - low) if self.given else _LONE * (high - low)
        if outside_R.max() > allowed and not self._warned and not quiet:
            self._warned = True
            logger.warning(
                "A reward of %g lies outside %s. Training uses it unchanged; for the beliefs it is "
                "clipped (counted in budgetalloc/rewards_clipped). Pass reward_range= that "
                "contains it%s.",
                scored_R[outside_R.argmax()],
                f"reward_range={self.given}"
                if self.given
                else f"the range of the other rewards, {low:g} to {high:g}",
                ", or leave it out, so that it is learned" if self.given else "",
            )

    def _warn_if_too_wide(self, given: Range, quiet: bool) -> None:
        low, high = self._extremes
        wide = 0 < high - low < (given[1] - given[0]) / _WIDE
        if wide and self._seen >= _LEARNED and not self._warned and not quiet:
            self._warned = True
            logger.warning(
                "reward_range=%s is more than %g times as wide as the %d rewards so far, from %g "
                "to %g: the beliefs about different prompts are nearly equal. Pass a narrower "
                "range, or leave out reward_range, so that it is learned.",
                given,
                _WIDE,
                self._seen,
                low,
                high,
            )

    def state_dict(self) -> dict[str, Any]:
        """The state in JSON types, for `load_state_dict`."""
        learned = None if self.range is None else list(self.range)
        return {"range": learned, "recent": self._recent.tolist(), "seen": self._seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a saved state.

        Raises:
            StateError: the state is damaged, or a range was given and is not the saved one. Nothing
                is changed.
        """
        try:
            ends = state["range"]
            saved = None if ends is None else (float(ends[0]), float(ends[1]))
            recent = np.array(state["recent"], dtype=np.float64).reshape(-1)
            seen = int(state["seen"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StateError(
                f"The state holds no range of rewards: it is damaged. {error}"
            ) from error
        if saved is not None and not (np.isfinite(saved).all() and saved[0] < saved[1]):
            raise StateError(f"The state's range of rewards is {saved}: it is damaged.")
        if saved is not None and self.given is not None and not np.allclose(saved, self.given):
            raise StateError(
                f"reward_range={self.given}: the beliefs of the checkpoint are about rewards in "
                f"{saved}. Pass that range, or leave out reward_range to continue with it."
            )
        self.range, self._recent, self._seen = self.given or saved, recent, seen


def _scored(values_R: FloatArray) -> FloatArray:
    """The rewards that are not NaN, clipped to `_HUGE`."""
    return np.clip(values_R[~np.isnan(values_R)], -_HUGE, _HUGE)


def _equal(low: float, high: float) -> bool:
    """Whether two rewards are equal up to rounding."""
    return high - low <= EQUAL * max(1.0, abs(low), abs(high))


def _recurring(ordered: FloatArray) -> Range:
    """Lowest and highest reward without outliers, which `RewardRange` defines. A single reward
    above equal ones is kept as a first success, and of fewer than 8 rewards all are kept."""
    # the inner 99 %; all but two, if there are fewer than 200 rewards and at least 8
    few = max(1, ordered.size // 200) if ordered.size >= 8 else 0
    low, high = float(ordered[few]), float(ordered[-1 - few])
    if not _equal(low, high):
        far = _WIDE * (high - low)
        ordered = ordered[(ordered >= low - far) & (ordered <= high + far)]
    low, high = float(ordered[0]), float(ordered[-1])
    if ordered.size < 8:
        return low, high
    second, last = float(ordered[1]), float(ordered[-2])
    if _equal(second, last):
        return second, high
    far = _LONE * (last - second)
    return second if second - low > far else low, last if high - last > far else high


def _covering(low: float, high: float, rewards: int) -> Range:
    """(0, 1) if it contains these lowest and highest rewards, else a range around them, with a
    margin if they are few or equal."""
    if low >= -EQUAL and high <= 1 + EQUAL:
        return 0.0, 1.0
    if _equal(low, high):
        return low - 0.5 - abs(low), high + 0.5 + abs(high)
    margin = max(_FEW / rewards - 1, 0.0) / 2 * (high - low)
    return low - margin, high + margin
