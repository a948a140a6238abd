"""Success from the rewards of a step: the current rule and range, and their updates after every step."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.expected import Sums
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL
from budgetalloc.errors import StateError
from budgetalloc.policies import Policy
from budgetalloc.training.ranges import Range, RewardRange, clipped
from budgetalloc.training.success import Rule, Success, asked_for, in_words

logger = logging.getLogger(__name__)
BoolArray = NDArray[np.bool_]
_ENOUGH = 1000  # rollouts after which a function that never gave 1 is reported


@dataclass(frozen=True)
class Measure:
    """How the rewards of one step become success: the rule and the range, fixed for the step.

    Args:
        rule: Computes success from rewards.
        range: The range mapped to [0, 1].
        names: Names of the reward functions.
        slope: The total reward is `slope` times the quantity that the range maps; None if that does not determine it.

    >>> measure = Measure(Rule(functions=(0,)), (0.0, 1.0), ("accuracy", "format"))
    >>> measure.success(np.array([1.5, 0.5]), np.array([[1.0, 0.5], [0.0, 0.5]]))
    array([1., 0.])
    """

    rule: Rule
    range: Range
    names: tuple[str, ...]
    slope: float | None = None

    def success(self, rewards_R: FloatArray, scores_RF: FloatArray) -> FloatArray:
        """Success of each rollout in [0, 1], shape (R,), NaN where nothing was scored.

        Raises:
            InputError: the user's function does not return a success for each rollout.
        """
        return clipped(self.rule.values(rewards_R, scores_RF, self.names), self.range)[0]

    def count_clipped(self, rewards_R: FloatArray, scores_RF: FloatArray) -> int:
        """The number of rollouts outside the range."""
        return 0 if self.rule.fixed else clipped(self.rule.values(rewards_R, scores_RF, self.names), self.range)[1]

    @property
    def reward_range(self) -> Range | None:
        """The range of the total reward, if success is the total reward mapped by this range."""
        return None if self.slope is None else (self.slope * self.range[0], self.slope * self.range[1])


@dataclass(eq=False)
class Scoring:
    """Computes success from rewards, with a state learned from all earlier rewards.

    The state changes only in `learn`, when the step has ended.

    Args:
        names, weights: Names and weights of the reward functions.
        success: As in `AdaptiveGRPOCallback`.
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
    sums: Sums = field(default_factory=Sums)
    rule: Rule | None = field(init=False)

    def __post_init__(self) -> None:
        self.rule = asked_for(self.success, self.names)
        if self.rule is None and len(self.names) == 1:
            self.rule = Rule(functions=(0,) if self.reward_range is None and self.weights[0] > 0 else ())
        self.range = RewardRange(self.reward_range if self.rule in (None, Rule()) else None)
        self._only_01_F = np.ones(len(self.names), dtype=bool)
        self._gave_1_F = np.zeros(len(self.names), dtype=bool)
        self._rollouts = 0
        self._said: set[str] = set()

    # --- a step -----------------------------------------------------------------------------------------------------

    def measure(self, rewards_R: FloatArray, scores_RF: FloatArray) -> Measure:
        """The measure of this step, given the rewards of its first round; does not change the state."""
        rule = self.rule or self._chosen(*self._shown(scores_RF))
        in_force = (0.0, 1.0) if rule.fixed else self.range.of(rule.values(rewards_R, scores_RF, self.names))
        alone = len(self.names) == 1 and rule.functions == (0,)
        slope = 1.0 if rule == Rule() else float(self.weights[0]) if alone and self.weights[0] > 0 else None
        return Measure(rule, in_force, tuple(self.names), slope)

    def learn(
        self,
        measure: Measure,
        rewards_R: FloatArray,
        scores_RF: FloatArray,
        success_R: FloatArray,
        policy: Policy,
    ) -> None:
        """Learns from all rounds of a finished step; if the range has grown, beliefs and memory are rescaled."""
        self.sums = self.sums.faded().plus(success_R, rewards_R)
        if len(self.names) > 1:  # there is no choice to make among one
            self._only_01_F, self._gave_1_F = self._shown(scores_RF)
        self._rollouts += len(rewards_R)
        if self.rule is None:
            self.rule = measure.rule
            self._say_choice(measure.rule)
        if self._automatic() and measure.rule.functions:
            self._look_after(measure, scores_RF)
        if self.rule == measure.rule and not self.rule.fixed:
            values_R = measure.rule.values(rewards_R, scores_RF, self.names)
            self._rescale(self.range.learn(values_R, measure.range, self.quiet), policy)

    def _rescale(self, by: tuple[float, float], policy: Policy) -> None:
        if by != (1.0, 0.0):
            policy.rescale(*by)
            self.sums = self.sums.rescaled(*by)

    # --- the rule if the user gave none ------------------------------------------------------------------------------

    def _automatic(self) -> bool:
        return self.success is None and len(self.names) > 1

    def _shown(self, scores_RF: FloatArray) -> tuple[BoolArray, BoolArray]:
        """Which functions have given only 0 and 1, and which have given 1, with these rewards included."""
        zero_RF, one_RF = np.abs(scores_RF) < EQUAL, np.abs(scores_RF - 1) < EQUAL
        only_F = (zero_RF | one_RF | np.isnan(scores_RF)).all(axis=0)
        return self._only_01_F & only_F, self._gave_1_F | one_RF.any(axis=0)

    def _chosen(self, only_01_F: BoolArray, gave_1_F: BoolArray) -> Rule:
        """The functions of largest weight among those that gave only 0 and 1; the total reward if there are none."""
        binary = [f for f in np.flatnonzero(only_01_F).tolist() if self.weights[f] > 0]
        largest = max((self.weights[f] for f in binary), default=0.0)
        return Rule(functions=tuple(f for f in binary if self.weights[f] == largest))

    def _say_choice(self, rule: Rule) -> None:
        if rule.functions:
            self._say(
                "The beliefs are about success, here %s: the reward functions of the largest weight whose values were "
                "0 and 1 only. Advantages use the total reward. Pass success= to define success otherwise.",
                " and ".join(f"{self.names[f]}=1" for f in rule.functions),
            )
        else:
            self._say(
                "No reward function of %s returns 0 and 1 only: the beliefs are about the total reward, so a constant "
                "part of the reward counts as success. Pass success= with the name of the reward function that "
                "measures success, a threshold on the total, or a function of all rewards.",
                list(self.names),
            )

    def _look_after(self, measure: Measure, scores_RF: FloatArray) -> None:
        """Warns if the functions chosen at the first step turn out not to measure success."""
        functions = measure.rule.functions
        chosen_RF = scores_RF[:, list(functions)]
        outside_RF = (chosen_RF < -EQUAL) | (chosen_RF > 1 + EQUAL)  # False for NaN
        outside = [functions[k] for k in np.flatnonzero(outside_RF.any(axis=0)).tolist()]
        if outside:
            self._say(
                "%s, used as success so far, returned rewards outside [0, 1]. Another definition of success is chosen.",
                [self.names[f] for f in outside],
            )
            left = tuple(f for f in functions if f not in outside)
            self.rule = Rule(functions=left) if left else self._chosen(self._only_01_F, self._gave_1_F)
            self._say_choice(self.rule)
            self.range = RewardRange(self.reward_range if self.rule == Rule() else None)
            return
        never = [self.names[f] for f in functions if not self._gave_1_F[f]]
        if self._rollouts >= _ENOUGH and never and len(never) < len(functions) and "never" not in self._said:
            self._said.add("never")
            self._say(
                "%s returned 0 for all of the first %d rollouts, so no rollout counts as a success. If this reward is "
                "a penalty, pass success= with the name of the reward function that measures success.",
                never,
                self._rollouts,
            )

    def _say(self, text: str, *values: object) -> None:
        if not self.quiet:
            logger.warning(text, *values)

    # --- the state --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All of it in JSON types, for `load_state_dict`."""
        return {
            "names": list(self.names),
            "rule": None if self.rule is None else self._described(self.rule),
            "range": self.range.state_dict(),
            "sums": self.sums.state_dict(),
            "only_01": self._only_01_F.tolist(),
            "gave_1": self._gave_1_F.tolist(),
            "rollouts": self._rollouts,
        }

    def _described(self, rule: Rule) -> dict[str, Any]:
        judge = None if rule.judge is None else getattr(rule.judge, "__qualname__", type(rule.judge).__qualname__)
        return {"functions": list(rule.functions), "threshold": rule.threshold, "judge": judge}

    def load_state_dict(self, state: Mapping[str, Any], policy: Policy) -> None:
        """Restores a saved state, and rescales beliefs and memory to the current range.

        Raises:
            StateError: the state is damaged; success was computed by another rule; or the range given cannot contain
                the saved one.
        """
        if not state:  # a checkpoint from before the first step, or of a version without it
            return
        try:
            names, saved = list(state["names"]), state["rule"]
            only_F, gave_F = (np.array(state[key], dtype=bool) for key in ("only_01", "gave_1"))
            rollouts, sums = int(state["rollouts"]), Sums.from_state(state["sums"])
            rule = None if saved is None else Rule(tuple(int(f) for f in saved["functions"]), saved["threshold"])
            judge = None if saved is None else saved["judge"]
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"The state does not hold the definition of success: it is damaged. {error}") from error
        if rule is not None:
            self._check_same(names, rule, judge)
        by = self.range.load_state_dict(state["range"])
        self.sums = sums
        self._rescale(by, policy)
        if self.rule is None:
            self.rule = rule
        if names == list(self.names):
            self._only_01_F, self._gave_1_F, self._rollouts = only_F, gave_F, rollouts

    def _check_same(self, names: list[str], rule: Rule, judge: str | None) -> None:
        """Raises `StateError` if the beliefs of the state are about a different success rule."""
        was = in_words(names, rule, judge)
        if self.rule is None:  # chosen at the first step: keep the choice
            if judge is not None or (rule.functions and names != list(self.names)):
                raise StateError(
                    f"The beliefs of the checkpoint are about {was}, and this trainer has the reward functions "
                    f"{list(self.names)}. Pass success= as in the run that saved it."
                )
            return
        described = self._described(self.rule)
        now = in_words(list(self.names), Rule(self.rule.functions, self.rule.threshold), described["judge"])
        single = len(self.names) == len(names) == 1 and self.success is None  # the total by another name
        if now != was and not single:
            raise StateError(
                f"The beliefs of the checkpoint are about {was}, this trainer's about {now}. Pass success= as in the "
                "run that saved it, or delete budgetalloc_state.npz from the checkpoint to start with cold beliefs."
            )
