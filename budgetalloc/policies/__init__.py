"""Allocation policies: functions that compose a belief, a value and a solver, and return a `Policy`."""

from budgetalloc.policies.base import Needs as Needs
from budgetalloc.policies.base import Policy as Policy
from budgetalloc.policies.base import Step as Step
from budgetalloc.policies.base import View as View
from budgetalloc.policies.compose import adaptive as adaptive
from budgetalloc.policies.compose import knapsack as knapsack
from budgetalloc.policies.compose import thompson as thompson
from budgetalloc.policies.compose import uniform as uniform
