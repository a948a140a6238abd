"""Maps the rewards of one step to success."""

from dataclasses import dataclass

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.training.reward_range import Range, clipped
from budgetalloc.training.success import BoolArray, Rule

__all__ = ["Measure"]


@dataclass(frozen=True)
class Measure:
    """Maps the rewards of one step to success, by a rule and a range that are fixed for the step.

    The rule's reward functions may return None for some rollouts, such as those of another domain.
    The success of such a rollout is its total reward, mapped by `total_range` (see `by_total`).

    Args:
        rule: Computes success from rewards.
        range: The range mapped to [0, 1].
        names: Names of the reward functions.
        slope: The total reward divided by the quantity that the range maps; None if that ratio is
            not constant.
        weights: Weights of the reward functions; empty if they are unknown.
        total_range: The range of the total reward; None if it is unknown.
        partial: Functions, by number, that return None for some rollouts.

    >>> names, scores_RF = ("math", "code"), np.array([[1.0, np.nan], [0.0, np.nan], [np.nan, 0.4]])
    >>> measure = Measure(Rule(functions=(0,)), (0.0, 1.0), names, total_range=(0.0, 1.0), partial=(0, 1))
    >>> measure.success(np.array([1.0, 0.0, 0.4]), scores_RF)
    array([1. , 0. , 0.4])
    """

    rule: Rule
    range: Range
    names: tuple[str, ...]
    slope: float | None = None
    weights: tuple[float, ...] = ()
    total_range: Range | None = None
    partial: tuple[int, ...] = ()

    def success(self, rewards_R: FloatArray, scores_RF: FloatArray) -> FloatArray:
        """Success of each rollout in [0, 1], shape (R,); NaN if nothing was scored. Raises
        `InputError` if the user's function does not return a success for each rollout."""
        return self._mapped(rewards_R, scores_RF)[0]

    def count_clipped(self, rewards_R: FloatArray, scores_RF: FloatArray) -> int:
        """The number of rollouts outside the range."""
        return 0 if self.rule.fixed else self._mapped(rewards_R, scores_RF)[1]

    def by_total(self, rewards_R: FloatArray, scores_RF: FloatArray) -> BoolArray:
        """Which rollouts have the total reward as success although the rule names functions, shape
        (R,).

        None of the rule's functions scored them. Or all of the rule's partial functions returned
        None, and another partial function scored them instead.
        """
        functions = self.rule.functions
        if not functions or self.total_range is None:
            return np.zeros(len(rewards_R), dtype=bool)
        weighted = [f for f in range(len(self.names)) if not self.weights or self.weights[f]]
        own = [f for f in self.partial if f in functions]
        others = [f for f in self.partial if f not in functions and f in weighted]
        scored_RF = ~np.isnan(scores_RF)
        by_total_R = ~scored_RF[:, list(functions)].any(axis=1) & scored_RF[:, weighted].any(axis=1)
        # the rule may include a function that scores every domain, such as a format
        if own and others:
            by_total_R |= ~scored_RF[:, own].any(axis=1) & scored_RF[:, others].any(axis=1)
        return by_total_R & ~np.isnan(rewards_R)

    def _mapped(self, rewards_R: FloatArray, scores_RF: FloatArray) -> tuple[FloatArray, int]:
        """Success of each rollout, and the number of clipped ones."""
        values_R = self.rule.values(rewards_R, scores_RF, self.names)
        by_total_R = self.by_total(rewards_R, scores_RF)
        if self.total_range is None or not by_total_R.any():
            return clipped(values_R, self.range)
        success_R, outside = clipped(np.where(by_total_R, np.nan, values_R), self.range)
        total_R, outside_total = clipped(np.where(by_total_R, rewards_R, np.nan), self.total_range)
        return np.where(by_total_R, total_R, success_R), outside + outside_total

    @property
    def reward_range(self) -> Range | None:
        """The range that maps the total reward to success, if there is one."""
        return (
            None if self.slope is None else (self.slope * self.range[0], self.slope * self.range[1])
        )

    @property
    def jump(self) -> float:
        """The expected rise of the total reward when success goes from 0 to 1, before any rewards
        are seen; positive.

        It is the weight of the rule's functions times the width of their range. If the rule has no
        functions with a weight, it is the width of the range of the total reward, or 1 if that is
        unknown.

        >>> names, weights = ("accuracy", "format"), (1.0, 0.2)
        >>> Measure(Rule(functions=(0, 1)), (0.0, 1.0), names, weights=weights).jump
        1.2
        >>> Measure(Rule(threshold=1.0), (0.0, 1.0), names, weights=weights, total_range=(-1.0, 1.2)).jump
        2.2
        """
        weight = sum(self.weights[f] for f in self.rule.functions) if self.weights else 0.0
        if weight > 0:
            return weight * (self.range[1] - self.range[0])
        low, high = self.reward_range or self.total_range or (0.0, 1.0)
        return high - low
