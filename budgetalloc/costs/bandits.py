"""Bandits for one knob of a run, such as rollouts per prompt or temperature, whose best setting changes in time.

    bandit = discounted_ucb([4, 8, 16])
    group = bandit.choose()
    bandit.observe(group, reward)       # a reward in [0, 1], such as the share of mixed groups

The three rules are the ones compared for payment routing in arXiv 2308.01028; that the arms may be the values of a
training knob is ADEPT's idea (arXiv 2501.12620). The formulas are the standard ones: neither paper's constants are
known to us.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, StateError, check_integer, check_number

Scores = Callable[[FloatArray, FloatArray, int, np.random.Generator], FloatArray]
"""(pulls_K, rewards_K, time, rng) -> scores_K; pulls and sums of rewards of each arm, faded."""


def discounted_ucb_scores(pulls_K: FloatArray, rewards_K: FloatArray, xi: float, bound: float) -> FloatArray:
    """X + 2 B sqrt(xi ln(sum N) / N), with N the faded pulls of an arm and X its faded mean; infinite where N = 0.

    >>> discounted_ucb_scores(np.array([2.0, 1.0]), np.array([1.0, 1.0]), xi=0.5, bound=0.5).round(4)
    array([1.0241, 1.7412])
    """
    return _scores(pulls_K, rewards_K, 2 * bound, xi * np.log(max(pulls_K.sum(), 1.0)))


def sliding_window_ucb_scores(
    pulls_K: FloatArray, rewards_K: FloatArray, time: int, window: int, xi: float, bound: float
) -> FloatArray:
    """X + B sqrt(xi ln(min(t, w)) / N), with N the pulls of an arm among the last w and X their mean reward.

    >>> pulls_K, rewards_K = np.array([2.0, 1.0]), np.array([1.0, 1.0])
    >>> sliding_window_ucb_scores(pulls_K, rewards_K, time=9, window=3, xi=0.5, bound=1).round(4)
    array([1.0241, 1.7412])
    """
    return _scores(pulls_K, rewards_K, bound, xi * np.log(max(min(time, window), 1)))


def _scores(pulls_K: FloatArray, rewards_K: FloatArray, width: float, spread: float) -> FloatArray:
    pulled_K = pulls_K > 0
    scores_K = np.full(len(pulls_K), np.inf)
    scores_K[pulled_K] = rewards_K[pulled_K] / pulls_K[pulled_K] + width * np.sqrt(spread / pulls_K[pulled_K])
    return scores_K


class Bandit:
    """Chooses one of a few settings by the rewards that it brought, of which the old ones count less.

    Built by the functions below. Choosing changes nothing, only observing does; a reward may come late, or belong to
    another arm than the one chosen. Ties go to the first arm.

    Args:
        name: With its settings.
        arms: The settings, each once.
        scores: The rule.
        discount: What remains of every arm's evidence at each reward.
        window: How many rewards are remembered; `None` is all.
        seed: Of draws.
    """

    def __init__(
        self, name: str, arms: Iterable[Hashable], scores: Scores, discount: float, window: int | None, seed: int = 0
    ) -> None:
        self.name = name
        self.arms = list(arms)
        if not self.arms or len(set(self.arms)) < len(self.arms):
            raise InputError(f"arms={self.arms!r}: give at least one, and each once.")
        self.time = 0
        self._scores, self._discount, self._seed = scores, discount, seed
        self._pulls_K = np.zeros(len(self.arms))
        self._rewards_K = np.zeros(len(self.arms))
        self._recent: deque[tuple[int, float]] = deque(maxlen=window)
        self._windowed = window is not None

    def __repr__(self) -> str:
        return self.name

    def scores(self) -> FloatArray:
        """What the rule makes of each arm now, shape (K,)."""
        rng = np.random.default_rng([self._seed, self.time])
        return self._scores(self._pulls_K, self._rewards_K, self.time, rng)

    def choose(self) -> Any:
        """The arm to use next."""
        return self.arms[int(np.argmax(self.scores()))]

    def observe(self, arm: Hashable, reward: float) -> None:
        """A reward in [0, 1] of one use of an arm."""
        if arm not in self.arms:
            raise InputError(f"arm={arm!r}: use one of {self.arms}.")
        at, reward = self.arms.index(arm), check_number("reward", reward, 0, 1)
        if self._windowed:
            self._recent.append((at, reward))
            arm_W, reward_W = np.array(self._recent).T
            self._pulls_K = np.bincount(arm_W.astype(np.int64), minlength=len(self.arms)).astype(np.float64)
            rewards_K = np.bincount(arm_W.astype(np.int64), weights=reward_W, minlength=len(self.arms))
            self._rewards_K = rewards_K.astype(np.float64)
        else:
            self._pulls_K *= self._discount
            self._rewards_K *= self._discount
            self._pulls_K[at] += 1.0
            self._rewards_K[at] += reward
        self.time += 1

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, in what JSON can hold."""
        return {
            "name": self.name,
            "time": self.time,
            "pulls": self._pulls_K.tolist(),
            "rewards": self._rewards_K.tolist(),
            "recent": [[at, reward] for at, reward in self._recent],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()` to the bit; raises `StateError` and changes nothing if it does not fit."""
        try:
            name, time = state["name"], int(state["time"])
            pulls_K, rewards_K = (np.array(state[key], dtype=np.float64) for key in ("pulls", "rewards"))
            recent = [(int(at), float(reward)) for at, reward in state["recent"]]
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"This is no state of a bandit, or damaged ({type(error).__name__}: {error}).") from error
        if name != self.name:
            raise StateError(f"The state was saved by {name}, this is {self.name}: build it with the same arguments.")
        arms = len(self.arms)
        whole = pulls_K.shape == rewards_K.shape == (arms,) and all(0 <= at < arms for at, _ in recent)
        if not whole or not ((rewards_K >= 0) & (rewards_K <= pulls_K)).all():
            raise StateError(f"The state of {name} does not hold pulls and rewards of {arms} arms: it is damaged.")
        self.time, self._pulls_K, self._rewards_K = time, pulls_K, rewards_K
        self._recent = deque(recent, maxlen=self._recent.maxlen)


def discounted_ucb(arms: Iterable[Hashable], *, discount: float = 0.99, xi: float = 0.6, bound: float = 1.0) -> Bandit:
    """The arm of the largest faded mean plus a bonus for being little used (`discounted_ucb_scores`).

    arXiv 2308.01028 found a discount of 0.6 best for its fast-changing channel: that remembers 1 / (1 - 0.6) = 2.5
    rewards. A language model drifts over hundreds of steps; 0.99 (100 rewards) is our default.

    Args:
        arms: The settings to choose among; each is used once first, in this order.
        discount: Of the evidence of all arms at each reward, in (0, 1].
        xi: Width of the bonus, not negative; ours.
        bound: B, the largest reward; less than 1 explores less.

    >>> bandit = discounted_ucb(["short", "long"], discount=0.5)
    >>> for reward in (0.0, 1.0, 1.0):
    ...     bandit.observe(bandit.choose(), reward)
    >>> bandit.choose(), bandit.state_dict()["pulls"]
    ('short', [0.25, 1.5])
    """
    arms = list(arms)
    check_number("discount", discount, 0, 1, without=(0,))
    check_number("xi", xi, 0, np.finfo(float).max)
    check_number("bound", bound, 0, 1, without=(0,))

    def scores(pulls_K: FloatArray, rewards_K: FloatArray, time: int, rng: np.random.Generator) -> FloatArray:
        return discounted_ucb_scores(pulls_K, rewards_K, xi, bound)

    name = f"discounted_ucb({arms}, discount={discount}, xi={xi}, bound={bound})"
    return Bandit(name, arms, scores, discount, None)


def sliding_window_ucb(arms: Iterable[Hashable], *, window: int = 200, xi: float = 0.6, bound: float = 1.0) -> Bandit:
    """The arm of the largest mean among the last `window` rewards, plus a bonus (`sliding_window_ucb_scores`).

    An arm that left the window is used again at once. 200 is the window of arXiv 2308.01028.

    Args:
        arms: The settings to choose among; each is used once first, in this order.
        window: Rewards remembered, at least 1.
        xi: Width of the bonus, not negative; ours.
        bound: B, the largest reward; less than 1 explores less.

    >>> bandit = sliding_window_ucb([4, 8], window=3)
    >>> for _ in range(4):
    ...     bandit.observe(bandit.choose(), 0.5)
    >>> bandit.state_dict()["recent"]
    [[1, 0.5], [0, 0.5], [1, 0.5]]
    """
    arms = list(arms)
    check_integer("window", window, 1)
    check_number("xi", xi, 0, np.finfo(float).max)
    check_number("bound", bound, 0, 1, without=(0,))

    def scores(pulls_K: FloatArray, rewards_K: FloatArray, time: int, rng: np.random.Generator) -> FloatArray:
        return sliding_window_ucb_scores(pulls_K, rewards_K, time, window, xi, bound)

    name = f"sliding_window_ucb({arms}, window={window}, xi={xi}, bound={bound})"
    return Bandit(name, arms, scores, 1.0, window)


def discounted_thompson(
    arms: Iterable[Hashable],
    *,
    discount: float = 0.99,
    prior: tuple[float, float] = (1.0, 1.0),
    seed: int = 0,
) -> Bandit:
    """The arm with the largest draw from Beta(a0 + S, b0 + F), S and F being its faded successes and failures.

    At each reward r all arms fade, S <- g S and F <- g F, then the used one gets S + r and F + 1 - r. To fade S only at
    a success and F only at a failure, as some code does, would not forget. The prior does not fade, so that an arm left
    alone returns to it; both of its numbers are ours.

    Args:
        arms: The settings to choose among.
        discount: g, in (0, 1].
        prior: a0 and b0, positive.
        seed: Of the draws.

    >>> bandit = discounted_thompson([0.6, 1.0], discount=0.5, seed=1)
    >>> for _ in range(3):
    ...     bandit.observe(0.6, 1.0)
    >>> bandit.state_dict()["rewards"], bandit.choose()
    ([1.75, 0.0], 0.6)
    """
    arms = list(arms)
    check_number("discount", discount, 0, 1, without=(0,))
    a0, b0 = (check_number(f"prior[{k}]", prior[k], 0, np.finfo(float).max, without=(0,)) for k in (0, 1))

    def scores(pulls_K: FloatArray, rewards_K: FloatArray, time: int, rng: np.random.Generator) -> FloatArray:
        return rng.beta(a0 + rewards_K, b0 + np.maximum(pulls_K - rewards_K, 0.0))

    name = f"discounted_thompson({arms}, discount={discount}, prior={prior}, seed={seed})"
    return Bandit(name, arms, scores, discount, None, check_integer("seed", seed, 0))
