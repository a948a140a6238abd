"""Success from rewards: the rule given by `success=`, or chosen by what the reward functions
return."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL, check_success, success_functions
from budgetalloc.errors import InputError

__all__ = [
    "BoolArray",
    "Judge",
    "Returned",
    "Rule",
    "Success",
    "chosen",
    "in_words",
    "rule_of_argument",
]

Judge = Callable[[Mapping[str, FloatArray]], Any]
BoolArray = NDArray[np.bool_]
Success = str | int | float | Judge | None


@dataclass(frozen=True)
class Rule:
    """The rule that computes success from rewards. At most one argument is set; if none is, success
    is the total reward.

    Args:
        functions: Numbers of the reward functions whose lowest reward is success.
        threshold: Success is a total reward of at least this.
        judge: Computes success in [0, 1] from the rewards by function name, shape (R,) each.
    """

    functions: tuple[int, ...] = ()
    threshold: float | None = None
    judge: Judge | None = None

    @property
    def fixed(self) -> bool:
        """Whether the rule returns success itself, which needs no range."""
        return self.threshold is not None or self.judge is not None

    def values(
        self, rewards_R: FloatArray, scores_RF: FloatArray, names: Sequence[str]
    ) -> FloatArray:
        """The quantity that a range maps to success, shape (R,); NaN if nothing was scored."""
        if self.judge is not None:
            return _user_success(self.judge, scores_RF, names)
        if self.threshold is not None:
            return np.where(np.isnan(rewards_R), np.nan, rewards_R >= self.threshold - EQUAL)
        if not self.functions:
            return rewards_R
        if len(self.functions) == 1:
            return scores_RF[:, self.functions[0]]
        return np.asarray(np.fmin.reduce(scores_RF[:, list(self.functions)], axis=1))


@dataclass(frozen=True, eq=False)
class Returned:
    """What each reward function has returned so far.

    Args:
        only_01_F: Whether all its rewards were 0 or 1; also True if it has returned None only.
        gave_1_F: Whether one of its rewards was 1.
        scored_F: Whether it has returned a reward.
        partial_F: Whether it returned None for a rollout that another function scored.

    >>> returned = Returned.none(3).plus(np.array([[1.0, 0.3, np.nan], [np.nan, 0.0, np.nan]]))
    >>> returned.scored_F, returned.only_01_F, chosen(returned.only_01_F, returned.scored_F, [1.0, 1.0, 1.0]).functions
    (array([ True,  True, False]), array([ True, False,  True]), (0,))
    """

    only_01_F: BoolArray
    gave_1_F: BoolArray
    scored_F: BoolArray
    partial_F: BoolArray

    @classmethod
    def none(cls, functions: int) -> "Returned":
        """The state before the first reward."""
        return cls(
            np.ones(functions, dtype=bool), *(np.zeros(functions, dtype=bool) for _ in range(3))
        )

    def plus(self, scores_RF: FloatArray) -> "Returned":
        """The state after these rewards, shape (R, F); NaN where a function returned None."""
        zero_RF, one_RF, none_RF = (
            np.abs(scores_RF) < EQUAL,
            np.abs(scores_RF - 1) < EQUAL,
            np.isnan(scores_RF),
        )
        return Returned(
            self.only_01_F & (zero_RF | one_RF | none_RF).all(axis=0),
            self.gave_1_F | one_RF.any(axis=0),
            self.scored_F | ~none_RF.all(axis=0),
            self.partial_F | (none_RF & ~none_RF.all(axis=1, keepdims=True)).any(axis=0),
        )

    def state_dict(self) -> dict[str, list[bool]]:
        """The flags in JSON types, for `from_state`."""
        return {name.removesuffix("_F"): flags_F.tolist() for name, flags_F in vars(self).items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], functions: int) -> "Returned":
        """Restores what `state_dict` returned; raises `ValueError` or `KeyError` if it is
        damaged."""
        flags = [
            np.array(state[name], dtype=bool) for name in ("only_01", "gave_1", "scored", "partial")
        ]
        if any(flags_F.shape != (functions,) for flags_F in flags):
            raise ValueError(f"It does not describe {functions} reward functions.")
        return cls(*flags)


def chosen(only_01_F: BoolArray, scored_F: BoolArray, weights: Sequence[float]) -> Rule:
    """The rule if the user gave none. Success is 1 in all functions with 0/1 rewards of the largest
    positive weight; if there is no such function, it is the total reward.

    >>> chosen(np.array([True, True, False]), np.array([True, True, True]), [1.0, 0.2, 2.0])
    Rule(functions=(0,), threshold=None, judge=None)
    """
    return Rule(functions=success_functions(only_01_F & scored_F, weights))


def in_words(names: list[str], rule: Rule, judge: str | None) -> str:
    """A short description of a rule; rules with equal descriptions are the same."""
    if judge is not None:
        return f"the success that {judge}() returns"
    if rule.threshold is not None:
        return f"a total reward of at least {rule.threshold:g}"
    if rule.functions:
        return " and ".join(f"{names[f]}=1" for f in rule.functions)
    return "the total reward"


def rule_of_argument(success: Success, names: Sequence[str]) -> Rule | None:
    """The rule given by `success=`; None if it was left out.

    >>> rule_of_argument("accuracy", ["format", "accuracy"]), rule_of_argument(0.5, ["format", "accuracy"])
    (Rule(functions=(1,), threshold=None, judge=None), Rule(functions=(), threshold=0.5, judge=None))
    """
    check_success(success)
    if success is None:
        return None
    if callable(success):
        if len(set(names)) < len(names):
            raise InputError(
                f"success= is a function of rewards by name, and {list(names)} has a name twice: "
                "rename a function."
            )
        return Rule(judge=success)
    if isinstance(success, float):
        return Rule(threshold=success)
    if isinstance(success, str):
        if list(names).count(success) != 1:
            how = "no" if success not in names else "more than one"
            raise InputError(
                f"success={success!r}: the trainer has {how} reward function of this name: "
                f"{list(names)}. Pass one of "
                "the names, or its place in the list as an int."
            )
        return Rule(functions=(list(names).index(success),))
    if not 0 <= success < len(names):
        raise InputError(
            f"success={success!r}: the trainer has {len(names)} reward functions, {list(names)}, "
            "counted from 0. An "
            "int is a place in that list; a threshold on the total reward is a float, such as 1.0."
        )
    return Rule(functions=(int(success),))


def _user_success(judge: Judge, scores_RF: FloatArray, names: Sequence[str]) -> FloatArray:
    given = judge({name: scores_RF[:, f].copy() for f, name in enumerate(names)})
    refusal = (
        f"success= returned {given!r} for {len(scores_RF)} rollouts: "
        "return one number in [0, 1], or NaN, for each."
    )
    try:
        success_R = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(refusal) from error
    if (
        success_R.shape != (len(scores_RF),)
        or ((success_R < -EQUAL) | (success_R > 1 + EQUAL)).any()
    ):
        raise InputError(refusal)
    return success_R
