"""Twins of the mixes in the `Learner` world: what `screen.py` runs instead of a language model.

Those of `operations.py` have its skills: one right strategy of twelve, the other eleven alike; that of `reasoning` has
its tasks and levels. Their other constants and `RATE` were set so that *uniform* allocation has about the curve of the
real runs at 3e-4 (of `reasoning`, at 2e-4 and 4.5e-4) in groups of 8, on seeds that no table uses (1000 and 1001 here,
100 to 103 there). No policies were compared to choose them. The graded twins have the constants of `many_wrong`, and
pay as their mixes do. `growing`, `chain`, `hopeless` and the mixes of `graded.jsonl` have no twin. Skills share less
here than in the preset of the package, and have no direction of doubt: with it, rare skills helped each other so much
that uniform solved the hard pool within 40 steps.
"""

from dataclasses import replace
from typing import Any

import gradings  # in this folder
import numpy as np
import operations
from numpy.typing import NDArray

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.offline.worlds import U_SHAPE, Learner, Task

_NAMES = tuple(operations.OPERATIONS)


def _task(starts: list[tuple[int, float]], strategies: int, **constants: Any) -> Task:
    """A task of skills with one right strategy, given with its probability at the start; all others are alike."""
    wrong = [tuple(k for k in range(strategies) if k != right) for right, _ in starts]
    skills = tuple((right, rest, start) for (right, start), rest in zip(starts, wrong, strict=True))
    return Task(skills, own=0.6, doubt=0.0, strategies=strategies, **constants)


def _twin(low: float, high: float, per_skill: int, held_out: int) -> Task:
    """The skills whose right operation is shown with a probability from `low` to `high`."""
    chosen = [(_NAMES.index(skill.right), skill.shown) for skill in operations.SKILLS if low <= skill.shown <= high]
    return _task(chosen, len(_NAMES), per_skill=per_skill, held_out=held_out, noise=0.5, offset=0.5)


_CELLS = (
    *(0.445, 0.157, 0.009, 0.571, 0.002, 0.683, 0.342, 0.499, 0.085),
    *(0.219, 0.501, 0.135, 0.834, 0.534, 0.168, 0.210, 0.741),
)
"""The model's mean success before training on the held-out questions of each of `reasoning.CELLS` (`start_P` of
`train.train`)."""


class Partial(Learner):
    """A `Learner` that pays the share of right characters, as `partial` does for the same prompts and operations."""

    def __init__(self, task: Task, *, rate: float, seed: int) -> None:
        super().__init__(task, rate=rate, seed=seed)
        texts = [row["prompt"] for row in operations.pool(task.per_skill, seed)]  # skill by skill, as here
        self._credit_PK = np.array([_credits(text) for text in texts])

    def pay(self, ids_R: NDArray[np.int64], strategy_R: NDArray[np.int64], toss_R: FloatArray) -> FloatArray:
        return np.asarray(self._credit_PK[ids_R, strategy_R])


def _credits(text: str) -> list[float]:
    """The share of right characters in what each of the operations makes of a prompt."""
    right = operations.answer(text)
    return [gradings.share_right(run(text[1:-1]), right) for run in operations.OPERATIONS.values()]


class Erring(Learner):
    """A `Learner` whose verifier errs as often as that of `erring`."""

    def pay(self, ids_R: NDArray[np.int64], strategy_R: NDArray[np.int64], toss_R: FloatArray) -> FloatArray:
        right_R = super().pay(ids_R, strategy_R, toss_R)
        return np.where(toss_R < gradings.ERRS, 1 - right_R, right_R)


_OPERATIONS = {
    "many_wrong": _twin(0, 1, 80, 20),
    "hard_wrong": _twin(0, 0.25, 160, 40),
    "hard_once": _twin(0, 0.25, 2_700, 40),
    "easy_once": _twin(0.3, 1, 2_700, 40),
}
_GRADED = dict.fromkeys(("partial", "composite", "erring"), _OPERATIONS["many_wrong"])  # their prompts, other rewards
TWINS = {
    "u_shape": U_SHAPE,
    # Skills that pass at most one time in four, and four easy ones.
    "hard_tail": Task(U_SHAPE.skills[:4] + U_SHAPE.skills[13:], per_skill=150, held_out=40),
    "seen_once": replace(U_SHAPE, per_skill=185),  # 150 steps of 32 prompts draw each of 4,810 once
    **_OPERATIONS,
    **_GRADED,
    # Questions share little: each cell has an answer of its own, and most of a prompt's features are its own.
    "reasoning": _task(list(enumerate(_CELLS)), len(_CELLS), per_skill=106, held_out=20, noise=0.98, offset=0.3),
}
RATE = dict.fromkeys((*_OPERATIONS, *_GRADED, "reasoning"), 2 / 15)
"""What a learning rate of the language model is multiplied by in these twins; 1 in the others."""
_ACCURACY, _FORMAT = gradings.composite(operations).weights
REWARDS = {"composite": lambda success_R: _FORMAT + _ACCURACY * success_R}
"""From success to what is paid, where they differ: no strategy misses the format."""


def world(mix: str, rate: float, seed: int) -> Learner:
    """The twin of a mix, for a learning rate of the language model."""
    kind: type[Learner] = {"partial": Partial, "erring": Erring}.get(mix, Learner)
    return kind(TWINS[mix], rate=rate * RATE.get(mix, 1.0), seed=seed)
