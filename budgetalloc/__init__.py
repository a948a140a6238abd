"""budgetalloc decides how many rollouts each prompt gets when a language model is trained with verifiable rewards.

The nouns: a **policy** keeps a **belief** about each prompt, prices rollouts with a **value**, and asks a **solver**
to spend the **budget**. `budgetalloc.trl.AdaptiveGRPOCallback` attaches a policy to TRL's `GRPOTrainer`.
"""

from budgetalloc.advantages import group_advantages as group_advantages
from budgetalloc.budget import Budget as Budget
from budgetalloc.cpsat import Solution as Solution
from budgetalloc.cpsat import certify as certify
from budgetalloc.cpsat import ortools as ortools
from budgetalloc.errors import BudgetallocError as BudgetallocError
from budgetalloc.errors import BudgetError as BudgetError
from budgetalloc.errors import InputError as InputError
from budgetalloc.errors import StateError as StateError
from budgetalloc.errors import UnsupportedError as UnsupportedError
from budgetalloc.estimators import BetaEstimator as BetaEstimator
from budgetalloc.evaluate import compare as compare
from budgetalloc.evaluate import comparisons as comparisons
from budgetalloc.ledger import Ledger as Ledger
from budgetalloc.ledger import LedgerWriter as LedgerWriter
from budgetalloc.onestep import one_step_value as one_step_value
from budgetalloc.policies import Needs as Needs
from budgetalloc.policies import Policy as Policy
from budgetalloc.policies import Step as Step
from budgetalloc.policies import adaptive as adaptive
from budgetalloc.policies import knapsack as knapsack
from budgetalloc.policies import thompson as thompson
from budgetalloc.policies import uniform as uniform
from budgetalloc.posterior import Belief as Belief
from budgetalloc.posterior import Beta as Beta
from budgetalloc.posterior import Point as Point
from budgetalloc.replay import Replay as Replay
from budgetalloc.simulate import simulate as simulate
from budgetalloc.solvers import greedy as greedy
from budgetalloc.solvers import proportional as proportional
from budgetalloc.state import load_state as load_state
from budgetalloc.state import save_state as save_state
from budgetalloc.values import hit as hit
from budgetalloc.values import knapsack_rl as knapsack_rl
from budgetalloc.values import mixed_group as mixed_group
from budgetalloc.values import variance as variance
from budgetalloc.worlds import Learner as Learner

__version__ = "0.1.0"
