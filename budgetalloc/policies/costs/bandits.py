"""Bandits for one setting of a run, such as group size or temperature, whose best value changes over time.

    bandit = discounted_ucb([4, 8, 16])
    group = bandit.choose()
    bandit.observe(group, reward)       # a reward in [0, 1], such as the share of mixed groups

The three rules are those that arXiv 2308.01028 compares for payment routing, with the standard formulas. ADEPT (arXiv
2501.12620) uses the values of a training setting as arms. We did not find the constants of either paper.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, StateError, check_integer, check_list, check_number, shown

__all__ = ["Bandit", "Scores", "discounted_thompson", "discounted_ucb", "sliding_window_ucb"]

Scores = Callable[[FloatArray, FloatArray, int, np.random.Generator], FloatArray]
"""(pulls_A, rewards_A, time, rng) -> scores_A, from the discounted pulls and sums of rewards of each arm."""


class Bandit:
    """Chooses one of a few arms by their past rewards, with old rewards weighted less.

    The functions below build one. Only observing changes the state. A reward may arrive late, or belong to another arm
    than the one chosen. Ties go to the first arm.

    Args:
        name: Name of the bandit, with its settings.
        arms: The values to choose among, each once.
        scores: The rule.
        discount: Factor on the pulls and rewards of all arms at each reward.
        window: Number of rewards kept; `None` keeps all.
        seed: Seeds the draws.
    """

    def __init__(
        self,
        name: str,
        arms: list[Hashable],
        scores: Scores,
        discount: float = 1.0,
        window: int | None = None,
        seed: int = 0,
    ) -> None:
        if not arms or not all(isinstance(arm, Hashable) for arm in arms) or len(set(arms)) < len(arms):
            raise InputError(f"arms={shown(arms)}: give at least one, each once, such as [4, 8, 16].")
        self.name, self.arms, self.time = name, arms, 0
        self._scores, self._discount, self._window, self._seed = scores, discount, window, seed
        self._pulls_A, self._rewards_A = np.zeros(len(arms)), np.zeros(len(arms))
        self._recent: deque[tuple[int, float]] = deque(maxlen=window)

    def __repr__(self) -> str:
        return self.name

    def scores(self) -> FloatArray:
        """The score of each arm now, shape (A,)."""
        rng = np.random.default_rng([self._seed, self.time])
        return self._scores(self._pulls_A, self._rewards_A, self.time, rng)

    def choose(self) -> Any:
        """The arm to use next."""
        return self.arms[int(np.argmax(self.scores()))]

    def observe(self, arm: Hashable, reward: float) -> None:
        """A reward in [0, 1] of one use of an arm."""
        if not isinstance(arm, Hashable) or arm not in self.arms:
            raise InputError(f"arm={shown(arm)}: use one of {self.arms}.")
        at, reward = self.arms.index(arm), check_number("reward", reward, 0, 1)
        self._pulls_A *= self._discount
        self._rewards_A *= self._discount
        self._pulls_A[at] += 1.0
        self._rewards_A[at] += reward
        if self._window is not None:  # recompute the sums: rounding errors do not accumulate
            self._recent.append((at, reward))
            arm_W, reward_W = zip(*self._recent, strict=True)
            self._pulls_A = np.bincount(arm_W, minlength=len(self.arms)).astype(np.float64)
            self._rewards_A = np.bincount(arm_W, reward_W, minlength=len(self.arms)).astype(np.float64)
        self.time += 1

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, in types that JSON can hold."""
        return {
            "name": self.name,
            "time": self.time,
            "pulls": self._pulls_A.tolist(),
            "rewards": self._rewards_A.tolist(),
            "recent": [[at, reward] for at, reward in self._recent],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()` to the bit; raises `StateError` and changes nothing if it does not fit."""
        try:
            name, time = state["name"], check_integer("time", state["time"], 0, 2**62)
            pulls_A, rewards_A = (np.array(state[key], dtype=np.float64) for key in ("pulls", "rewards"))
            rows = [(int(at), check_number("recent", reward, 0, 1)) for at, reward in state["recent"]]
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise StateError(
                f"The state is damaged or not that of a bandit ({type(error).__name__}: {error})."
            ) from error
        if not isinstance(name, str) or name != self.name:
            raise StateError(
                f"The state was saved by {shown(name)}, and this bandit is {self.name}: build the bandit with the "
                "arguments of the saved one."
            )
        arms = len(self.arms)
        whole = pulls_A.shape == rewards_A.shape == (arms,) and all(0 <= at < arms for at, _ in rows)
        if not whole or not ((rewards_A >= 0) & (rewards_A <= pulls_A)).all():
            raise StateError(f"The state of {name} does not hold pulls and rewards of {arms} arms: it is damaged.")
        self.time, self._pulls_A, self._rewards_A = time, pulls_A, rewards_A
        self._recent = deque(rows, maxlen=self._window)


def discounted_ucb(arms: Iterable[Hashable], *, discount: float = 0.99, xi: float = 0.6, bound: float = 1.0) -> Bandit:
    """The arm of the largest X + 2 B sqrt(xi ln(sum N) / N), with N its discounted pulls and X its mean reward.

    A discount d remembers 1 / (1 - d) rewards: 100 by default, because a language model drifts over hundreds of steps.
    arXiv 2308.01028 found 0.6 best for a fast-changing channel.

    Args:
        arms: The values to choose among; each is used once first, in this order.
        discount: Factor on the pulls and rewards of all arms at each reward, in (0, 1].
        xi: Width of the bonus, at least 0. The default is ours.
        bound: B, the largest reward, in (0, 1]; less than 1 explores less.

    >>> bandit = discounted_ucb(["short", "long"], discount=0.5)
    >>> for reward in (0.0, 1.0, 1.0):
    ...     bandit.observe(bandit.choose(), reward)
    >>> bandit.choose(), bandit.state_dict()["pulls"]
    ('short', [0.25, 1.5])
    """
    arms = check_list("arms", arms, "the values to choose among, such as [4, 8, 16]")
    check_number("discount", discount, 0, 1, without=(0,))
    _check_bonus(xi, bound)

    def scores(pulls_A: FloatArray, rewards_A: FloatArray, time: int, rng: np.random.Generator) -> FloatArray:
        return _upper_bounds(pulls_A, rewards_A, 2 * bound, xi * np.log(max(pulls_A.sum(), 1.0)))

    return Bandit(f"discounted_ucb({arms}, discount={discount}, xi={xi}, bound={bound})", arms, scores, discount)


def sliding_window_ucb(arms: Iterable[Hashable], *, window: int = 200, xi: float = 0.6, bound: float = 1.0) -> Bandit:
    """The arm of the largest X + B sqrt(xi ln(min(t, w)) / N), with N and X its pulls and mean of the last w rewards.

    An arm without rewards in the window is chosen next. 200 is the window of arXiv 2308.01028.

    Args:
        arms: The values to choose among; each is used once first, in this order.
        window: w, rewards remembered, at least 1.
        xi, bound: As in `discounted_ucb`.

    >>> bandit = sliding_window_ucb([4, 8], window=3)
    >>> for _ in range(4):
    ...     bandit.observe(bandit.choose(), 0.5)
    >>> bandit.state_dict()["recent"]
    [[1, 0.5], [0, 0.5], [1, 0.5]]
    """
    arms = check_list("arms", arms, "the values to choose among, such as [4, 8, 16]")
    check_integer("window", window, 1)
    _check_bonus(xi, bound)

    def scores(pulls_A: FloatArray, rewards_A: FloatArray, time: int, rng: np.random.Generator) -> FloatArray:
        return _upper_bounds(pulls_A, rewards_A, bound, xi * np.log(max(min(time, window), 1)))

    return Bandit(f"sliding_window_ucb({arms}, window={window}, xi={xi}, bound={bound})", arms, scores, window=window)


def discounted_thompson(
    arms: Iterable[Hashable],
    *,
    discount: float = 0.99,
    prior: tuple[float, float] = (1.0, 1.0),
    seed: int = 0,
) -> Bandit:
    """The arm with the largest draw from Beta(a0 + S, b0 + F), with S and F its discounted successes and failures.

    A reward r discounts all arms, S <- g S and F <- g F, and then adds r to S and 1 - r to F of its own arm. The prior
    is not discounted: the belief about an unused arm returns to it. The defaults of discount and prior are ours.

    Args:
        arms: The values to choose among.
        discount: g, in (0, 1].
        prior: a0 and b0, positive.
        seed: Seeds the draws.

    >>> bandit = discounted_thompson([0.6, 1.0], discount=0.5, seed=1)
    >>> for _ in range(3):
    ...     bandit.observe(0.6, 1.0)
    >>> bandit.state_dict()["rewards"], bandit.choose()
    ([1.75, 0.0], 0.6)
    """
    arms = check_list("arms", arms, "the values to choose among, such as [4, 8, 16]")
    check_number("discount", discount, 0, 1, without=(0,))
    if not isinstance(prior, (tuple, list)) or len(prior) != 2:
        raise InputError(f"prior={shown(prior)}: give two positive numbers, such as (1.0, 1.0).")
    a0, b0 = (check_number(f"prior[{k}]", prior[k], 0, np.finfo(float).max, without=(0,)) for k in (0, 1))

    def scores(pulls_A: FloatArray, rewards_A: FloatArray, time: int, rng: np.random.Generator) -> FloatArray:
        return rng.beta(a0 + rewards_A, b0 + np.maximum(pulls_A - rewards_A, 0.0))

    name = f"discounted_thompson({arms}, discount={discount}, prior={prior}, seed={seed})"
    return Bandit(name, arms, scores, discount, seed=check_integer("seed", seed, 0))


def _check_bonus(xi: float, bound: float) -> None:
    check_number("xi", xi, 0, np.finfo(float).max)
    check_number("bound", bound, 0, 1, without=(0,))


def _upper_bounds(pulls_A: FloatArray, rewards_A: FloatArray, width: float, spread: float) -> FloatArray:
    """Mean reward plus width * sqrt(spread / pulls); infinite for an arm without pulls."""
    n_A = np.where(pulls_A > 0, pulls_A, np.nan)
    return np.where(pulls_A > 0, rewards_A / n_A + width * np.sqrt(spread / n_A), np.inf)
