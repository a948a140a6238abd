"""Successes of the model before training, for methods that start from offline rollouts: given, or measured and paid."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_integer, check_number, shown
from budgetalloc.policies.decision import Outcome, View
from budgetalloc.policies.ranking import ranked

logger = logging.getLogger(__name__)
Offline = Mapping[Id, tuple[float, int]] | int | None
"""What is known before training. A mapping: each prompt's successes and rollouts of the model before training. An
integer n: the run's first steps give n rollouts to every candidate. None: nothing."""

COLUMNS = {"offline_successes": 0.0, "offline_rollouts": 0.0}
"""What a memory keeps of the measurement."""


def rescale_results(memory: Memory, scale: float, shift: float) -> None:
    """Changes what was measured as if each success u had been scale * u + shift; see `Policy.rescale`."""
    columns = memory.columns
    most = columns["offline_rollouts"]
    columns["offline_successes"] = np.clip(scale * columns["offline_successes"] + shift * most, 0.0, most)


@dataclass(frozen=True, eq=False)
class InitialSuccess:
    """Each prompt's successes before training.

    With an integer, the rollouts are charged to the run: as long as a candidate has fewer than `measure`, the steps
    give `measure` to candidates without them, and these rollouts are observed, counted and logged as all others, but
    not trained on (`untrained`), so that the model stays as it was. A run of B rollouts over P prompts has B - n P left
    for training. With n P of at least B, nothing is trained at all; the first step logs how many steps measure.

    Args:
        given: Successes and rollouts by prompt.
        measure: Rollouts to measure of each prompt not given, 0 for none.
    """

    given: Mapping[Id, tuple[float, int]]
    measure: int

    @classmethod
    def of(cls, offline: Offline) -> "InitialSuccess":
        """The reference as given; raises `InputError` for anything else.

        >>> InitialSuccess.of(8).measure, InitialSuccess.of({"a": (3, 8)}).given
        (8, {'a': (3, 8)})
        """
        if offline is None:
            return cls({}, 0)
        if not isinstance(offline, Mapping):
            try:
                return cls({}, check_integer("offline", offline, 1))
            except InputError as error:
                raise InputError(
                    f"offline={shown(offline)}: give a mapping from a prompt's id to its (successes, rollouts), the "
                    "number of rollouts to measure each prompt with at the start of the run, or None."
                ) from error
        for name, pair in offline.items():
            if not isinstance(pair, Sequence) or len(pair) != 2:
                raise InputError(f"offline[{name!r}]={shown(pair)}: give (successes, rollouts), such as (3, 8).")
            rollouts = check_integer(f"rollouts of offline[{name!r}]", pair[1], 0)
            check_number(f"successes of offline[{name!r}]", pair[0], 0, rollouts)
        return cls(dict(offline), 0)

    def __str__(self) -> str:
        return "given" if self.given else str(self.measure or None)

    def results(self, ids_P: Sequence[Id], recall: Mapping[str, FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Successes and rollouts of each prompt before training, shape (P,); 0 and 0 where nothing is known."""
        if not self.given:
            return recall["offline_successes"], recall["offline_rollouts"]
        pairs = list(map(self.given.get, ids_P, repeat((0.0, 0))))
        both = np.array(pairs, dtype=np.float64).reshape(len(pairs), 2)
        return both[:, 0], both[:, 1]

    def missing(self, recall: Mapping[str, FloatArray]) -> NDArray[np.bool_]:
        """Which prompts are still to be measured, shape (P,)."""
        return recall["offline_rollouts"] < self.measure

    def learn(self, memory: Memory, visit: Visit) -> NDArray[np.bool_]:
        """Adds the measurements of a visit to the memory; returns which prompts of it were trained on, shape (V,)."""
        at_V, columns = visit.at_V, memory.columns
        measured_V = columns["offline_rollouts"][at_V] < self.measure
        columns["offline_successes"][at_V] += np.where(measured_V, visit.successes_V, 0.0)
        columns["offline_rollouts"][at_V] += np.where(measured_V, visit.scored_V, 0.0)
        return ~measured_V

    def measured_first(self, rule: Callable[[View], IntArray]) -> Callable[[View], IntArray]:
        """A decision that measures the candidates first, in random order, and then follows the rule."""

        def decide(view: View) -> IntArray:
            if not self.measure or not (missing_P := self.missing(view.recall)).any():
                return rule(view)
            steps = -(-int(missing_P.sum()) * self.measure // (view.budget.rollouts or np.inf))
            if not view.step and steps > 1:
                logger.warning(
                    "offline=%d: the first %d steps measure %d prompts and train on nothing; give their results as a "
                    "mapping, or check that the run is longer.",
                    self.measure,
                    steps,
                    int(missing_P.sum()),
                )
            order_P = np.linspace(1.0, 0.5, len(missing_P))  # the view's order is random
            return ranked(order_P + missing_P, self.measure, view)

        return decide

    def untrained(self, outcome: Outcome, expected_G: FloatArray) -> FloatArray:
        """The expected success of each rollout, NaN for one that measures, from that of each prompt."""
        if self.measure:
            expected_G = np.where(self.missing(outcome.recall_G), np.nan, expected_G)
        return np.asarray(expected_G[outcome.group_R])
