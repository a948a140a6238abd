"""EBPO: the group's mean, shrunk to the mean of the run."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.methods.table import method
from budgetalloc.policies import Needs, Policy, View, uniform

_SUMS = ("number", "sum", "squares")


def with_step(numbers: Mapping[str, float], seen: ByPrompt) -> dict[str, float]:
    """Number, sum and sum of squares of all successes and of all group means of the run, the step
    included."""
    scored_R, means_P = seen.success_R[~np.isnan(seen.success_R)], seen.mean_P[seen.n_P > 0]
    return {
        f"{kind}_{name}": numbers.get(f"{kind}_{name}", 0.0) + float(more)
        for kind, values in (("rewards", scored_R), ("means", means_P))
        for name, more in zip(_SUMS, (len(values), values.sum(), values @ values), strict=True)
    }


def variance(numbers: Mapping[str, float], kind: str) -> float:
    """The variance over n - 1; 0 for fewer than two values."""
    n, total, squares = (numbers[f"{kind}_{name}"] for name in _SUMS)
    return max(squares - total**2 / n, 0.0) / (n - 1) if n > 1 else 0.0


@method("which baseline", "paper's formulas")
def ebpo(*, seed: int = 0) -> Policy:
    """Compares rewards with a blend of the group's mean and the mean of the whole run, which weighs
    more the noisier the group's mean is. Small groups and groups that only fail then get a signal.

    Formula: (1 - S) group mean + S run mean, S = (s2 / n) / (s2 / n + t2), then whitened.

    Source: EBPO (arXiv 2602.05165, Algorithm 1). Compared with the paper's formulas. The paper's
    order of the prompts by topic, which is half of its gain, is left out.

    s2 is the variance of all successes of the run, this step included, t2 that of its group means.

    >>> from budgetalloc import Budget
    >>> step = ebpo().begin(["a", "b"], Budget(rollouts=4))  # S = 1/8 / (1/8 + 1/8)
    >>> step.expected_success(["a", "a", "b", "b"], [0, 0, 0, 1]).round(3)  # half of 1/4 each
    array([0.125, 0.125, 0.375, 0.375])
    """

    def learn(memory: Memory, seen: ByPrompt) -> None:
        memory.numbers |= with_step(memory.numbers, seen)

    def expect(view: View, seen: ByPrompt) -> FloatArray:
        numbers = with_step(view.numbers, seen)
        noise_P = variance(numbers, "rewards") / np.maximum(seen.n_P, 1)
        total_P = noise_P + variance(numbers, "means")
        share_P = np.where(total_P > 0, noise_P / np.where(total_P > 0, total_P, 1.0), 0.0)
        mean = numbers["rewards_sum"] / max(numbers["rewards_number"], 1)
        return np.asarray((1 - share_P) * seen.mean_P + share_P * mean)[seen.prompt_R]

    return replace(
        uniform(),
        needs=Needs(baseline="policy", scale="whiten"),
        memory=Memory({}, learn),
        expect=expect,
    )
