"""Success rates of the model before training: given, or measured by the first steps of the run."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.memory import Learn, Memory
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_integer, check_number, short_repr
from budgetalloc.methods.rules import ranked
from budgetalloc.methods.table import policy
from budgetalloc.policies import Policy, View

logger = logging.getLogger(__name__)
Offline = Mapping[Id, tuple[float, int]] | int | None
"""A mapping: successes and rollouts of each prompt before training. An integer n: the run's first
steps measure every candidate with n rollouts. None: nothing is known."""

_COLUMNS = {"offline_successes": 0.0, "offline_rollouts": 0.0}


class InitialSuccess:
    """Each prompt's successes before training.

    A measurement is charged to the run. While a candidate has fewer than `measure` rollouts, the
    steps give `measure` to such candidates. These rollouts are observed like all others, but not
    trained on. The first step logs the number of measuring steps.

    >>> InitialSuccess(8).measure, InitialSuccess({"a": (3, 8)}).given
    (8, {'a': (3, 8)})
    """

    def __init__(self, offline: Offline) -> None:
        self.given: Mapping[Id, tuple[float, int]] = {}
        self.measure = 0
        """Rollouts to measure each prompt with."""
        if isinstance(offline, Mapping):
            for name, pair in offline.items():
                if not isinstance(pair, Sequence) or len(pair) != 2:
                    raise InputError(
                        f"offline[{name!r}]={short_repr(pair)}:",
                        "give (successes, rollouts), such as (3, 8).",
                    )
                rollouts = check_integer(f"rollouts of offline[{name!r}]", pair[1], 0)
                check_number(f"successes of offline[{name!r}]", pair[0], 0, rollouts)
            self.given = dict(offline)
        elif offline is not None:
            try:
                self.measure = check_integer("offline", offline, 1)
            except InputError as error:
                raise InputError(
                    "offline",
                    "give a mapping from a prompt's id to its (successes, rollouts), the number of "
                    "rollouts to measure each prompt with at the start of the run, or None.",
                    offline,
                ) from error

    def results(self, view: View) -> tuple[FloatArray, FloatArray]:
        """Successes and rollouts of each prompt before training, shape (P,); both 0 if unknown."""
        if not self.given:
            return view.recall["offline_successes"], view.recall["offline_rollouts"]
        pairs = [self.given.get(name, (0.0, 0)) for name in view.ids_P]
        both_P2 = np.array(pairs, dtype=np.float64).reshape(-1, 2)
        return both_P2[:, 0], both_P2[:, 1]

    def missing(self, view: View) -> NDArray[np.bool_]:
        """Which prompts still have to be measured, shape (P,)."""
        return view.recall["offline_rollouts"] < self.measure

    def learn(self, memory: Memory, seen: ByPrompt) -> NDArray[np.bool_]:
        """Adds the measurements of a step to the memory; returns which of its prompts were trained
        on, shape (P,)."""
        at_P, columns = memory.rows(seen.ids_P), memory.columns
        measured_P = columns["offline_rollouts"][at_P] < self.measure
        columns["offline_successes"][at_P] += np.where(measured_P, seen.successes_P, 0.0)
        columns["offline_rollouts"][at_P] += np.where(measured_P, seen.n_P, 0.0)
        return ~measured_P

    def policy(
        self,
        rule: Callable[[View], IntArray],
        expected: Callable[[View, ByPrompt], FloatArray] = lambda view, seen: seen.mean_P,
        learn: Learn | None = None,
        columns: Mapping[str, float] | None = None,
        numbers: Mapping[str, float] | None = None,
        **given: Any,
    ) -> Policy:
        """A policy that first measures the candidates, in random order, and then follows a rule.

        Args:
            rule: The rule.
            expected: The baseline: the expected success of each prompt's rollouts, shape (P,); by
                default their mean.
            learn: The update of the memory, by default that of this class, which it calls.
            columns, numbers: Of the memory besides.
            given: As in `table.policy`.
        """

        def decide(view: View) -> IntArray:
            if not self.measure or not (missing_P := self.missing(view)).any():
                return rule(view)
            steps = -(-int(missing_P.sum()) * self.measure // (view.budget.rollouts or np.inf))
            if not view.step and steps > 1:
                logger.warning(
                    "offline=%d: the first %d steps measure %d prompts and train on nothing; give "
                    "their results as a mapping, or check that the run is longer.",
                    self.measure,
                    steps,
                    int(missing_P.sum()),
                )
            order_P = np.linspace(1.0, 0.5, len(missing_P))  # the view's order is random
            return ranked(order_P + missing_P, self.measure, view)

        def expect(view: View, seen: ByPrompt) -> FloatArray:
            expected_P = expected(view, seen)
            if self.measure:
                expected_P = np.where(self.missing(view), np.nan, expected_P)
            return np.asarray(expected_P[seen.prompt_R])

        memory = Memory({**(columns or {}), **_COLUMNS}, learn or self.learn, numbers)
        needs = {"candidates": "all", "baseline": "policy"} | given
        return policy(decide, memory=memory, expect=expect, **needs)
