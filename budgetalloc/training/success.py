"""Success from rewards: which reward function says it, and the range that maps its values to
[0, 1]."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from budgetalloc.beliefs.expected_reward import KEPT, Sums
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL, BoolArray, RewardHistory, check_success, to_unit
from budgetalloc.beliefs.state import loaded
from budgetalloc.errors import InputError, StateError, nearest_name
from budgetalloc.policies.interface import function_name
from budgetalloc.training.reward_range import Range, RewardRange

logger = logging.getLogger(__name__)
Judge = Callable[[Mapping[str, FloatArray]], Any]
Success = str | int | float | Judge | None


@dataclass(frozen=True)
class Rule:
    """What success is. At most one argument is set; if none is, it is the total reward.

    Args:
        functions: Numbers of the reward functions whose lowest reward is success.
        threshold: Success is a total reward of at least this.
        judge: Computes success in [0, 1] from the rewards by function name, shape (R,) each.
    """

    functions: tuple[int, ...] = ()
    threshold: float | None = None
    judge: Judge | None = None

    @classmethod
    def of(cls, success: Success, names: Sequence[str]) -> "Rule | None":
        """The rule that a user gave; None if it was left out. Raises `InputError`.

        >>> Rule.of("accuracy", ["format", "accuracy"]), Rule.of(0.5, ["format", "accuracy"])
        (Rule(functions=(1,), threshold=None, judge=None),
         Rule(functions=(), threshold=0.5, judge=None))
        """
        check_success(success)
        if success is None:
            return None
        if callable(success):
            if len(set(names)) < len(names):
                raise InputError(
                    f"success= is a function of rewards by name, and {list(names)} has a name "
                    "twice: rename a function.",
                    argument="success",
                )
            return cls(judge=success)
        if isinstance(success, float):
            return cls(threshold=success)
        if isinstance(success, str):
            if list(names).count(success) != 1:
                how = "no" if success not in names else "more than one"
                near = "." if success in names else nearest_name(success, names)
                raise InputError(
                    "success",
                    f"the trainer has {how} reward function of this name{near} It has "
                    f"{list(names)}. Pass one of the names, or its place in the list as an int.",
                    success,
                )
            return cls(functions=(list(names).index(success),))
        if not 0 <= success < len(names):
            raise InputError(
                "success",
                f"the trainer has {len(names)} reward functions, "
                f"{list(names)}, counted from 0. An int is a place in that list; a threshold on "
                "the total reward is a float, such as 1.0.",
                success,
            )
        return cls(functions=(int(success),))

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
        return np.asarray(np.fmin.reduce(scores_RF[:, list(self.functions)], axis=1))


@dataclass(frozen=True)
class Measure:
    """Maps the rewards of one step to success, by a rule and a range that are fixed for the step.

    The rule's reward functions may return None for some rollouts, such as those of another domain.
    The success of such a rollout is its total reward, mapped by `total_range` (see `by_total`).

    Args:
        rule: Computes success from rewards; None while it is not chosen, and success is NaN.
        range: The range mapped to [0, 1].
        names: Names of the reward functions.
        slope: The total reward divided by the quantity that the range maps; None if that ratio is
            not constant.
        weights: Weights of the reward functions; empty if they are unknown.
        total_range: The range of the total reward; None if it is unknown.
        partial: Functions, by number, that return None for some rollouts.

    >>> names, scores_RF = ("math", "code"), np.array([[1.0, np.nan], [0.0, np.nan], [np.nan, 0.4]])
    >>> measure = Measure(Rule((0,)), (0.0, 1.0), names, total_range=(0.0, 1.0), partial=(0, 1))
    >>> measure.success(np.array([1.0, 0.0, 0.4]), scores_RF)
    array([1. , 0. , 0.4])
    """

    rule: Rule | None
    range: Range
    names: tuple[str, ...]
    slope: float | None = None
    weights: tuple[float, ...] = ()
    total_range: Range | None = None
    partial: tuple[int, ...] = ()

    def success(self, rewards_R: FloatArray, scores_RF: FloatArray) -> FloatArray:
        """Success of each rollout in [0, 1], shape (R,); NaN if nothing was scored. Raises
        `InputError` if the user's function does not return a success for each rollout."""
        return np.clip(self._unit(rewards_R, scores_RF), 0.0, 1.0)

    def count_clipped(self, rewards_R: FloatArray, scores_RF: FloatArray) -> int:
        """The number of rollouts outside the range."""
        if self.rule is not None and self.rule.fixed:
            return 0
        unit_R = self._unit(rewards_R, scores_RF)
        return int(np.sum((unit_R < 0) | (unit_R > 1)))  # False for NaN

    def by_total(self, rewards_R: FloatArray, scores_RF: FloatArray) -> BoolArray:
        """Which rollouts have the total reward as success although the rule names functions, shape
        (R,).

        None of the rule's functions scored them. Or all of the rule's partial functions returned
        None, and another partial function scored them instead.
        """
        functions = () if self.rule is None else self.rule.functions
        if self.total_range is None or not np.isnan(scores_RF[:, list(functions)]).any():
            return np.zeros(len(rewards_R), dtype=bool)  # all of them scored every rollout
        weighted = [f for f in range(len(self.names)) if not self.weights or self.weights[f]]
        own = [f for f in self.partial if f in functions]
        others = [f for f in self.partial if f not in functions and f in weighted]
        scored_RF = ~np.isnan(scores_RF)
        by_total_R = ~scored_RF[:, list(functions)].any(axis=1) & scored_RF[:, weighted].any(axis=1)
        # the rule may include a function that scores every domain, such as a format
        if own and others:
            by_total_R |= ~scored_RF[:, own].any(axis=1) & scored_RF[:, others].any(axis=1)
        return by_total_R & ~np.isnan(rewards_R)

    def _unit(self, rewards_R: FloatArray, scores_RF: FloatArray) -> FloatArray:
        """Success of each rollout, before it is clipped to [0, 1]."""
        if self.rule is None:
            return np.full(len(rewards_R), np.nan)
        unit_R = to_unit(self.rule.values(rewards_R, scores_RF, self.names), self.range)
        if self.total_range is None:
            return unit_R
        by_total_R = self.by_total(rewards_R, scores_RF)
        return np.where(by_total_R, to_unit(rewards_R, self.total_range), unit_R)

    @property
    def reward_range(self) -> Range | None:
        """The range that maps the total reward to success, if there is one."""
        if self.slope is None:
            return None
        return self.slope * self.range[0], self.slope * self.range[1]

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
        >>> Measure(Rule(threshold=1.0), (0.0, 1.0), names, total_range=(-1.0, 1.2)).jump
        2.2
        """
        functions = () if self.rule is None else self.rule.functions
        weight = sum(self.weights[f] for f in functions) if self.weights else 0.0
        if weight > 0:
            return weight * (self.range[1] - self.range[0])
        low, high = self.reward_range or self.total_range or (0.0, 1.0)
        return high - low


@dataclass(eq=False)
class Scoring:
    """Computes success from rewards. What success is, is chosen once, and then fixed.

    Args:
        names, weights: Names and weights of the reward functions.
        success: As in `Options`.
        reward_range: Range of the total reward; None learns it.
        quiet: Whether to suppress log messages, as in all processes but one.

    >>> scoring = Scoring(["accuracy", "format"], [1.0, 0.5], quiet=True)
    >>> rewards_R, scores_RF = np.array([0.5, 1.5]), np.array([[0.0, 0.5], [1.0, 0.5]])
    >>> scoring.measure(rewards_R, scores_RF).rule
    Rule(functions=(0,), threshold=None, judge=None)
    """

    names: Sequence[str]
    weights: Sequence[float]
    success: Success = None
    reward_range: Range | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        self.names = tuple(self.names)  # the trainer's own list may grow
        self.rule = Rule.of(self.success, self.names)
        positive = [f for f, weight in enumerate(self.weights) if weight > 0]
        only = len(self.names) == 1 or len(positive) == sum(map(bool, self.weights)) == 1
        given = None
        if self.rule is None and only:
            self.rule = Rule(functions=tuple(positive))
            if positive and self.reward_range is not None:
                weight = self.weights[positive[0]]
                given = self.reward_range[0] / weight, self.reward_range[1] / weight
        self.range = RewardRange(given)  # of the values of functions
        self.total = RewardRange(self.reward_range)  # of the total reward
        self.sums = Sums()
        self._returned = RewardHistory.none(len(self.names))
        self._steps = 0
        self._said = False
        self._first_weights = tuple(self.weights)

    @property
    def settled(self) -> bool:
        """Whether the success of a rollout depends on its own rewards only, from the beginning of a
        step."""
        if self.rule is None or self.rule.fixed:
            return self.rule is not None
        return (self.total if self.rule == Rule() else self.range).range is not None

    def follow(self, names: Sequence[str], weights: Sequence[float]) -> None:
        """Takes the reward functions and weights of the next step, which may differ from those of
        the step before.

        Success stays what it is, unless a function that it is about has gone. Raises `InputError`
        if `success=` names a function that is no longer there.

        >>> scoring = Scoring(["accuracy"], [1.0], quiet=True)
        >>> scoring.follow(["format", "accuracy"], [0.5, 1.0])
        >>> scoring.rule
        Rule(functions=(1,), threshold=None, judge=None)
        """
        if tuple(names) != tuple(self.names):
            rule = Rule.of(self.success, names)
            if rule is None and self.rule is not None:
                about = [self.names[f] for f in self.rule.functions]
                places = tuple(list(names).index(name) for name in about if name in names)
                rule = replace(self.rule, functions=places) if len(places) == len(about) else None
            self.names, self.rule = tuple(names), rule
            self._returned = RewardHistory.none(len(names))
            self._steps = 0
            self._first_weights = tuple(weights)
        if list(weights) != list(self.weights):  # other totals say nothing about those to come
            self.weights = list(weights)
            self.sums = Sums(within=self.sums.within, pairs=self.sums.pairs)

    def total_rewards(self, scores_RF: FloatArray) -> FloatArray:
        """The weighted sum of each rollout's rewards, shape (R,); NaN if every reward with a weight
        is missing."""
        weights_F = np.array(self.weights)
        weighted_RF = (scores_RF * weights_F)[:, weights_F != 0]
        return np.where(np.isnan(weighted_RF).all(axis=1), np.nan, np.nansum(weighted_RF, axis=1))

    def measure(self, rewards_R: FloatArray, scores_RF: FloatArray) -> Measure:
        """The measure of this step, from the rewards of its first round; does not change the
        state."""
        returned = self._returned.plus(scores_RF)
        rule = self.rule
        if rule is None and (found := returned.success(self.weights, self._steps)) is not None:
            rule = Rule(found)
        total, in_force, slope = self.total.of(rewards_R), (0.0, 1.0), None
        if rule == Rule():
            in_force, slope = total, 1.0
        elif rule is not None and not rule.fixed:
            in_force = self.range.of(rule.values(rewards_R, scores_RF, self.names))
            if len(self.names) == 1 and self.weights[0] > 0:
                slope = float(self.weights[0])
        if slope is not None:
            total_R, known_R = self.total_rewards(scores_RF), ~np.isnan(rewards_R)
            if not np.allclose(rewards_R[known_R], total_R[known_R], atol=EQUAL):
                slope = None  # other weights than those known here: the line is learned
        partial = tuple(np.flatnonzero(returned.partial_F).tolist())
        weights = tuple(self.weights)
        return Measure(rule, in_force, tuple(self.names), slope, weights, total, partial)

    def learn(
        self, measure: Measure, rewards_R: FloatArray, scores_RF: FloatArray, sums: Sums
    ) -> None:
        """Learns from all rounds of a finished step."""
        self.sums = self.sums.plus(sums, kept=KEPT)
        self._returned = self._returned.plus(scores_RF)
        self._steps += 1
        if self.rule is None and measure.rule is not None:
            self.rule = measure.rule
            if not self.quiet:
                self._say_what_success_is(self.rule)
        by_total_R = measure.by_total(rewards_R, scores_RF)
        if self.rule == Rule():
            self.total.learn(rewards_R, self.quiet)
            return
        if measure.slope is None:  # a single function determines the total
            self.total.learn(rewards_R, self.quiet or not by_total_R.any())
        if self.rule is not None and not self.rule.fixed:
            self.range.learn(self.rule.values(rewards_R, scores_RF, self.names), self.quiet)
        if by_total_R.any() and self.rule is not None and not self.quiet and not self._said:
            self._said = True
            logger.warning(
                "%s returned None for %d of %d rollouts that other functions scored. The success "
                "of such rollouts is their total reward, mapped to [0, 1]. Pass a function as "
                "success= to define it otherwise.",
                " and ".join(repr(self.names[f]) for f in self.rule.functions),
                by_total_R.sum(),
                len(by_total_R),
            )

    def _say_what_success_is(self, rule: Rule) -> None:
        others = [
            f"{name!r} (weight {weight:g})"
            for f, (name, weight) in enumerate(zip(self.names, self.weights, strict=True))
            if f not in rule.functions
        ]
        if rule.functions:
            logger.warning(
                "Success, which the beliefs are about, is %s: the reward of the largest weight "
                "that has given both 0 and 1. Advantages use the total reward. Pass success= for "
                "another one: %s.",
                in_words([repr(name) for name in self.names], rule),
                ", ".join(others) or "a threshold on the total, or a function of all rewards",
            )
        else:
            logger.warning(
                "Success, which the beliefs are about, is the total reward, and a constant part "
                "of it counts as success: no reward has given both 0 and 1 and nothing outside. "
                "Pass success=, the name of one (%s), a threshold on the total, or a function of "
                "all rewards.",
                ", ".join(others),
            )

    def state_dict(self) -> dict[str, Any]:
        """The state in JSON types, for `load_state_dict`."""
        return {
            "success": None if self.rule is None else in_words(self.names, self.rule),
            "functions": [] if self.rule is None else [self.names[f] for f in self.rule.functions],
            # a schedule begins again with them
            "weights": {
                name: float(weight)
                for name, weight in sorted(zip(self.names, self._first_weights, strict=True))
                if weight
            },
            "range": self.range.state_dict(),
            "total": self.total.state_dict(),
            "sums": self.sums.state_dict(),
            "steps": self._steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a saved state.

        Raises:
            StateError: the state is damaged, or its success is another one: of another function, of
                a total reward with other weights, or mapped from another range. Nothing has changed
                then.
        """
        try:
            was, functions, weights = state["success"], state["functions"], state["weights"]
            places = tuple(self.names.index(name) for name in functions if name in self.names)
            steps, sums = int(state["steps"]), loaded(Sums(), state["sums"])
            of_ranges = state["range"], state["total"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(
                f"The state does not hold the definition of success: it is damaged. {error}"
            ) from error
        rule, now = self.rule, self.state_dict()
        alone = len(self.names) == 1 and len(functions) == 1 and self.success is None
        if rule is None and was is not None and len(places) == len(functions):
            rule = Rule(places)  # chosen by the run that saved it
            now["success"] = in_words(self.names, rule)
        if was is not None and now["success"] != was and not (alone and rule == Rule((0,))):
            raise StateError(
                f"The beliefs of the checkpoint are about {was}, this trainer's about "
                f"{now['success'] or 'none of its functions ' + str(list(self.names))}. Pass "
                "success= as in the run that saved it, or delete budgetalloc_state.npz from the "
                "checkpoint to start with cold beliefs."
            )
        same = weights == now["weights"]
        if not same and rule is not None and not rule.functions and rule.judge is None:
            raise StateError(
                "The beliefs of the checkpoint are about the total reward with the weights "
                f"{weights}, and this trainer has {now['weights']}. Pass the weights of the run "
                "that saved it, or delete budgetalloc_state.npz from the checkpoint to start with "
                "cold beliefs."
            )
        own = loaded(self.range, of_ranges[0])
        self.total = loaded(self.total, of_ranges[1]) if same else self.total
        self.range, self.rule, self._steps = own, rule, steps
        self.sums = sums if same else Sums()  # they are about the total


def in_words(names: Sequence[str], rule: Rule) -> str:
    """A short description of a rule; rules with equal descriptions are the same.

    >>> in_words(["accuracy", "format"], Rule((0,)))
    'accuracy'
    """
    if rule.judge is not None:
        return f"what {function_name(rule.judge)}() returns"
    if rule.threshold is not None:
        return f"a total reward of at least {rule.threshold:g}"
    return " and ".join(names[f] for f in rule.functions) or "the total reward"


def _user_success(judge: Judge, scores_RF: FloatArray, names: Sequence[str]) -> FloatArray:
    given = judge({name: scores_RF[:, f].copy() for f, name in enumerate(names)})
    refusal = (
        f"success= returned {given!r} for {len(scores_RF)} rollouts: "
        "return one number in [0, 1], or NaN, for each."
    )
    try:
        success_R = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(refusal, argument="success") from error
    if (
        success_R.shape != (len(scores_RF),)
        or ((success_R < -EQUAL) | (success_R > 1 + EQUAL)).any()
    ):
        raise InputError(refusal, argument="success")
    return success_R
