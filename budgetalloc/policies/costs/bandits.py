"""A bandit for one choice of a run, such as the domain to train on, whose best value changes over time.

bandit = SlidingWindowUCB(["math", "code"])
domain = bandit.choose()
bandit.observe(domain, reward)       # a reward in [0, 1], such as the mean |advantage|
"""

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, StateError, check_integer, check_list, check_number, shown

__all__ = ["SlidingWindowUCB"]


class SlidingWindowUCB:
    """Chooses the arm of the largest X + B sqrt(xi ln(min(t, w)) / N), with N and X its pulls and mean of w rewards.

    An arm without rewards in the window is chosen next, and ties go to the first arm. Only observing changes the state.
    A reward may arrive late, or belong to another arm than the one chosen. ADEPT (arXiv 2501.12620) uses the values of
    a training setting as arms. 200 is the window of arXiv 2308.01028, which compares such rules for payment routing.

    Args:
        arms: The values to choose among, each once; each is used once first, in this order.
        window: w, rewards remembered, at least 1.
        xi: Width of the bonus, at least 0. The default is ours.
        bound: B, the largest reward, in (0, 1]; less than 1 explores less.

    Raises:
        InputError: a bad argument.

    >>> bandit = SlidingWindowUCB([4, 8], window=3)
    >>> for _ in range(4):
    ...     bandit.observe(bandit.choose(), 0.5)
    >>> bandit.state_dict()["recent"]
    [[1, 0.5], [0, 0.5], [1, 0.5]]
    """

    def __init__(self, arms: Iterable[Hashable], *, window: int = 200, xi: float = 0.6, bound: float = 1.0) -> None:
        self.arms = check_list("arms", arms, "the values to choose among, such as [4, 8, 16]")
        if not self.arms or not all(isinstance(x, Hashable) for x in self.arms) or len(set(self.arms)) < len(self.arms):
            raise InputError(f"arms={shown(self.arms)}: give at least one, each once, such as [4, 8, 16].")
        self._xi, self._bound = (
            check_number("xi", xi, 0, np.finfo(float).max),
            check_number("bound", bound, 0, 1, without=(0,)),
        )
        self.time = 0
        """Rewards so far."""
        self._recent: deque[tuple[int, float]] = deque(maxlen=check_integer("window", window, 1))

    def scores(self) -> FloatArray:
        """The score of each arm now, shape (A,); infinite for an arm without rewards in the window."""
        pulls_A, rewards_A = np.zeros(len(self.arms)), np.zeros(len(self.arms))
        for at, reward in self._recent:
            pulls_A[at] += 1.0
            rewards_A[at] += reward
        n_A = np.where(pulls_A > 0, pulls_A, np.nan)
        spread = self._xi * np.log(max(len(self._recent), 1))
        return np.where(pulls_A > 0, rewards_A / n_A + self._bound * np.sqrt(spread / n_A), np.inf)

    def choose(self) -> Any:
        """The arm to use next."""
        return self.arms[int(np.argmax(self.scores()))]

    def observe(self, arm: Hashable, reward: float) -> None:
        """A reward in [0, 1] of one use of an arm; raises `InputError` for another arm or reward."""
        if not isinstance(arm, Hashable) or arm not in self.arms:
            raise InputError(f"arm={shown(arm)}: use one of {self.arms}.")
        self._recent.append((self.arms.index(arm), check_number("reward", reward, 0, 1)))
        self.time += 1

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, in types that JSON can hold."""
        return {"arms": len(self.arms), "time": self.time, "recent": [[at, reward] for at, reward in self._recent]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()` to the bit; raises `StateError` and changes nothing if it does not fit."""
        try:
            arms, time = state["arms"], check_integer("time", state["time"], 0, 2**62)
            rows = [(int(at), check_number("recent", reward, 0, 1)) for at, reward in state["recent"]]
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise StateError(
                f"The state is damaged or not that of a bandit ({type(error).__name__}: {error})."
            ) from error
        if arms != len(self.arms):
            raise StateError(f"The state is of a bandit with {shown(arms)} arms, and this one has {len(self.arms)}.")
        if not all(0 <= at < len(self.arms) for at, _ in rows) or len(rows) > time:
            raise StateError("The state of the bandit has rewards of unknown arms or steps: it is damaged.")
        self.time, self._recent = time, deque(rows, maxlen=self._recent.maxlen)
