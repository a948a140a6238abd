"""Success of the rollouts of a log, in [0, 1]: the log's own success, or its rewards mapped by
their range."""

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import to_unit
from budgetalloc.errors import InputError
from budgetalloc.logs.ledger import Ledger

__all__ = ["success_of"]


def success_of(ledger: Ledger, reward_range: tuple[float, float] | None) -> FloatArray:
    """The success of each rollout, NaN where there is none, shape (R,).

    Args:
        ledger: A log. Success that is not the reward mapped by the log's range is used unchanged.
        reward_range: The rewards of failure and success; None is the range of the log, or (0, 1).

    Raises:
        InputError: a reward outside a range that the log does not have itself.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"step": 0, "prompt": "a", "reward": [-1.0, 0.0, 1.0]})
    >>> ledger = Ledger.of_frame(frame, reward_range=(-1, 1))
    >>> success_of(ledger, None), success_of(ledger, (-1, 3))
    (array([0. , 0.5, 1. ]), array([0.  , 0.25, 0.5 ]))
    """
    rewards_R, success_R = (
        ledger.frame[name].to_numpy(dtype=np.float64) for name in ("reward", "success")
    )
    own = ledger.reward_range
    mapped_R = to_unit(rewards_R, own or (0.0, 1.0))
    mapped_R = mapped_R if own is None else np.clip(mapped_R, 0.0, 1.0)
    if not np.array_equal(success_R, mapped_R, equal_nan=True) or (
        reward_range is None and own is not None
    ):
        return np.asarray(np.clip(success_R, 0.0, 1.0))
    low, high = reward_range or (0.0, 1.0)
    unit_R = to_unit(rewards_R, (low, high))
    outside_R = (unit_R < 0) | (unit_R > 1)  # False for NaN
    if outside_R.any():
        raise InputError(
            f"The log has a reward of {rewards_R[outside_R][0]:g}, outside reward_range=({low:g}, "
            f"{high:g}): give the "
            "rewards that stand for failure and success."
        )
    return unit_R
