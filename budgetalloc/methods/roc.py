"""Resample on correct: each group's share of successes, chosen by lowest penalty."""

from collections.abc import Sequence
from typing import Annotated, Literal

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError
from budgetalloc.methods.downselect import resample_on_correct
from budgetalloc.methods.pods import Generate
from budgetalloc.methods.rules import generate_and_keep, rng_of_step
from budgetalloc.methods.table import Between, method
from budgetalloc.policies import Policy


@method("which rollouts", "released code")
def roc(
    *,
    generate: Generate = 2,
    penalty: Annotated[int, Between(0)] | None = None,
    choose: Literal["lowest", "drawn"] = "lowest",
    seed: int = 0,
) -> Policy:
    """GRPO-RoC (arXiv 2508.20722): round(m |positive| / n) successes of lowest penalty and the
    first failures, at least 2 of each kind.

    choose='drawn' follows quotations of the paper, whose text was not read. The code then rejects
    groups of equal rewards; here they have advantage 0. The paper keeps 16 of 32.

    Args:
        penalty: Which reward function returns the penalty, counted from 0; give it weight 0 to keep
            it out of the reward. None is no penalty.
        choose: "drawn" draws failures uniformly and successes with chances inverse to their
            penalty. The draws depend on the seed and on the step's ids and rewards.

    >>> import numpy as np
    >>> scores_RF = np.array([[0, 1, 1, 0, 1, 1, 0, 0], [0, 0.5, 0.1, 0, 0.9, 0.2, 0, 0]]).T
    >>> roc(generate=2, penalty=1).keep(["a"] * 8, scores_RF[:, 0], 4, scores_RF)
    array([0, 2, 3, 5])
    """

    def keep(
        ids_R: Sequence[Id],
        rewards_R: FloatArray,
        rows: int,
        scores_RF: FloatArray | None = None,
        success_R: FloatArray | None = None,
    ) -> IntArray:
        penalties_R = None
        if penalty is not None:
            functions = 0 if scores_RF is None else scores_RF.shape[1]
            if scores_RF is None or penalty >= functions:
                raise InputError(
                    f"penalty={penalty}: scores_RF has the rewards of {functions} functions, "
                    "counted from 0. Use penalty=None, or one of them.",
                    argument="penalty",
                )
            penalties_R = scores_RF[:, penalty]
        rng = rng_of_step(seed, ids_R, rewards_R) if choose == "drawn" else None
        return resample_on_correct(
            ids_R, rewards_R, rows, penalties_R, success_R=success_R, rng=rng
        )

    return generate_and_keep(generate, keep)
