"""Finds a reward function that returns one value only."""

from collections import deque

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import extremes, unequal
from budgetalloc.budget import IntArray

__all__ = ["ConstantScores"]

_GROUPS, _STEPS = 256, 4  # groups and steps of a window, at least
_SHARE = 1 / 8  # of the groups of the window before


class ConstantScores:
    """The scores of one reward function: whether they have stopped to vary, or never varied.

    Two windows of at least 256 groups and 4 steps each are compared. The function has stopped if all scores of the
    last window are equal, and at least 1/8 of the groups of the window before it had another score. Groups count rather
    than rollouts, because rollouts of one prompt are alike.

    If the groups of both windows are exchangeable, that has a probability below 2**-32. A rate of other scores that
    halves from window to window, as when nearly all prompts become solved, leaves about 16 expected ones in the last
    window, and none with probability 1e-7. A function whose other scores are rarer than 1/8 is never reported.

    >>> scores, group_G = ConstantScores(), np.arange(64)
    >>> for step in range(8):
    ...     scores.add(np.arange(64) % 2 if step < 4 else np.zeros(64), group_G)
    >>> scores.stopped, scores.varied, scores.value
    (True, True, 0.0)
    """

    def __init__(self) -> None:
        self._steps: deque[tuple[FloatArray, FloatArray]] = deque()  # lowest and highest score of each group
        self._low, self._high = np.inf, -np.inf
        self.groups = 0
        """Groups with a score."""
        self.value = np.nan
        """The newest score."""
        self.stopped = False
        """Whether a window had one score only, unlike the window before, and no other score came since."""

    @property
    def varied(self) -> bool:
        """Whether there were ever two different scores."""
        return bool(self.groups) and bool(unequal(np.array([self._low]), np.array([self._high]))[0])

    @property
    def never_varied(self) -> bool:
        """Whether two windows have passed without two different scores."""
        return self.groups >= 2 * _GROUPS and not self.varied

    def add(self, scores_R: FloatArray, group_R: IntArray) -> None:
        """Adds a step: the score of each rollout, NaN for none, and the number of its group."""
        scored_R = ~np.isnan(scores_R)
        if not scored_R.any():
            return
        _, group_R = np.unique(group_R[scored_R], return_inverse=True)
        low_G, high_G = extremes(scores_R[scored_R], group_R, int(group_R.max()) + 1)
        self._steps.append((low_G, high_G))
        self._low, self._high = min(self._low, low_G.min()), max(self._high, high_G.max())
        self.groups += len(low_G)
        ends = np.array([self.value, low_G.min(), high_G.max()])
        still = self.stopped and not unequal(ends.min(keepdims=True), ends.max(keepdims=True))[0]
        self.value = float(scores_R[scored_R][-1])
        self.stopped = bool(still) or self._compare()

    def _compare(self) -> bool:
        last = self._window(len(self._steps))
        before = None if last is None else self._window(last)
        if last is None or before is None:
            return False
        for _ in range(before):
            self._steps.popleft()
        steps = list(self._steps)
        low, high = (np.concatenate([step[k] for step in steps[last - before :]]) for k in (0, 1))
        if unequal(low.min(keepdims=True), high.max(keepdims=True))[0]:
            return False
        low_G, high_G = (np.concatenate([step[k] for step in steps[: last - before]]) for k in (0, 1))
        value_G = np.full(len(low_G), low[0])
        return bool((unequal(np.minimum(low_G, value_G), np.maximum(high_G, value_G))).mean() >= _SHARE)

    def _window(self, end: int) -> int | None:
        """The first step of the window that ends before step `end`; None if there are too few."""
        groups = 0
        for at in range(end - 1, -1, -1):
            groups += len(self._steps[at][0])
            if groups >= _GROUPS and end - at >= _STEPS:
                return at
        return None
