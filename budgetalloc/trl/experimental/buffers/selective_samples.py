"""Skywork R1V2's Selective Sample Buffer: stored samples with signal replace rows without
signal."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.ids import check_ids
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import as_rewards
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_integer, check_number
from budgetalloc.trl.experimental.buffers.response_store import Store, Stored, stored_rows

__all__ = ["SMALLEST", "SelectiveSampleBuffer"]

SMALLEST = 1e-8  # smaller advantages are 0 up to rounding


class SelectiveSampleBuffer(Store):
    """Keeps samples with a non-zero advantage and draws them again, P(j) proportional to
    |A_j|^power.

    Skywork R1V2 (arXiv 2504.16656) stores such samples and re-introduces them in later updates,
    weighted by |A|. The report gives neither the exponent, the size, the ratio of old to new nor a
    limit on age, and no code was released. The defaults, the eviction of the oldest, and drawing
    without replacement are this package's choice. The batch keeps its size, because a stored sample
    replaces each row without signal. A sample stays in the buffer after it is drawn.

    The trainer must keep the log-probabilities at generation in `response`, and use an importance
    ratio for the rows drawn. A stored sample keeps the advantage from its own group.

    Args:
        capacity: Most samples kept.
        max_age: In steps; older samples are evicted and never drawn.
        power: The exponent, at least 0. With 0 all samples are equally probable.
        seed: Seeds the draws.

    >>> buffer = SelectiveSampleBuffer(seed=0)
    >>> buffer.add(["a", "a", "b"], [{"tokens": [1]}, {"tokens": [2, 3]}, {"tokens": [4]}], [1, 0, 1], [0.5, -0.5, 0],
    ...            step=0)
    2
    >>> fresh, stored = buffer.refill([0.7, 0, 0, 0], step=1)  # one fresh row has signal, two stored ones join it
    >>> fresh, [sample.response["tokens"].tolist() for sample in stored]
    (array([0, 1]), [[2, 3], [1]])
    """

    def __init__(
        self, *, capacity: int = 1024, max_age: int = 8, power: float = 1.0, seed: int = 0
    ) -> None:
        super().__init__("selective", capacity=capacity, max_age=max_age, seed=seed)
        self.power = check_number("power", power, 0, math.inf)

    def add(
        self,
        ids_R: Iterable[Any],
        responses_R: Sequence[Mapping[str, Any]],
        rewards_R: ArrayLike,
        advantages_R: ArrayLike,
        step: int,
    ) -> int:
        """Stores the rows with signal of a batch; a NaN reward or advantage is none. Call it after
        `refill`.

        Args:
            ids_R: The prompt of each rollout, shape (R,).
            responses_R: Arrays by name for each rollout.
            rewards_R: Rewards, shape (R,).
            advantages_R: Advantages, shape (R,).
            step: When they were generated.

        Returns:
            How many rows had signal.
        """
        ids = check_ids(ids_R, "ids_R")
        rewards, advantages = as_rewards(rewards_R, len(ids)), _advantages(advantages_R, len(ids))
        rows = np.flatnonzero(_signal(advantages) & ~np.isnan(rewards))
        some = stored_rows(rows, ids, responses_R, rewards, advantages, step)
        self.put(some)
        return len(some)

    def draw(self, count: int, step: int) -> list[Stored]:
        """Draws samples of earlier steps without replacement, P(j) proportional to |A_j|^power of
        those left.

        Args:
            count: Number of samples, at least 0; if fewer are kept, all are returned.
            step: The current step, which must not decrease.
        """
        count = check_integer("count", count, 0)
        self.advance(step)
        earlier = [sample for sample in self.samples if sample.step < step]
        # Sorting by log-weight + Gumbel noise draws without replacement; logarithms cannot
        # underflow.
        weights = self.power * np.log(np.abs([sample.advantage for sample in earlier]))
        order = np.argsort(-(weights + self.next_rng().gumbel(size=len(earlier))), kind="stable")
        return [earlier[at] for at in order[:count].tolist()]

    def refill(self, advantages_R: ArrayLike, step: int) -> tuple[IntArray, list[Stored]]:
        """Which fresh rows to train on, ascending, and the stored samples that fill the batch up to
        its size.

        If too few are stored, rows without signal stay: `len(fresh) + len(stored)` is always the
        batch's size.

        Args:
            advantages_R: Advantages of the fresh batch, shape (R,); NaN for no signal.
            step: The current step, which must not decrease.
        """
        advantages = _advantages(advantages_R, None)
        signal_R = _signal(advantages)
        stored = self.draw(int((~signal_R).sum()), step)
        without = np.flatnonzero(~signal_R)[: advantages.size - int(signal_R.sum()) - len(stored)]
        return np.sort(np.concatenate([np.flatnonzero(signal_R), without])), stored

    def _fits(self, sample: Stored) -> bool:
        return abs(sample.advantage) > SMALLEST


def _signal(advantages_R: FloatArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.abs(advantages_R) > SMALLEST  # NaN compares False


def _advantages(advantages_R: ArrayLike, rows: int | None) -> FloatArray:
    advantages = np.asarray(advantages_R, dtype=np.float64)
    if (
        advantages.ndim != 1
        or (rows is not None and advantages.size != rows)
        or np.isinf(advantages).any()
    ):
        expected = "one" if rows is None else str(rows)
        raise InputError(
            f"advantages_R={advantages_R!r}: give {expected} number(s), one per rollout; NaN: no "
            "signal."
        )
    return advantages
