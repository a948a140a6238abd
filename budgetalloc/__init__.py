"""budgetalloc decides how many rollouts each prompt gets when a language model is trained with verifiable rewards.

The nouns: a **policy** keeps a **belief** about each prompt, prices rollouts with a **value**, and asks a **solver**
to spend the **budget**. `budgetalloc.trl.AdaptiveGRPOCallback` attaches a policy to TRL's `GRPOTrainer`.
"""

import typing as _typing

from budgetalloc.beliefs.estimator import BetaEstimator as BetaEstimator
from budgetalloc.beliefs.pool import Pool as Pool
from budgetalloc.beliefs.posterior import Belief as Belief
from budgetalloc.beliefs.posterior import Beta as Beta
from budgetalloc.beliefs.posterior import Point as Point
from budgetalloc.beliefs.state import load_state as load_state
from budgetalloc.beliefs.state import save_state as save_state
from budgetalloc.budget import Budget as Budget
from budgetalloc.errors import BudgetallocError as BudgetallocError
from budgetalloc.errors import BudgetError as BudgetError
from budgetalloc.errors import InputError as InputError
from budgetalloc.errors import StateError as StateError
from budgetalloc.errors import UnsupportedError as UnsupportedError
from budgetalloc.logs.ledger import Ledger as Ledger
from budgetalloc.logs.ledger_writer import LedgerWriter as LedgerWriter
from budgetalloc.offline.comparison import compare as compare
from budgetalloc.offline.comparison import comparisons as comparisons
from budgetalloc.offline.one_step_value import one_step_value as one_step_value
from budgetalloc.offline.replay import Replay as Replay
from budgetalloc.offline.simulation import simulate as simulate
from budgetalloc.offline.worlds import Learner as Learner
from budgetalloc.policies import Needs as Needs
from budgetalloc.policies import Policy as Policy
from budgetalloc.policies import Step as Step
from budgetalloc.policies import adaptive as adaptive
from budgetalloc.policies import knapsack as knapsack
from budgetalloc.policies import thompson as thompson
from budgetalloc.policies import uniform as uniform
from budgetalloc.policies.advantages import group_advantages as group_advantages
from budgetalloc.solvers.exact import Solution as Solution
from budgetalloc.solvers.exact import certify as certify
from budgetalloc.solvers.exact import highs as highs
from budgetalloc.solvers.exact import ortools as ortools
from budgetalloc.solvers.greedy import greedy as greedy
from budgetalloc.solvers.proportional import proportional as proportional
from budgetalloc.training.session import Session as Session
from budgetalloc.values import hit as hit
from budgetalloc.values import mixed_group as mixed_group
from budgetalloc.values import success_gain as success_gain
from budgetalloc.values import variance as variance

__version__ = "0.3.0"

if _typing.TYPE_CHECKING:
    from budgetalloc import cli as cli
    from budgetalloc import offline as offline
    from budgetalloc import report as report
    from budgetalloc import testing as testing
    from budgetalloc import trl as trl
    from budgetalloc import verl as verl

__all__ = [
    "Belief",
    "Beta",
    "BetaEstimator",
    "Budget",
    "BudgetError",
    "BudgetallocError",
    "InputError",
    "Learner",
    "Ledger",
    "LedgerWriter",
    "Needs",
    "Point",
    "Policy",
    "Pool",
    "Replay",
    "Session",
    "Solution",
    "StateError",
    "Step",
    "UnsupportedError",
    "adaptive",
    "certify",
    "cli",
    "compare",
    "comparisons",
    "greedy",
    "group_advantages",
    "highs",
    "hit",
    "knapsack",
    "load_state",
    "mixed_group",
    "offline",
    "one_step_value",
    "ortools",
    "policies",
    "proportional",
    "report",
    "save_state",
    "simulate",
    "success_gain",
    "testing",
    "thompson",
    "trl",
    "uniform",
    "variance",
    "verl",
]

# Rooms that are imported at their first use, so that `import budgetalloc` stays light.
_LATER = {name: f"budgetalloc.{name}" for name in ("cli", "offline", "report", "testing", "trl", "verl")}


def __getattr__(name: str) -> _typing.Any:
    if name not in _LATER:
        raise AttributeError(f"module 'budgetalloc' has no attribute {name!r}")
    import importlib

    return importlib.import_module(_LATER[name])


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
