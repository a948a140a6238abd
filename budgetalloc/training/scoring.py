"""The rule and the range by which rewards become success, and their updates after every step."""

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL
from budgetalloc.errors import StateError
from budgetalloc.policies import Policy
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.rails import Rails
from budgetalloc.training.reward_range import Range, RewardRange
from budgetalloc.training.success import (
    BoolArray,
    Returned,
    Rule,
    Success,
    chosen,
    in_words,
    rule_of_argument,
)
from budgetalloc.training.success_measure import Measure

__all__ = ["Scoring"]

logger = logging.getLogger(__name__)
_ENOUGH = 1000  # rollouts after which a function that never gave 1 is reported


@dataclass(eq=False)
class Scoring:
    """Computes success from rewards. Its state is learned from all earlier rewards, in `learn`.

    Args:
        names, weights: Names and weights of the reward functions.
        success: As in `AdaptiveGRPOCallback`.
        reward_range: Range of the total reward; None learns it.
        quiet: Whether to suppress log messages, as in all processes but one.
        rails: Checks of beliefs and advantages; None if advantages do not follow from beliefs.

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
    rails: Rails | None = None
    sums: Sums = field(default_factory=Sums)
    rule: Rule | None = field(init=False)

    def __post_init__(self) -> None:
        self.names = tuple(self.names)  # the trainer's own list may grow
        self.rule = rule_of_argument(self.success, self.names)
        if self.rule is None and len(self.names) == 1:
            self.rule = Rule(
                functions=(0,) if self.reward_range is None and self.weights[0] > 0 else ()
            )
        self.range = RewardRange()  # of the values of functions
        self.total = RewardRange(self.reward_range)  # of the total reward
        self._returned = Returned.none(len(self.names))
        self._rollouts = 0
        self._warned: set[str] = set()
        self._first_weights = tuple(self.weights)

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
            kept, rule = (
                {name: at for at, name in enumerate(self.names)},
                rule_of_argument(self.success, names),
            )
            if rule is None and self.rule is not None:
                about = [self.names[f] for f in self.rule.functions]
                places = tuple(list(names).index(name) for name in about if name in names)
                rule = replace(self.rule, functions=places) if len(places) == len(about) else None
            before, none = vars(self._returned), vars(Returned.none(1))
            flags = {
                flag: np.array(
                    [before[flag][kept[name]] if name in kept else none[flag][0] for name in names]
                )
                for flag in none
            }
            self.names, self.rule, self._returned = tuple(names), rule, Returned(**flags)
            self._first_weights = tuple(weights)
        if list(weights) != list(self.weights):  # other totals say nothing about those to come
            self.weights, self.sums = (
                list(weights),
                Sums(within=self.sums.within, pairs=self.sums.pairs),
            )

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
        rule = self.rule or chosen(returned.only_01_F, returned.scored_F, self.weights)
        total, in_force, slope = self.total.of(rewards_R), (0.0, 1.0), None
        if rule == Rule():
            in_force, slope = total, 1.0
        elif not rule.fixed:
            in_force = self.range.of(rule.values(rewards_R, scores_RF, self.names))
            if len(self.names) == 1 and self.weights[0] > 0:
                slope = float(self.weights[0])
        known_R = ~np.isnan(rewards_R)
        if not np.allclose(rewards_R[known_R], self.total_rewards(scores_RF)[known_R], atol=EQUAL):
            # the rewards have other weights than those known here: the line is learned
            slope = None
        partial = tuple(np.flatnonzero(returned.partial_F).tolist())
        return Measure(
            rule, in_force, tuple(self.names), slope, tuple(self.weights), total, partial
        )

    @property
    def settled(self) -> bool:
        """Whether the success of a rollout depends on its own rewards only, from the beginning of a
        step."""
        if self.rule is None or self.rule.fixed:
            return self.rule is not None
        return (self.total if self.rule == Rule() else self.range).range is not None

    def look(self, batch: Rollouts) -> dict[str, float]:
        """Checks a finished step's advantages (`rails`), and returns the metrics of that."""
        return {} if self.rails is None else self.rails.look(batch)

    def learn(
        self,
        measure: Measure,
        rewards_R: FloatArray,
        scores_RF: FloatArray,
        sums: Sums,
        policy: Policy,
    ) -> None:
        """Learns from all rounds of a finished step. If the range changes, beliefs and memory are
        rescaled."""
        self.sums = self.sums.faded().with_sums(sums)
        self._rollouts += len(rewards_R)
        known_F, self._returned = self._returned.scored_F, self._returned.plus(scores_RF)
        if self.success is None and len(self.names) > 1:
            if (self._returned.scored_F & ~known_F).any():  # a function returned its first rewards
                # eligible even if graded by now
                in_use_F = np.isin(np.arange(len(self.names)), measure.rule.functions)
                self._take(self._chosen(in_use_F))
            self._warn_if_not_success(scores_RF)
        by_total_R = measure.by_total(rewards_R, scores_RF)
        if measure.rule == Rule():
            self._rescale(self.total.learn(rewards_R, measure.range, self.quiet), policy)
            return
        if measure.slope is None:  # a single function determines the total
            used = measure.total_range or (0.0, 1.0)
            self.total.learn(rewards_R, used, self.quiet or not by_total_R.any())
        if by_total_R.any():
            self._say(
                "%s returned None for %d of %d rollouts that other functions scored. The success "
                "of such rollouts is "
                "their total reward, mapped to [0, 1]. Pass a function as success= to define it "
                "otherwise.",
                " and ".join(self.names[f] for f in measure.rule.functions),
                by_total_R.sum(),
                len(by_total_R),
                once="by total",
            )
        if self.rule == measure.rule and not self.rule.fixed:
            values_R = measure.rule.values(rewards_R, scores_RF, self.names)
            self._rescale(self.range.learn(values_R, measure.range, self.quiet), policy)

    def _rescale(self, by: tuple[float, float], policy: Policy) -> None:
        if by != (1.0, 0.0):
            policy.rescale(*by)
            self.sums = self.sums.rescaled(*by)

    # --- the rule, if the user gave none
    # -----------------------------------------------------------------------------

    def _chosen(self, also_F: BoolArray | bool = False) -> Rule:
        return chosen(self._returned.only_01_F | also_F, self._returned.scored_F, self.weights)

    def _take(self, rule: Rule) -> None:
        if rule == self.rule:
            return
        self.rule, self.range = rule, RewardRange()
        scored_F = self._returned.scored_F.tolist()
        if rule.functions:
            self._say(
                "The beliefs are about success, here %s: the reward functions of the largest "
                "weight whose values were "
                "0 and 1 only. Advantages use the total reward. Pass success= to define success "
                "otherwise.",
                " and ".join(f"{self.names[f]}=1" for f in rule.functions),
            )
        else:
            self._say(
                "No reward function of %s returns 0 and 1 only: the beliefs are about the total "
                "reward, so a constant "
                "part of the reward counts as success. Pass success= with the name of the reward "
                "function that "
                "measures success, a threshold on the total, or a function of all rewards.",
                [name for name, scored in zip(self.names, scored_F, strict=True) if scored],
            )
        silent = [
            self.names[f] for f, scored in enumerate(scored_F) if not scored and self.weights[f] > 0
        ]
        if silent:
            self._say(
                "%s returned None for all rollouts so far. When it returns a reward, success is "
                "chosen again.",
                silent,
                once="silent",
            )

    def _warn_if_not_success(self, scores_RF: FloatArray) -> None:
        """Warns if the functions chosen turn out not to measure success."""
        functions = () if self.rule is None else self.rule.functions
        chosen_RF = scores_RF[:, list(functions)]
        outside_RF = (chosen_RF < -EQUAL) | (chosen_RF > 1 + EQUAL)  # False for NaN
        outside = [functions[k] for k in np.flatnonzero(outside_RF.any(axis=0)).tolist()]
        if outside:
            self._say(
                "%s, used as success so far, returned rewards outside [0, 1]. Another definition "
                "of success is chosen.",
                [self.names[f] for f in outside],
            )
            left = tuple(f for f in functions if f not in outside)
            self._take(Rule(left) if left else self._chosen())
            return
        never = [self.names[f] for f in functions if not self._returned.gave_1_F[f]]
        if self._rollouts >= _ENOUGH and never and len(never) < len(functions):
            self._say(
                "%s returned 0 for all of the first %d rollouts, so no rollout counts as a "
                "success. If this reward is "
                "a penalty, pass success= with the name of the reward function that measures "
                "success.",
                never,
                self._rollouts,
                once="never",
            )

    def _say(self, text: str, *values: object, once: str = "") -> None:
        """Logs a warning; one with a key `once` is logged a single time."""
        if not self.quiet and once not in self._warned:
            logger.warning(text, *values)
        if once:
            self._warned.add(once)

    # --- the state
    # --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state in JSON types, for `load_state_dict`."""
        return {
            "names": list(self.names),
            # a schedule begins again with them
            "weights": [float(weight) for weight in self._first_weights],
            "rule": None if self.rule is None else self._described(self.rule),
            "range": self.range.state_dict(),
            "total": self.total.state_dict(),
            "sums": self.sums.state_dict(),
            "rollouts": self._rollouts,
            "rails": None if self.rails is None else self.rails.state_dict(),
            **self._returned.state_dict(),
        }

    def _described(self, rule: Rule) -> dict[str, Any]:
        judge = (
            None
            if rule.judge is None
            else getattr(rule.judge, "__qualname__", type(rule.judge).__qualname__)
        )
        return {"functions": list(rule.functions), "threshold": rule.threshold, "judge": judge}

    def load_state_dict(self, state: Mapping[str, Any], policy: Policy) -> None:
        """Restores a saved state, and rescales beliefs and memory to the current range.

        With one reward function, `reward_range` may be added, changed or left out. Without it,
        learning continues from the saved range. Weights may all be multiplied by the same positive
        number.

        Raises:
            StateError: the state is damaged, its success is computed by another rule or from a
                total reward with other weights, or the given range cannot contain the saved range.
                Nothing has changed then.
        """
        try:
            names, saved = list(state["names"]), state["rule"]
            weights = list(zip(names, map(float, state["weights"]), strict=True))
            rollouts, sums = int(state["rollouts"]), Sums.from_state(state["sums"])
            rule = (
                None
                if saved is None
                else Rule(tuple(int(f) for f in saved["functions"]), saved["threshold"])
            )
            judge = None if saved is None else saved["judge"]
            returned = Returned.from_state(state, len(names))
            of_rule, total, rails = state["range"], state["total"], state["rails"]
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"The state does not hold the definition of success: it is damaged. {error}"
            ) from error
        if rule is not None:
            self._check_same(names, rule, judge)
        # loading replaces what they hold
        own, of_both = copy.copy(self.range), copy.copy(self.total)
        of_total = rule in (None, Rule()) and judge is None
        now_total = of_total if rule is None or self.rule is None else self.rule == Rule()
        grown = self._growth_of_total(weights)
        by_total = rule is not None and judge is None and not rule.functions
        # a threshold stays where it is
        if by_total and (grown is None or (not of_total and grown != 1)):
            now = dict(zip(self.names, self.weights, strict=True))
            raise StateError(
                "The beliefs of the checkpoint are about the total reward with the weights "
                f"{dict(weights)}, and this "
                f"trainer has {now}. Pass the weights of the run that saved it, or delete "
                "budgetalloc_state.npz from "
                "the checkpoint to start with cold beliefs."
            )
        factor = (grown or 1.0) if of_total else 1.0  # from the saved values to those of this run
        if of_total != now_total:  # one function, and only one of the two runs has `reward_range`
            factor = self.weights[0] if now_total else 1 / weights[0][1]
        by = (of_both if now_total else own).load_state_dict(total if of_total else of_rule, factor)
        if not of_total and not now_total and self.reward_range is None and grown is not None:
            of_both.load_state_dict(total, grown)
        if self.rails is not None and rails is not None:
            self.rails.load_state_dict(rails)
        self.range, self.total = own, of_both
        self.sums = sums if grown == 1 else Sums()  # they are about the total
        self._rescale(by, policy)
        if self.rule is None:
            self.rule = rule
        if names == list(self.names):
            self._returned, self._rollouts = returned, rollouts
        elif rule is not None:  # the choice stays
            self._returned = replace(self._returned, scored_F=np.ones(len(self.names), dtype=bool))

    def _growth_of_total(self, weights: list[tuple[str, float]]) -> float | None:
        """The factor by which this run's total reward exceeds that of saved weights; None if it is
        another total."""
        now = zip(self.names, self.weights, strict=True)
        now_F, saved_F = (np.array([w for _, w in sorted(pairs) if w]) for pairs in (now, weights))
        if len(now_F) != len(saved_F):
            return None
        factor = float(now_F[0] / saved_F[0]) if len(now_F) else 1.0
        return (
            factor
            if factor > 0 and np.allclose(factor * saved_F, now_F, rtol=1e-9, atol=0)
            else None
        )

    def _check_same(self, names: list[str], rule: Rule, judge: str | None) -> None:
        """Raises `StateError` if the state's beliefs are about another success rule."""
        was = in_words(names, rule, judge)
        if self.rule is None:  # chosen at the first step: keep the choice
            if judge is not None or (rule.functions and names != list(self.names)):
                raise StateError(
                    f"The beliefs of the checkpoint are about {was}, and this trainer has the "
                    "reward functions "
                    f"{list(self.names)}. Pass success= as in the run that saved it."
                )
            return
        now = in_words(list(self.names), self.rule, self._described(self.rule)["judge"])
        fixed = rule.fixed or judge is not None
        alike = (
            len(self.names) == len(names) == 1
            and self.success is None
            and not fixed
            and self.weights[0] > 0
        )
        if now != was and not alike:  # a single function and the total are alike
            raise StateError(
                f"The beliefs of the checkpoint are about {was}, this trainer's about {now}. Pass "
                "success= as in the "
                "run that saved it, or delete budgetalloc_state.npz from the checkpoint to start "
                "with cold beliefs."
            )
