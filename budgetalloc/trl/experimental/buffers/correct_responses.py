"""AR3PO's response reuse: a prompt without any success gets a correct response of an earlier
step."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.ids import Id, check_ids, factorize, stable_key
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import as_rewards
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_choice, check_number
from budgetalloc.trl.experimental.buffers.response_store import Store, Stored, stored_rows

__all__ = ["BoolArray", "CorrectResponseBuffer", "Substitution"]

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Substitution:
    """A batch in which stored correct responses replaced wrong ones.

    Args:
        rows: Rows whose response is replaced, ascending, shape (S,).
        stored: The replacements, one for each of `rows`.
        rewards_R: Rewards of the batch after that, shape (R,).
        train_R: Rows in the loss, shape (R,). The others count only in the mean and deviation of
            their group.
        recompute_R: Rows whose old log-probabilities must be recomputed with the current policy,
            shape (R,).
    """

    rows: IntArray
    stored: list[Stored]
    rewards_R: FloatArray
    train_R: BoolArray
    recompute_R: BoolArray


class CorrectResponseBuffer(Store):
    """Keeps correct responses of each prompt; if all of a prompt's responses fail, a stored one
    replaces a wrong one.

    AR3PO (arXiv 2509.25808) stores every new correct response, and draws uniformly among those of
    the prompt. The paper does not say how many it keeps or for how long, and no code was released.
    `capacity`, `per_prompt`, `max_age` and the eviction of the oldest are this package's choice.
    The wrong response to replace is drawn uniformly too. A group with fewer than two rewards is
    unchanged, because its advantages would stay 0.

    With "stop_gradient" the trainer must apply `train_R` as a loss mask. With "recompute" it must
    compute log-probabilities of the replaced rows under the current policy; they then count as
    on-policy (biased, low variance). In both cases advantages come from `rewards_R` after the
    substitution. Do not `add` a substituted response again.

    Args:
        option: "stop_gradient" (the paper's II, reported best) or "recompute" (its I).
        capacity: Most responses kept.
        per_prompt: Most responses of one prompt.
        max_age: In steps; older ones are evicted and never drawn.
        threshold: A response is correct if its success is above this.
        seed: Seeds the draws.

    >>> buffer = CorrectResponseBuffer(seed=0)
    >>> buffer.add(["a", "a", "b"], [{"tokens": [1]}, {"tokens": [2, 3]}, {"tokens": [4]}], [1, 0, 1], step=0)
    2
    >>> done = buffer.substitute(["a", "a", "b", "b", "c", "c"], [0, 0, 1, 0, 0, 0], step=1)  # c has nothing stored
    >>> done.rewards_R, done.stored[0].response["tokens"]
    (array([1., 0., 1., 0., 0., 0.]), array([1]))
    >>> done.train_R
    array([False,  True,  True,  True,  True,  True])
    """

    def __init__(
        self,
        *,
        option: str = "stop_gradient",
        capacity: int = 8192,
        per_prompt: int = 4,
        max_age: int = 256,
        threshold: float = 0.5,
        seed: int = 0,
    ) -> None:
        check_choice("option", option, ("stop_gradient", "recompute"))
        self.option = option
        super().__init__(
            "correct", capacity=capacity, max_age=max_age, per_prompt=per_prompt, seed=seed
        )
        self.threshold = check_number("threshold", threshold, -np.inf, np.inf)

    def add(
        self,
        ids_R: Iterable[Any],
        responses_R: Sequence[Mapping[str, Any]],
        rewards_R: ArrayLike,
        step: int,
        success_R: ArrayLike | None = None,
    ) -> int:
        """Stores the correct responses among those generated at `step`.

        Args:
            ids_R: The prompt of each rollout, shape (R,).
            responses_R: Arrays by name for each rollout.
            rewards_R: Rewards, shape (R,); NaN is no reward.
            step: When they were generated.
            success_R: Success, shape (R,), as from the callback's `success=`; NaN for none.
                Default: the rewards.

        Returns:
            How many were correct.
        """
        ids = check_ids(ids_R, "ids_R")
        rewards, success = _outcomes(rewards_R, success_R, len(ids))
        rows = np.flatnonzero(success > self.threshold)
        some = stored_rows(rows, ids, responses_R, rewards, np.zeros(len(ids)), step, success)
        self.put(some)
        return len(some)

    def substitute(
        self,
        ids_R: Iterable[Any],
        rewards_R: ArrayLike,
        step: int,
        success_R: ArrayLike | None = None,
    ) -> Substitution:
        """Replaces a wrong response by a stored correct one for each prompt without any success.

        Args:
            ids_R: The prompt of each rollout of the step, with all its rounds, shape (R,).
            rewards_R: Rewards, shape (R,); NaN is no reward, and is never replaced.
            step: The current step, which must not decrease.
            success_R: As in `add`.
        """
        ids = check_ids(ids_R, "ids_R")
        rewards, success = _outcomes(rewards_R, success_R, len(ids))
        self.advance(step)
        names, group_R = factorize(ids)
        scored_R = ~np.isnan(success)
        scored_G = np.bincount(group_R[scored_R], minlength=len(names))
        correct_G = np.bincount(group_R[success > self.threshold], minlength=len(names))
        kept: dict[Id, list[Stored]] = {}
        for sample in self.samples:
            kept.setdefault(sample.id, []).append(sample)
        groups = [
            g
            for g in np.flatnonzero((correct_G == 0) & (scored_G >= 2)).tolist()
            if names[g] in kept
        ]
        # draws do not depend on the order of prompts in the batch
        groups.sort(key=lambda g: stable_key(names[g]))

        draws = self.next_rng().random((len(groups), 2))
        by_group = np.flatnonzero(scored_R)[np.argsort(group_R[scored_R], kind="stable")]
        starts_G = np.cumsum(scored_G) - scored_G
        chosen = {}
        for g, (which, wrong) in zip(groups, draws.tolist(), strict=True):
            stored = kept[names[g]]
            row = int(by_group[starts_G[g] + int(wrong * scored_G[g])])
            chosen[row] = stored[int(which * len(stored))]
        rows = np.array(sorted(chosen), dtype=np.int64)
        swapped_R = np.zeros(len(ids), dtype=np.bool_)
        swapped_R[rows] = True
        after = rewards.copy()
        after[rows] = [chosen[row].reward for row in rows.tolist()]
        masked = self.option == "stop_gradient"
        return Substitution(
            rows=rows,
            stored=[chosen[row] for row in rows.tolist()],
            rewards_R=after,
            train_R=~swapped_R if masked else np.ones(len(ids), dtype=np.bool_),
            recompute_R=np.zeros(len(ids), dtype=np.bool_) if masked else swapped_R,
        )

    def _fits(self, sample: Stored) -> bool:
        return sample.success > self.threshold


def _outcomes(
    rewards_R: ArrayLike, success_R: ArrayLike | None, rows: int
) -> tuple[FloatArray, FloatArray]:
    """Rewards and successes; without a reward there is no success."""
    rewards = as_rewards(rewards_R, rows)
    success = rewards if success_R is None else as_rewards(success_R, rows, "success_R")
    return rewards, np.where(np.isnan(rewards), np.nan, success)
