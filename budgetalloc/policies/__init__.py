"""Allocation policies: functions that compose a belief, a value and a solver, and return a
`Policy`."""

from budgetalloc.policies.adaptive import adaptive, sampled
from budgetalloc.policies.composition import knapsack, thompson, uniform
from budgetalloc.policies.interface import Hinted, Needs, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.retries import retrying
from budgetalloc.policies.rounds import growing, sequential
from budgetalloc.policies.step import Step

__all__ = [
    "Hinted",
    "Needs",
    "Policy",
    "Step",
    "View",
    "adaptive",
    "growing",
    "knapsack",
    "retrying",
    "sampled",
    "sequential",
    "thompson",
    "uniform",
]
