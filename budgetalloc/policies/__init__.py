"""Allocation policies: functions that compose a belief, a value and a solver, and return a `Policy`."""

from budgetalloc.policies.base import Policy as Policy
from budgetalloc.policies.base import Step as Step
from budgetalloc.policies.compose import knapsack as knapsack
from budgetalloc.policies.compose import thompson as thompson
from budgetalloc.policies.compose import uniform as uniform
from budgetalloc.policies.decision import Needs as Needs
from budgetalloc.policies.decision import Tally as Tally
from budgetalloc.policies.decision import View as View
from budgetalloc.policies.recommended import adaptive as adaptive
from budgetalloc.policies.recommended import sampled as sampled
from budgetalloc.policies.selection import cures as cures
from budgetalloc.policies.selection import vade as vade
from budgetalloc.policies.staged import ar3po as ar3po
from budgetalloc.policies.staged import dapo as dapo
from budgetalloc.policies.staged import pilot_commit as pilot_commit
from budgetalloc.policies.staged import reinforce_ada as reinforce_ada
