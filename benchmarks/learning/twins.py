"""Twins of the mixes in the `Learner` world: what `screen.py` runs instead of a language model.

Those of `operations.py` have its skills: one right strategy of twelve, the other eleven alike. Their other constants
and `RATE` were set so that *uniform* allocation has about the curve of the real runs at 3e-4 in groups of 8, on seeds
that no table uses (1000 and 1001 here, 100 to 103 there). No policies were compared to choose them. Skills share less
here than in the presets of the package, and have no direction of doubt: with it, rare skills helped each other so much
that uniform solved the hard pool within 40 steps.
"""

import operations  # beside this file

from budgetalloc.offline.worlds import HARD_TAIL, SEEN_ONCE, U_SHAPE, Task

_NAMES = tuple(operations.OPERATIONS)


def _twin(low: float, high: float, per_skill: int, held_out: int) -> Task:
    """The skills whose right operation is shown with a probability from `low` to `high`."""
    chosen = [(_NAMES.index(skill.right), skill.shown) for skill in operations.SKILLS if low <= skill.shown <= high]
    skills = tuple((right, tuple(k for k in range(len(_NAMES)) if k != right), start) for right, start in chosen)
    return Task(skills, (), per_skill, held_out, own=0.6, doubt=0.0, noise=0.5, offset=0.5, strategies=len(_NAMES))


_OPERATIONS = {
    "many_wrong": _twin(0, 1, 80, 20),
    "hard_wrong": _twin(0, 0.25, 160, 40),
    "hard_once": _twin(0, 0.25, 2_700, 40),
    "easy_once": _twin(0.3, 1, 2_700, 40),
}
TWINS = {"u_shape": U_SHAPE, "hard_tail": HARD_TAIL, "seen_once": SEEN_ONCE, **_OPERATIONS}
RATE = dict.fromkeys(_OPERATIONS, 2 / 15)
"""What a learning rate of the language model is multiplied by in these twins; 1 in the others."""
