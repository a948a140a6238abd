"""Success from rewards: the rule given by `success=`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL, check_success
from budgetalloc.errors import InputError

Judge = Callable[[Mapping[str, FloatArray]], Any]
Success = str | int | float | Judge | None


@dataclass(frozen=True)
class Rule:
    """The rule that computes success from rewards. At most one of the three is set; if none is, success is the total
    reward.

    Args:
        functions: Reward functions by number: all that scored the rollout must give 1 (of graded ones, the lowest
            counts).
        threshold: Success is a total reward of at least this.
        judge: From the rewards by function name, shape (R,) each, to success in [0, 1].
    """

    functions: tuple[int, ...] = ()
    threshold: float | None = None
    judge: Judge | None = None

    @property
    def fixed(self) -> bool:
        """Whether the rule returns success itself, so that no range is needed."""
        return self.threshold is not None or self.judge is not None

    def values(self, rewards_R: FloatArray, scores_RF: FloatArray, names: Sequence[str]) -> FloatArray:
        """The quantity that a range maps to success, shape (R,), NaN where nothing was scored."""
        if self.judge is not None:
            return _judged(self.judge, scores_RF, names)
        if self.threshold is not None:
            return np.where(np.isnan(rewards_R), np.nan, rewards_R >= self.threshold - EQUAL)
        if not self.functions:
            return rewards_R
        if len(self.functions) == 1:
            return scores_RF[:, self.functions[0]]
        return np.asarray(np.fmin.reduce(scores_RF[:, list(self.functions)], axis=1))


def in_words(names: list[str], rule: Rule, judge: str | None) -> str:
    """A short description of a rule, used to compare two rules."""
    if judge is not None:
        return f"the success that {judge}() returns"
    if rule.threshold is not None:
        return f"a total reward of at least {rule.threshold:g}"
    if rule.functions:
        return " and ".join(f"{names[f]}=1" for f in rule.functions)
    return "the total reward"


def asked_for(success: Success, names: Sequence[str]) -> Rule | None:
    """The rule given by `success=`; None if it was left out.

    >>> asked_for("accuracy", ["format", "accuracy"]), asked_for(0.5, ["format", "accuracy"])
    (Rule(functions=(1,), threshold=None, judge=None), Rule(functions=(), threshold=0.5, judge=None))
    """
    check_success(success)
    if success is None:
        return None
    if callable(success):
        if len(set(names)) < len(names):
            raise InputError(
                f"success= is a function of rewards by name, and {list(names)} has a name twice: rename a function."
            )
        return Rule(judge=success)
    if isinstance(success, float):
        return Rule(threshold=success)
    if isinstance(success, str):
        if list(names).count(success) != 1:
            how = "no" if success not in names else "more than one"
            raise InputError(
                f"success={success!r}: the trainer has {how} reward function of this name: {list(names)}. Pass one of "
                "the names, or its place in the list as an int."
            )
        return Rule(functions=(list(names).index(success),))
    if not 0 <= success < len(names):
        raise InputError(
            f"success={success!r}: the trainer has {len(names)} reward functions, {list(names)}, counted from 0. An "
            "int is a place in that list; a threshold on the total reward is a float, such as 1.0."
        )
    return Rule(functions=(int(success),))


def _judged(judge: Judge, scores_RF: FloatArray, names: Sequence[str]) -> FloatArray:
    given = judge({name: scores_RF[:, f].copy() for f, name in enumerate(names)})
    try:
        success_R = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"success= returned {given!r}: return one number in [0, 1], or NaN, for each rollout."
        ) from error
    inside = success_R.shape == (len(scores_RF),) and not ((success_R < -EQUAL) | (success_R > 1 + EQUAL)).any()
    if not inside:
        raise InputError(
            f"success= returned {given!r} for {len(scores_RF)} rollouts: return one number in [0, 1], or NaN, for each."
        )
    return success_R
