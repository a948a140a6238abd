"""The problem that the exact solvers solve. Its numbers are checked."""

from dataclasses import dataclass

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import Budget, IntArray

__all__ = ["Answer", "Problem"]


@dataclass(frozen=True, eq=False)
class Problem:
    """One count for each prompt, under linear constraints.

    Args:
        values_PN: Values, shape (P, N).
        counts_N: Counts of the columns.
        budget: The budget.
        prices: Tokens of one rollout of each prompt, and the limit, as integers. None without a
            limit on tokens.
        quotas: For each quota, the indices of its prompts, and the fewest and most rollouts.
        max_prompts: Most prompts that may get rollouts, or None.
        time_limit: Seconds.
        seed: CP-SAT's random seed.
        start_P: The columns that `greedy` chooses, without the constraints that it does not
            support.
    """

    values_PN: FloatArray
    counts_N: IntArray
    budget: Budget
    prices: tuple[list[int], int] | None
    quotas: list[tuple[IntArray, int, int]]
    max_prompts: int | None
    time_limit: float
    seed: int
    start_P: IntArray


Answer = tuple[IntArray | None, float, bool]
"""The column chosen for each prompt, a bound, and whether the search was completed. A completed search without columns
proves that no counts satisfy the constraints."""
