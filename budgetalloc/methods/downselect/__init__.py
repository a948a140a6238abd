"""Selection of the generated rollouts to train on: pure functions from a step's rows to the rows
kept."""

from budgetalloc.methods.downselect.pairs import (
    extreme_pairs,
    pairwise_extremes,
    weighted_resample,
)
from budgetalloc.methods.downselect.resampling import resample_on_correct
from budgetalloc.methods.downselect.rules import (
    balanced,
    largest_advantages,
    mixed_first,
    top_p_variance,
)
from budgetalloc.methods.downselect.variance import d3s_schedule, max_variance

__all__ = [
    "balanced",
    "d3s_schedule",
    "extreme_pairs",
    "largest_advantages",
    "max_variance",
    "mixed_first",
    "pairwise_extremes",
    "resample_on_correct",
    "top_p_variance",
    "weighted_resample",
]
