"""What a step's groups taught, how well that was foreseen, and what each prompt has cost."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.rewards import EQUAL, extremes, mixed_groups, unequal
from budgetalloc.budget import IntArray
from budgetalloc.values import mixed_group


def group_metrics(ids_R: Sequence[Id], rewards_R: FloatArray, belief_R: Beta) -> dict[str, float]:
    """Metrics of one step, by group; rewards lie in [0, 1], NaN where there was none.

    Args:
        ids_R: Prompt of each rollout.
        rewards_R: Its reward.
        belief_R: The belief about its prompt before the step.

    >>> from budgetalloc import Beta
    >>> m = group_metrics(["a", "a", "b", "b"], np.array([1.0, 0.0, 0.0, 0.0]), Beta([1] * 4, [1] * 4))
    >>> {k: round(v, 3) for k, v in m.items()}
    {'frac_mixed': 0.5, 'frac_all_pass': 0.0, 'frac_all_fail': 0.5, 'frac_mixed_predicted': 0.333, 'brier': 0.25,
     'prompts': 2.0, 'count/min': 2.0, 'count/mean': 2.0, 'count/max': 2.0}
    """
    ids_P, group_R = factorize(ids_R)
    n_P = np.bincount(group_R)
    metrics = {}
    lowest_P, highest_P = extremes(rewards_R, group_R, len(ids_P))
    scored_P = np.isfinite(lowest_P)
    if scored_P.any():
        low, high = lowest_P[scored_P], highest_P[scored_P]
        first_P = np.unique(group_R, return_index=True)[1]
        chance_P = _at_count(belief_R.take(first_P), n_P)
        error_R = (belief_R.mean - rewards_R)[~np.isnan(rewards_R)]
        metrics = {
            "frac_mixed": float(np.mean(unequal(low, high))),
            "frac_all_pass": float(np.mean(low > 1 - EQUAL)),
            "frac_all_fail": float(np.mean(high < EQUAL)),
            "frac_mixed_predicted": float(np.mean(chance_P[scored_P])),
            "brier": float(np.mean(error_R**2)),
        }
    counts = {"min": n_P.min(), "mean": n_P.mean(), "max": n_P.max()}
    return {**metrics, "prompts": float(len(ids_P)), **{f"count/{key}": float(x) for key, x in counts.items()}}


def share_without_spread(ids_R: Sequence[Id], rewards_R: FloatArray) -> float:
    """Share of rollouts whose group has no spread of rewards: TRL's `frac_reward_zero_std`, by the true groups."""
    ids_P, group_R = factorize(ids_R)
    return float(np.mean(~mixed_groups(rewards_R, group_R, len(ids_P))[group_R]))


def _at_count(belief_P: Beta, n_P: IntArray) -> FloatArray:
    """The chance of a mixed group for each prompt at its own count."""
    counts_N, column_P = np.unique(n_P, return_inverse=True)
    return np.asarray(mixed_group(belief_P, counts_N)[np.arange(len(n_P)), column_P])


class Spending:
    """What each prompt has cost so far, and how often it succeeded.

    >>> spending = Spending()
    >>> spending.add(["a", "a", "a", "b"], np.array([1.0, 1.0, np.nan, 0.0]), np.array([10, 10, 10, 20]))
    >>> spending.add(["b", "c"], np.array([1.0, 1.0]), np.array([70, 5]))
    >>> spending.top(2)  # prompt, rollouts, tokens, mean of the rewards that there were
    [('b', 2, 90, 0.5), ('a', 3, 30, 1.0)]
    """

    def __init__(self) -> None:
        self._place: dict[Id, int] = {}
        self._sums_P4: FloatArray = np.zeros((0, 4))  # rollouts, tokens, rewards, rollouts with a reward

    def add(self, ids_R: Sequence[Id], rewards_R: FloatArray, lengths_R: IntArray) -> None:
        """One step's rollouts: rewards in [0, 1], NaN where there was none, and tokens."""
        ids_P, group_R = factorize(ids_R)
        at_P = np.array([self._place.setdefault(name, len(self._place)) for name in ids_P], dtype=np.int64)
        missing = len(self._place) - len(self._sums_P4)
        if missing > 0:  # doubling keeps the total cost linear
            self._sums_P4 = np.concatenate([self._sums_P4, np.zeros((max(missing, len(self._sums_P4)), 4))])
        scored_R = ~np.isnan(rewards_R)
        for column, values_R in enumerate((np.ones(len(group_R)), lengths_R, np.nan_to_num(rewards_R), scored_R)):
            self._sums_P4[at_P, column] += np.bincount(group_R, weights=values_R, minlength=len(ids_P))

    def top(self, rows: int) -> list[tuple[Id, int, int, float | None]]:
        """The prompts with most tokens, most first: prompt, rollouts, tokens, mean reward (None: there was none)."""
        rollouts_P, tokens_P, rewards_P, scored_P = self._sums_P4[: len(self._place)].T
        names = list(self._place)
        return [
            (names[p], int(rollouts_P[p]), int(tokens_P[p]), float(rewards_P[p] / scored_P[p]) if scored_P[p] else None)
            for p in np.lexsort((-rollouts_P, -tokens_P))[:rows].tolist()
        ]

    def state_dict(self) -> dict[str, Any]:
        """All of it, for `load_state_dict`."""
        return {"ids": list(self._place), "sums": self._sums_P4[: len(self._place)].copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replaces what was added so far."""
        self._place = {name: at for at, name in enumerate(state["ids"])}
        self._sums_P4 = np.array(state["sums"], dtype=np.float64).reshape(len(self._place), 4)


def histogram_of_counts(counts_G: IntArray) -> tuple[IntArray, FloatArray]:
    """How many groups G have each size, and the edges of the bins: one a size, up to 128 sizes.

    >>> histogram_of_counts(np.array([2, 2, 4]))
    (array([2, 0, 1]), array([1.5, 2.5, 3.5, 4.5]))
    """
    low, high = int(counts_G.min()), int(counts_G.max())
    width = -(-(high - low + 1) // 128)
    return np.histogram(counts_G, bins=np.arange(low, high + 1 + width, width) - 0.5)


def histogram_of_rates(rates_G: FloatArray) -> tuple[IntArray, FloatArray]:
    """How many rates lie in each twentieth of [0, 1], and the edges: the same at every step, so that steps compare."""
    return np.histogram(rates_G, bins=np.linspace(0, 1, 21))
