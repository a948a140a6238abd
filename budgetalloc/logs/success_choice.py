"""The choice of success in a log with several reward functions, by the rule of the callback."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL, binary_functions, success_functions
from budgetalloc.errors import printable
from budgetalloc.logs.records import Notes

__all__ = ["chosen_success"]

_ASK = "pass --success COLUMN (success= in Python)"


def chosen_success(
    scores: Any, weights: Mapping[str, float], first_R: Any, notes: Notes, *, known: bool
) -> FloatArray | None:
    """The success of each rollout, chosen at the log's first step as the callback chooses it; None:
    the total reward.

    Args:
        scores: A frame with the rewards of each function, NaN where it gave none.
        weights: The weight of each function.
        first_R: Which rollouts are of the first step, shape (R,).
        notes: Receive the choice, and a doubt that asks for `success` if the rule may not fit the
            log.
        known: Whether the weights are those of the run. Otherwise they were assumed to be equal.

    >>> import pandas as pd
    >>> scores = pd.DataFrame({"right": [0.0, 1.0], "style": [0.3, 0.5]})
    >>> chosen_success(scores, {"right": 1.0, "style": 1.0}, [True, True], notes := Notes(), known=True)
    array([0., 1.])
    >>> print(*notes)
    success taken as right=1, the reward function whose values were 0 and 1 only
    """
    names = list(weights)
    if len(names) < 2:
        return None
    scores_RF = scores[names].to_numpy(dtype=np.float64)
    binary_F = binary_functions(scores_RF[np.asarray(first_R)])
    chosen = [names[f] for f in success_functions(binary_F, list(weights.values()))]
    words = printable(" and ".join(f"{name}=1" for name in chosen))
    if not chosen:
        notes.doubt(
            f"success is not known, because none of {printable(', '.join(names))} gave 0 and 1 "
            "only, so the total "
            f"reward is used: {_ASK}",
            1,
        )
        return None
    if len(chosen) == 1:
        notes[f"success taken as {words}, the reward function whose values were 0 and 1 only"] = 1
    else:
        why = (
            "which have the largest weight" if known else "and the log does not have their weights"
        )
        note = f"success taken as {words}, because all of them gave 0 and 1 only, {why}"
        if known:
            notes[note] = 1
        else:
            notes.doubt(f"{note}. If one of them measures success: {_ASK}", 1)
    success_R = np.fmin.reduce(scores[chosen].to_numpy(dtype=np.float64), axis=1)
    outside = int(((success_R < -EQUAL) | (success_R > 1 + EQUAL)).sum())  # False for NaN
    notes.doubt(f"reward of {words} outside [0, 1], although taken as success: {_ASK}", outside)
    return np.asarray(success_R)
