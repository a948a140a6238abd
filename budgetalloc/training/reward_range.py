"""The range of rewards that is mapped to [0, 1] for the beliefs, given by the user or learned."""

import logging
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL, to_unit
from budgetalloc.errors import StateError

__all__ = ["Range", "RewardRange", "change", "clipped"]

logger = logging.getLogger(__name__)
Range = tuple[float, float]
# the range is learned from this many of the latest rewards, and at least from the last step
_RECENT = 1000
# factor by which a given range may exceed the rewards seen, and distance of a far outlier
_WIDE = 4.0
_LONE = 0.5  # a single reward this far from all others, in widths of the others, is an outlier
_UNUSED = 2.0  # a learned range at least this many times as wide as the recent rewards shrinks
_ENOUGH = 16  # with fewer rewards, a learned range has a margin
_HUGE = 1e300  # rewards are clipped to this size, and no width overflows


class RewardRange:
    """The lowest and highest reward, mapped to 0 and 1 for the beliefs.

    A learned range is (0, 1) while all rewards lie in [0, 1]. Otherwise it covers the last 1000
    rewards without outliers. An outlier is a single reward at least half a width away from all
    others, or one of the at most 0.5 % that lie more than four widths away. A reward that recurs is
    no outlier, and the range grows to contain it. The range shrinks if recent rewards use at most
    half of it. A range learned from fewer than 16 rewards has a margin.

    The range changes between steps only, and beliefs are then rescaled. This is exact if the range
    grows.

    Args:
        given: The user's range; None learns it.

    >>> rewards, first = RewardRange(), np.repeat([-2.0, 1.0, 3.0], 8)
    >>> rewards.of(np.array([0.0, 1.0])), rewards.of(first), rewards.of(np.append(first, 50.0))
    ((0.0, 1.0), (-2.0, 3.0), (-2.0, 3.0))
    >>> rewards.learn(np.array([0.0, 1.0]), used=(0.0, 1.0))  # beliefs do not change
    (1.0, 0.0)
    >>> rewards.learn(np.array([-1.0, -1.0, 3.0, 3.0]), used=(0.0, 1.0))  # a reward of 0 was success 0, and is now 1/4
    (0.25, 0.25)
    >>> rewards.of(np.zeros(2))
    (-1.0, 3.0)
    """

    def __init__(self, given: Range | None = None) -> None:
        self.given = given
        self.range = given
        self._recent: FloatArray = np.zeros(0)
        self._seen = 0
        self._extremes: FloatArray = np.array([np.inf, -np.inf])
        self._warned: set[str] = set()

    def of(self, values_R: FloatArray) -> Range:
        """The range of a step with these first rewards."""
        if self.range is not None:
            return self.range
        ordered = np.sort(_scored(values_R))
        return _covering(_recurring(ordered), ordered.size) if ordered.size else (0.0, 1.0)

    def learn(self, values_R: FloatArray, used: Range, quiet: bool = False) -> tuple[float, float]:
        """Learns from the rewards of a step that has ended.

        Args:
            values_R: Rewards, shape (R,); NaN for a missing reward.
            used: The range of that step, as returned by `of`.
            quiet: Whether to suppress warnings.

        Returns:
            Scale and shift: a success u in the old range is scale * u + shift in the new one.
        """
        scored_R = _scored(values_R)
        if not scored_R.size:
            return 1.0, 0.0
        self._seen += scored_R.size
        self._extremes = np.array(
            [min(self._extremes[0], scored_R.min()), max(self._extremes[1], scored_R.max())]
        )
        if self.given is not None:
            if not quiet:
                self._warn_if_misfit(self.given)
            return 1.0, 0.0
        self._recent = np.concatenate([self._recent, scored_R])[-max(_RECENT, scored_R.size) :]
        before, ordered = self.range or used, np.sort(self._recent)
        near, (low, high) = _near(ordered), _recurring(ordered)
        edge = EQUAL * _width(before)  # ignores rounding errors of float32 sums
        after = (
            low if low < before[0] - edge else before[0],
            high if high > before[1] + edge else before[1],
        )
        kept = (low, high) if _equal(*_core(ordered)) else (float(near[0]), float(near[-1]))
        narrow = _covering(kept, ordered.size)
        if not _equal(*kept) and _width(before) >= _UNUSED * _width(narrow) * (1 - EQUAL):
            after = narrow
        self.range = after
        if not quiet:
            self._warn_of_outliers(scored_R, after)
        return change(before, after)

    def _warn_of_outliers(self, scored_R: FloatArray, learned: Range) -> None:
        low, high = learned
        outside_R = np.maximum(low - scored_R, scored_R - high)
        if outside_R.max() > _LONE * (high - low) and "outlier" not in self._warned:
            self._warned.add("outlier")
            logger.warning(
                "A reward of %g lies far outside the range of the other rewards, %g to %g. "
                "Training uses it unchanged; "
                "for the beliefs it is clipped (counted in budgetalloc/rewards_clipped). If such "
                "rewards recur, the "
                "range grows to contain them. Pass reward_range= to set the range.",
                scored_R[outside_R.argmax()],
                low,
                high,
            )

    def _warn_if_misfit(self, given: Range) -> None:
        low, high = self._extremes
        edge = EQUAL * _width(given)
        if (low < given[0] - edge or high > given[1] + edge) and "narrow" not in self._warned:
            self._warned.add("narrow")
            logger.warning(
                "reward_range=%s: rewards from %g to %g were observed. Training uses them "
                "unchanged; for the beliefs, "
                "rewards outside the range are clipped (counted in budgetalloc/rewards_clipped). "
                "Pass a wider range, "
                "or leave out reward_range, so that it is learned.",
                given,
                low,
                high,
            )
        if (
            self._seen >= _RECENT
            and 0 < high - low < _width(given) / _WIDE
            and "wide" not in self._warned
        ):
            self._warned.add("wide")
            logger.warning(
                "reward_range=%s is more than %g times as wide as the %d rewards so far, from %g "
                "to %g: the beliefs "
                "about different prompts are nearly equal. Pass a narrower range, or leave out "
                "reward_range, so that "
                "it is learned.",
                given,
                _WIDE,
                self._seen,
                low,
                high,
            )

    def state_dict(self) -> dict[str, Any]:
        """The state in JSON types, for `load_state_dict`."""
        return {
            "range": None if self.range is None else list(self.range),
            "recent": self._recent.tolist(),
            "seen": self._seen,
            "extremes": self._extremes.tolist() if self._seen else None,
        }

    def load_state_dict(self, state: dict[str, Any], factor: float = 1.0) -> tuple[float, float]:
        """Restores a saved state, whose rewards are multiplied by `factor`; a range given by the
        user is kept.

        Returns:
            Scale and shift, as `learn` does.

        Raises:
            StateError: the state is damaged, or the given range does not contain the saved one.
                Nothing is changed.
        """
        try:
            ends = state["range"]
            saved = None if ends is None else (factor * float(ends[0]), factor * float(ends[1]))
            recent = factor * np.array(state["recent"], dtype=np.float64).reshape(-1)
            seen = int(state["seen"])
            extremes = factor * np.array(
                state["extremes"] or [np.inf, -np.inf], dtype=np.float64
            ).reshape(2)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StateError(
                f"The state does not hold a range of rewards: it is damaged. {error}"
            ) from error
        if saved is not None and not (np.isfinite(saved).all() and saved[0] < saved[1]):
            raise StateError(
                f"The state's range of rewards {saved} is not two ascending numbers: it is damaged."
            )
        scale, shift = (1.0, 0.0) if saved is None else change(saved, self.given or saved)
        if shift < -EQUAL or scale + shift > 1 + EQUAL:
            raise StateError(
                f"reward_range={self.given}: the beliefs of the checkpoint are about rewards in "
                f"{saved}, which lies "
                "partly outside. Pass a range that contains both, or leave out reward_range to "
                "continue with that of "
                "the checkpoint."
            )
        self.range, self._recent, self._seen, self._extremes = (
            self.given or saved,
            recent,
            seen,
            extremes,
        )
        return scale, shift


def change(before: Range, after: Range) -> tuple[float, float]:
    """Scale and shift: a reward that has success u in one range has scale * u + shift in the other.

    >>> change((0.0, 1.0), (-1.0, 3.0))
    (0.25, 0.25)
    """
    width = _width(after)
    return _width(before) / width, (before[0] - after[0]) / width


def clipped(values_R: FloatArray, reward_range: Range) -> tuple[FloatArray, int]:
    """Rewards mapped to [0, 1] and clipped, and the number of clipped rewards.

    >>> clipped(np.array([-1.0, 0.5, np.nan]), (0.0, 1.0))
    (array([0. , 0.5, nan]), 1)
    """
    unit_R = to_unit(values_R, reward_range)
    return np.clip(unit_R, 0.0, 1.0), int(np.sum((unit_R < 0) | (unit_R > 1)))  # False for NaN


def _scored(values_R: FloatArray) -> FloatArray:
    """The rewards that are not NaN, clipped to `_HUGE`."""
    return np.clip(values_R[~np.isnan(values_R)], -_HUGE, _HUGE)


def _width(reward_range: Range) -> float:
    return reward_range[1] - reward_range[0]


def _equal(low: float, high: float) -> bool:
    """Whether two rewards are equal up to rounding."""
    return high - low <= EQUAL * max(1.0, abs(low), abs(high))


def _core(ordered: FloatArray) -> Range:
    """Lowest and highest reward without 0.5 % on each side (at least one), or of all if there are
    fewer than 8."""
    few = max(1, ordered.size // 200) if ordered.size >= 8 else 0
    return float(ordered[few]), float(ordered[-1 - few])


def _near(ordered: FloatArray) -> FloatArray:
    """The rewards within four widths of the core; all of them if the core has no width."""
    low, high = _core(ordered)
    far = _WIDE * (high - low)
    return (
        ordered if _equal(low, high) else ordered[(ordered >= low - far) & (ordered <= high + far)]
    )


def _recurring(ordered: FloatArray) -> Range:
    """Lowest and highest reward without outliers, which `RewardRange` defines. A single reward
    above equal ones is kept as a first success, and of fewer than 8 rewards all are kept."""
    near = _near(ordered)
    low, high = float(near[0]), float(near[-1])
    if near.size < 8:
        return low, high
    second, last = float(near[1]), float(near[-2])
    if _equal(second, last):
        return second, high
    far = _LONE * (last - second)
    return second if second - low > far else low, last if high - last > far else high


def _covering(seen: Range, rewards: int) -> Range:
    """(0, 1) if it contains the rewards seen, else a range around them, with a margin if they are
    few or equal."""
    low, high = seen
    if low >= -EQUAL and high <= 1 + EQUAL:
        return 0.0, 1.0
    if _equal(low, high):
        return low - 0.5 - abs(low), high + 0.5 + abs(high)
    margin = max(_ENOUGH / rewards - 1, 0.0) / 2 * (high - low)
    return low - margin, high + margin
