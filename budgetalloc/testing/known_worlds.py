"""Small worlds with given success rates, for tests in which the best allocation is known."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.ids import Id, check_ids
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import (
    InputError,
    check_array,
    check_integer,
    check_seed,
    check_type,
    import_optional,
    short_repr,
)
from budgetalloc.logs.ledger import Ledger

_MOST = 10**7  # entries of a world, and rows of its log


class Known:
    """A world of prompts 0 to P - 1 with given success rates. Training does not change them.

    Args:
        rates_SP: The rate of each prompt at each step, in [0, 1], shape (S, P) or (P,). The last
            row stays.
        seed: The seed of the rollouts.

    >>> world = Known([[0.0, 1.0], [1.0, 0.0]])
    >>> world.rollout([0, 1, 1]), world.success()
    (array([0., 1., 1.]), 0.5)
    >>> world.learn([0, 0, 0])
    >>> world.rates([0, 1])
    array([1., 0.])
    """

    def __init__(self, rates_SP: ArrayLike, *, seed: int = 0) -> None:
        rates = check_array("rates_SP", rates_SP, "rates in [0, 1], a row per step")
        self.rates_SP = np.atleast_2d(rates)
        inside = ((self.rates_SP >= 0) & (self.rates_SP <= 1)).all()
        if self.rates_SP.ndim != 2 or not self.rates_SP.size or not inside:
            raise InputError(
                "rates_SP",
                "give rates in [0, 1], a row per step, such as [[0.0, 0.5, 1.0]].",
                rates_SP,
            )
        self.ids: list[Id] = list(range(self.rates_SP.shape[1]))
        self.step = 0
        self._rng = np.random.default_rng(check_seed(seed))

    def rates(self, ids_P: Iterable[Any]) -> FloatArray:
        """The current rates of these prompts, shape (P,)."""
        now_P = self.rates_SP[min(self.step, len(self.rates_SP) - 1)]
        ids = check_ids(ids_P, "ids_P")
        wrong = next((x for x in ids if isinstance(x, str) or not 0 <= x < len(now_P)), None)
        if wrong is not None:
            raise InputError(
                f"The id {short_repr(wrong)} is not in this world: use 0 to {len(now_P) - 1} "
                "(world.ids)."
            )
        return np.asarray(now_P[np.array(ids, dtype=np.int64)])

    def rollout(self, ids_R: Iterable[Any]) -> FloatArray:
        """Rewards of 0 or 1 at the current rates, shape (R,)."""
        rate_R = self.rates(ids_R)
        return (self._rng.random(rate_R.size) < rate_R).astype(np.float64)

    def learn(self, advantages_R: ArrayLike) -> None:
        """Ends the step. The advantages are ignored."""
        self.step += 1

    def success(self) -> float:
        """The current mean rate."""
        return float(self.rates(self.ids).mean())


def three_kinds(prompts: int = 24, *, seed: int = 0) -> Known:
    """A third of the prompts never passes, a third passes half of the time, and a third always
    passes.

    The share of mixed groups is (1 - 2^(1-n)) / 3 with uniform counts n, and three times that with
    known rates.

    >>> three_kinds(6).rates_SP
    array([[0. , 0.5, 1. , 0. , 0.5, 1. ]])
    """
    check_integer("prompts", prompts, 1, _MOST)
    return Known(np.arange(prompts) % 3 / 2, seed=seed)


def rising(prompts: int = 24, steps: int = 40, *, seed: int = 0) -> Known:
    """The rate of every prompt rises by 0.5 in these steps, from a start between 0 and 0.5.

    >>> rising(3, 5).rates_SP[[0, 2, 4]]
    array([[0.  , 0.25, 0.5 ],
           [0.25, 0.5 , 0.75],
           [0.5 , 0.75, 1.  ]])
    """
    check_integer("prompts", prompts, 1, _MOST)
    check_integer("steps", steps, 1, _MOST // prompts)
    return Known(np.linspace(0, 0.5, steps)[:, None] + np.linspace(0, 0.5, prompts), seed=seed)


def turning(prompts: int = 24, steps: int = 40, *, seed: int = 0) -> Known:
    """Prompts of four kinds. Halfway, the prompts of rate 1/2 become solved, and half of the solved
    get rate 1/2.

    A policy that does not forget keeps the prompts that were mixed. A policy that never returns to
    solved prompts finds no mixed group.

    >>> turning(4, 2).rates_SP
    array([[0. , 0.5, 1. , 1. ],
           [0. , 1. , 0.5, 1. ]])
    """
    check_integer("prompts", prompts, 1, _MOST)
    check_integer("steps", steps, 1, _MOST // prompts)
    kind_P, half = np.arange(prompts) % 4, steps // 2
    before_P, after_P = np.array([0, 0.5, 1, 1])[kind_P], np.array([0, 1, 0.5, 1])[kind_P]
    return Known([before_P] * half + [after_P] * (steps - half), seed=seed)


def log_of(world: Known, steps: int, *, prompts: int = 8, group: int = 8, seed: int = 0) -> Ledger:
    """The log of a run with uniform counts: shuffled epochs, `prompts` per step, `group` rollouts
    of each.

    >>> ledger = log_of(three_kinds(6), steps=3, prompts=2, group=4)
    >>> ledger.frame.groupby("prompt").reward.sum().tolist()  # the rates are 0, 0.5, 1, 0, 0.5, 1
    [0.0, 2.0, 4.0, 0.0, 2.0, 4.0]
    """
    check_type("world", world, Known, "a world of ba.testing, such as three_kinds()")
    check_integer("prompts", prompts, 1, len(world.ids))
    check_integer("steps", steps, 1, _MOST // prompts)
    check_integer("group", group, 1, _MOST // (steps * prompts))
    rng, whole = np.random.default_rng(check_seed(seed)), len(world.ids) // prompts
    epochs = [rng.permutation(len(world.ids))[: whole * prompts] for _ in range(0, steps, whole)]
    ids_SR = np.repeat(np.concatenate(epochs).reshape(-1, prompts)[:steps], group, axis=1)
    rewards = []
    for step_ids in ids_SR:
        rewards.append(world.rollout(step_ids.tolist()))
        world.learn(np.zeros(len(step_ids)))
    pd = import_optional("pandas", "log_of", "logs")
    step_R = np.repeat(np.arange(steps), prompts * group)
    columns = {"step": step_R, "prompt": ids_SR.ravel().tolist(), "reward": np.concatenate(rewards)}
    return Ledger.of_frame(pd.DataFrame(columns))
