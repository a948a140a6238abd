"""Selection of the generated rollouts to train on: pure functions from a step's rows to the rows kept."""

from budgetalloc.policies.downselect.pairs import extreme_pairs as extreme_pairs
from budgetalloc.policies.downselect.pairs import pairwise_extremes as pairwise_extremes
from budgetalloc.policies.downselect.pairs import weighted_resample as weighted_resample
from budgetalloc.policies.downselect.resampling import resample_on_correct as resample_on_correct
from budgetalloc.policies.downselect.rules import balanced as balanced
from budgetalloc.policies.downselect.rules import largest_advantages as largest_advantages
from budgetalloc.policies.downselect.rules import mixed_first as mixed_first
from budgetalloc.policies.downselect.rules import top_p_variance as top_p_variance
from budgetalloc.policies.downselect.variance import d3s_schedule as d3s_schedule
from budgetalloc.policies.downselect.variance import max_variance as max_variance
