"""The state of a method in addition to the beliefs: named columns with a value per prompt, and a
few numbers."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.ids import Id, Index
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.state import Table, check_state, reading
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_function, check_integer

Learn = Callable[["Memory", ByPrompt], object]


class Memory:
    """Columns that a method updates from observed rewards, such as each prompt's last mean success.

    Args:
        columns: Name and starting value of each column; a list starts a row of numbers.
        learn: Called at the end of each step with this memory and the step's rollouts by prompt,
            of which there may be none. It writes to `columns` and `numbers`.
        numbers: Name and starting value of each number that all prompts share. `learn` may add
            others.
        lowest: Lower bound of a column or number. The default is the smaller of 0 and its starting
            value. A loaded state with a smaller value is refused. NaN is refused unless the
            starting value is NaN.
        hold: From the columns to the prompts that every decision must see, shape (P,), also one
            that otherwise sees a part of a large pool (`Needs.part`). Default: none.

    >>> def last_mean(memory, seen):
    ...     memory.columns["last"][memory.rows(seen.ids_P)] = seen.mean_P
    >>> memory, rewards_R = Memory({"last": np.nan}, last_mean), np.array([1.0, 0.0, 1.0])
    >>> memory.learn(["a", "a", "b"], rewards_R, rewards_R)
    >>> memory.recall(["b", "new", "a"])
    {'last': array([1. , nan, 0.5])}
    """

    def __init__(
        self,
        columns: Mapping[str, float | Sequence[float]],
        learn: Learn,
        numbers: Mapping[str, float] | None = None,
        *,
        lowest: Mapping[str, float] | None = None,
        hold: Callable[[Mapping[str, FloatArray]], NDArray[np.bool_]] | None = None,
    ) -> None:
        for name, start in (("columns", columns), ("numbers", {} if numbers is None else numbers)):
            if not isinstance(start, Mapping) or not all(isinstance(x, str) for x in start):
                raise InputError(name, "give a mapping from names to starting values.", start)
            kinds = (int, float, list) if start is columns else (int, float)
            if not all(isinstance(x, kinds) for x in start.values()):
                advice = "every starting value must be a number, or a list of numbers for a column."
                raise InputError(name, f"{advice} NaN is allowed.", start)
        check_function("learn", learn, "(memory, seen) that updates the memory")
        self._hold = hold
        self._start = {name: np.asarray(start, np.float64) for name, start in columns.items()}
        self._rule = learn
        self.columns: dict[str, FloatArray] = {
            name: np.zeros((0, *start.shape)) for name, start in self._start.items()
        }
        self._numbers = {name: float(start) for name, start in (numbers or {}).items()}
        self._lowest = dict(lowest or {})
        self.numbers: dict[str, float] = dict(self._numbers)
        self.step = 0
        """Steps that have ended."""
        self.unscored: Mapping[Id, int] = {}
        """While it learns: the step's rollouts without a reward, by prompt."""
        self._index = Index()

    def __len__(self) -> int:
        """Number of prompts seen at least once."""
        return len(self._index)

    def ids(self) -> list[Id]:
        """The prompts seen at least once."""
        return list(self._index.ids)

    def held(self) -> list[Id]:
        """The prompts that every decision must see."""
        if self._hold is None:
            return []
        return list(compress(self._index.ids, self._hold(self.columns).tolist()))

    def recall(self, ids_P: Iterable[Id]) -> dict[str, FloatArray]:
        """Each column for these prompts, shape (P,). Unseen prompts have its starting value."""
        at_P = self._index.find(ids_P)
        known_P = at_P >= 0
        recalled = {}
        for name, column in self.columns.items():
            recalled[name] = self._new_rows(name, len(at_P))
            recalled[name][known_P] = column[at_P[known_P]]
        return recalled

    def _new_rows(self, column: str, rows: int) -> FloatArray:
        start = self._start[column]
        return np.full((rows, *start.shape), start)

    def rows(self, ids_P: Iterable[Id]) -> IntArray:
        """The rows of these prompts in the columns, shape (P,); -1 for a prompt never seen."""
        return self._index.find(ids_P)

    def learn(self, ids_R: Sequence[Id], rewards_R: FloatArray, success_R: FloatArray) -> None:
        """Learns from one step's prompts, rewards and successes, one per rollout, and ends the
        step. A rollout with NaN in either counts in `unscored` alone. If the rule raises, nothing
        has changed."""
        scored_R = ~np.isnan(rewards_R) & ~np.isnan(success_R)
        self.unscored = Counter(compress(ids_R, (~scored_R).tolist()))
        ids = compress(ids_R, scored_R.tolist())
        seen = ByPrompt.of(ids, rewards_R[scored_R], success_R[scored_R])
        columns, numbers = self.columns, dict(self.numbers)
        known = len(self)
        self._index.add(seen.ids_P)
        self.columns = {
            name: np.concatenate([columns[name], self._new_rows(name, len(self) - known)])
            for name in self._start
        }
        try:
            self._rule(self, seen)
            # this state could not be loaded
            if (wrong := self._unexpected(self.columns, self.numbers)) is not None:
                raise InputError(
                    f"The memory's rule wrote {wrong}: a column or number must be finite and at "
                    "least 0, or NaN where "
                    "it starts as NaN. Name columns and numbers that may be below 0 in "
                    "Memory(lowest=...)."
                )
        except BaseException:
            self.columns, self.numbers = columns, numbers
            self._index = Index(self._index.ids[:known])
            raise
        finally:
            self.unscored = {}
        self.step += 1

    def _unexpected(
        self, columns: Mapping[str, FloatArray], numbers: Mapping[str, float]
    ) -> str | None:
        """The first value that is infinite, below its bound, or NaN although it did not start as
        NaN; None if none."""
        start = {name: first.flat[0] for name, first in self._start.items()} | self._numbers
        for name, values in (
            *columns.items(),
            *((name, np.array([x])) for name, x in numbers.items()),
        ):
            first = start.get(name, 0.0)
            lowest = self._lowest.get(name, min(0.0, first))  # 0 if `first` is NaN
            wrong = ~(np.isfinite(values) & (values >= lowest))
            if np.isnan(first):
                wrong &= ~np.isnan(values)
            if wrong.any():
                return f"{name}={values[wrong][0]:g}"
        return None

    def state_dict(self) -> dict[str, Any]:
        """All columns and numbers, under keys that begin with "memory"."""
        return {
            "memory": {
                "step": self.step,
                "ids": self.ids(),
                "numbers": dict(self.numbers),
            },
            **{f"memory/{name}": column.copy() for name, column in self.columns.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replaces all columns and numbers. If the state does not fit, raises `StateError` and
        changes nothing."""
        check_state(state)
        with reading("memory"):
            about = dict(state["memory"])
            table = Table(self._start, dict.fromkeys(self._start, -np.inf))
            columns = {name: state[f"memory/{name}"] for name in self._start}
            table.load_state_dict({"ids": about["ids"]} | columns)
            numbers = {str(name): float(number) for name, number in about["numbers"].items()}
            step = check_integer("step", about["step"], 0)
            if missing := sorted(self._numbers.keys() - numbers.keys()):
                raise InputError(f"it lacks the numbers {missing}")
            loaded = {name: table[name] for name in self._start}
            if (wrong := self._unexpected(loaded, numbers)) is not None:
                raise InputError(f"it holds {wrong}, which this policy never writes")
        self.step, self.numbers = step, numbers
        self.columns, self._index = loaded, table.index
