"""The choice of success in a log with several reward functions, by the rule of the callback."""

from collections.abc import Mapping

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL, binary_functions, success_functions
from budgetalloc.errors import printable
from budgetalloc.logs.chunk import Notes

__all__ = ["SuccessChoice"]

_ASK = "pass --success COLUMN (success= in Python)"


class SuccessChoice:
    """Chooses success at the first step of a log, as the callback does at the first step of a run.

    Args:
        notes: Receive the choice, and a doubt that asks for `success` if the rule may not fit the log.
        known: Whether the weights are those of the run. Otherwise they were assumed to be equal.

    >>> choice = SuccessChoice(notes := Notes(), known=True)
    >>> choice({"right": np.array([0.0, 1.0]), "style": np.array([0.3, 0.5])}, {"right": 1.0, "style": 1.0})
    array([0., 1.])
    >>> print(*notes)
    success taken as right=1, the reward function whose values were 0 and 1 only
    """

    def __init__(self, notes: Notes, *, known: bool) -> None:
        self.notes, self.known = notes, known
        self._chosen: tuple[str, ...] | None = None

    def __call__(self, scores: Mapping[str, FloatArray], weights: Mapping[str, float]) -> FloatArray | None:
        """The success of each rollout in a part of the log, shape (R,); None if success is the total reward.

        Args:
            scores: The rewards of each function, NaN where it gave none, shape (R,) each. The first call chooses.
            weights: The weight of each function.
        """
        if len(weights) < 2:
            return None
        if self._chosen is None:
            self._choose(scores, weights)
        if not self._chosen:
            return None
        of_chosen = [scores[name] for name in self._chosen if name in scores]
        rows = len(next(iter(scores.values())))
        success_R = np.fmin.reduce(of_chosen, axis=0) if of_chosen else np.full(rows, np.nan)
        outside = int(((success_R < -EQUAL) | (success_R > 1 + EQUAL)).sum())  # False for NaN
        note = f"reward of {_words(self._chosen)} outside [0, 1], although taken as success: {_ASK}"
        self.notes.doubt(note, outside)
        return np.asarray(success_R)

    def _choose(self, scores: Mapping[str, FloatArray], weights: Mapping[str, float]) -> None:
        names = list(weights)
        of_names_F = binary_functions(np.stack([scores[name] for name in names], axis=1))
        places = success_functions(of_names_F, list(weights.values()))
        self._chosen = chosen = tuple(names[f] for f in places)
        if not chosen:
            self.notes.doubt(
                f"success is not known, because none of {printable(', '.join(names))} gave 0 and 1 only, so "
                f"the total reward is used: {_ASK}",
                1,
            )
        elif len(chosen) == 1:
            self.notes[f"success taken as {_words(chosen)}, the reward function whose values were 0 and 1 only"] = 1
        else:
            why = "which have the largest weight" if self.known else "and the log does not have their weights"
            note = f"success taken as {_words(chosen)}, because all of them gave 0 and 1 only, {why}"
            if self.known:
                self.notes[note] = 1
            else:
                self.notes.doubt(f"{note}. If one of them measures success: {_ASK}", 1)


def _words(names: tuple[str, ...]) -> str:
    return printable(" and ".join(f"{name}=1" for name in names))
