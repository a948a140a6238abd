"""The figures of one replayed step: how much was modelled, and which groups are mixed at least and
at most."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.ids import Id, check_ids, factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import mixed_groups
from budgetalloc.offline.replay import Replay

__all__ = ["ReplayMonitor", "mixed_bounds"]


def mixed_bounds(
    ids_R: Iterable[Any], rewards_R: ArrayLike, modelled_R: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Bounds on which groups of a step are mixed, over all possible modelled rewards.

    Args:
        ids_R: The prompt of each rollout; the rollouts of a prompt are a group.
        rewards_R: The reward of each.
        modelled_R: Whether the reward is modelled.

    Returns:
        One entry per group, in order of first appearance: its rollouts; whether it is mixed;
            whether it is mixed for
        any modelled rewards; and whether it is mixed for some.

    >>> mixed_bounds(["a", "a", "b", "b", "c", "d", "d"], [0, 1, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 0, 0])
    (array([2, 2, 1, 2]), array([ True,  True, False, False]), array([ True, False, False, False]),
     array([ True,  True, False, False]))
    """
    _, group_R = factorize(check_ids(ids_R, "ids_R"))
    rewards, modelled = np.asarray(rewards_R, dtype=np.float64), np.asarray(modelled_R, dtype=bool)
    size_G = np.bincount(group_R)
    mixed_G = mixed_groups(rewards, group_R, len(size_G))
    at_least_G = mixed_groups(rewards[~modelled], group_R[~modelled], len(size_G))
    modelled_G = np.bincount(group_R, weights=modelled, minlength=len(size_G)) > 0
    return size_G, mixed_G, at_least_G, at_least_G | (modelled_G & (size_G > 1))


class ReplayMonitor:
    """A `World` around a `Replay` that computes the figures of each step from the replay's
    answers."""

    def __init__(self, world: Replay) -> None:
        self.world, self.ids = world, world.ids
        # of the current step
        self._rounds: list[tuple[list[Id], FloatArray, NDArray[np.bool_]]] = []
        self.figures: dict[str, float] = {}
        """Of the last step: see `budgetalloc.offline.comparison.comparisons`."""

    def rollout(self, ids_R: Iterable[Any]) -> FloatArray:
        ids = list(ids_R)
        rewards_R = self.world.rollout(ids)
        self._rounds.append((ids, rewards_R, self.world.modelled_R))
        return rewards_R

    def learn(self, advantages_R: ArrayLike) -> None:
        ids_R = [name for ids, _, _ in self._rounds for name in ids]
        rewards_R, modelled_R = (
            np.concatenate([part[at] for part in self._rounds]) for at in (1, 2)
        )
        self._rounds.clear()
        size_G, mixed_G, at_least_G, at_most_G = mixed_bounds(ids_R, rewards_R, modelled_R)
        modelled = float(modelled_R.mean())
        self.figures = {
            "generated": len(ids_R),
            "signal": float(np.mean(4 * self.world.variances(ids_R))),
            "drawn": 1.0 - modelled,
            "modelled": modelled,
            "mixed": int(mixed_G.sum()),
            "at_least": float(size_G[at_least_G].sum() / len(ids_R)),
            "at_most": float(size_G[at_most_G].sum() / len(ids_R)),
        }
        self.world.learn(advantages_R)

    def success(self) -> float:
        return self.world.success()
