"""Success of the rollouts of a log, in [0, 1]: the log's own success, or its rewards mapped by their range."""

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import to_unit
from budgetalloc.errors import InputError
from budgetalloc.logs.chunk import Chunk, mapped

__all__ = ["success_of"]


def success_of(chunk: Chunk, reward_range: tuple[float, float] | None) -> FloatArray:
    """The success of each rollout, NaN where there is none, shape (R,).

    Args:
        chunk: Part of a log. Success that is not the reward mapped by the log's range is used unchanged.
        reward_range: The rewards of failure and success; None is the range of the log, or (0, 1).

    Raises:
        InputError: a reward outside a range that the log does not have itself.

    >>> chunk = Chunk(np.zeros(3), ["a"] * 3, np.array([-1.0, 0.0, 1.0]), *np.zeros((3, 3)), reward_range=(-1, 1))
    >>> success_of(chunk, None), success_of(chunk, (-1, 3))
    (array([0. , 0.5, 1. ]), array([0.  , 0.25, 0.5 ]))
    """
    known = np.array_equal(chunk.success_R, mapped(chunk.rewards_R, chunk.reward_range), equal_nan=True)
    if not known or (reward_range is None and chunk.reward_range is not None):
        return np.asarray(np.clip(chunk.success_R, 0.0, 1.0))
    low, high = reward_range or (0.0, 1.0)
    success_R = to_unit(chunk.rewards_R, (low, high))
    outside_R = (success_R < 0) | (success_R > 1)  # False for NaN
    if outside_R.any():
        wrong = np.asarray(chunk.rewards_R)[outside_R][0]
        raise InputError(
            f"The log has a reward of {wrong:g}, outside reward_range=({low:g}, {high:g}): give the rewards that stand "
            "for failure and success."
        )
    return success_R
