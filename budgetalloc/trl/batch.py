"""The one record of a training step: what was generated, what it earned, and what was believed before it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.logs.write import LedgerWriter
from budgetalloc.policies import Policy

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Round:
    """One round of a step: the rollouts of all processes, in TRL's order and without fillers.

    Args:
        ids_R: Prompt of each rollout.
        rewards_R: Its total reward, NaN where no reward function scored it.
        scores_RF: Its reward by reward function, shape (R, F), NaN where a function gave none.
        lengths_R: Its tokens.
        hinted: Whether the rollouts were generated with the user's hint.
    """

    ids_R: list[Id]
    rewards_R: FloatArray
    scores_RF: FloatArray
    lengths_R: IntArray
    hinted: bool = False


@dataclass(frozen=True, eq=False)
class Batch:
    """All rollouts of one step, made once, after generation and before the policy learns from it.

    The ledger, the metrics and the trackers read it; nothing writes to it.

    Args:
        ids_R: Prompt of each rollout.
        group_R: Number of its group: prompts count from 0 in the order in which they first appear.
        rewards_R: Its total reward, NaN where no reward function scored it.
        scores_RF: Its reward by reward function, shape (R, F).
        unit_R: What the belief learns: the total reward mapped to [0, 1], NaN where there was none.
        lengths_R: Its tokens.
        hinted_R: Whether it was generated with a hint; the belief does not learn from those.
        belief_R: The belief about its prompt before the step.
        step: The trainer's step, as the ledger counts.
        policy_step: Steps that the policy had ended before this one.

    >>> import budgetalloc as ba
    >>> made = Round(["a", "b", "a"], np.array([2.0, 0.0, np.nan]), np.zeros((3, 1)), np.array([4, 4, 2]))
    >>> batch = Batch.of([made], ba.uniform(), lambda rewards_R: rewards_R / 2, step=7)
    >>> batch.group_R, batch.counts_R, batch.unit_R, batch.belief_R.mean
    (array([0, 1, 0]), array([2, 1, 2]), array([ 1.,  0., nan]), array([0.5, 0.5, 0.5]))
    """

    ids_R: list[Id]
    group_R: IntArray
    rewards_R: FloatArray
    scores_RF: FloatArray
    unit_R: FloatArray
    lengths_R: IntArray
    hinted_R: BoolArray
    belief_R: Beta
    step: int
    policy_step: int

    def __len__(self) -> int:
        """Number of rollouts."""
        return len(self.ids_R)

    @property
    def counts_G(self) -> IntArray:
        """Rollouts of each group."""
        return np.bincount(self.group_R)

    @property
    def counts_R(self) -> IntArray:
        """Rollouts of each rollout's group."""
        return self.counts_G[self.group_R]

    @property
    def learned_R(self) -> FloatArray:
        """What the belief learns from each rollout: `unit_R`, and NaN where there was a hint."""
        return np.where(self.hinted_R, np.nan, self.unit_R)

    @classmethod
    def of(
        cls, rounds: Sequence[Round], policy: Policy, to_unit: Callable[[FloatArray], FloatArray], step: int
    ) -> "Batch":
        """The rounds of a step that the policy has not learned from yet, as one batch.

        Args:
            rounds: In the order in which they were generated, at least one.
            policy: Whose beliefs they are.
            to_unit: From total rewards to the scale of the beliefs.
            step: The trainer's step.
        """
        ids_R = [name for each in rounds for name in each.ids_R]
        rewards_R = np.concatenate([each.rewards_R for each in rounds])
        return cls(
            ids_R=ids_R,
            group_R=factorize(ids_R)[1],
            rewards_R=rewards_R,
            scores_RF=np.concatenate([each.scores_RF for each in rounds]),
            unit_R=to_unit(rewards_R),
            lengths_R=np.concatenate([each.lengths_R for each in rounds]),
            hinted_R=np.repeat([each.hinted for each in rounds], [len(each.ids_R) for each in rounds]),
            belief_R=policy.belief(ids_R),
            step=step,
            policy_step=policy.estimator.step,
        )


def append(ledger: LedgerWriter, batch: Batch) -> None:
    """Appends a step to the ledger, a line a rollout; rollouts with a hint are named "ID (hinted)", unpredicted."""
    hinted = batch.hinted_R.tolist()
    names_R = [f"{name} (hinted)" if with_hint else name for name, with_hint in zip(batch.ids_R, hinted, strict=True)]
    predicted_R = np.where(batch.hinted_R, np.nan, batch.belief_R.mean)
    ledger.append(batch.step, names_R, batch.rewards_R, batch.lengths_R, predicted_R, batch.counts_R)
