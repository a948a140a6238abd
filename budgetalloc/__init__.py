"""budgetalloc decides how many rollouts each prompt gets when a language model is trained with
verifiable rewards.

A **policy** keeps a **belief** about each prompt and spends the **budget**. `adaptive()` draws all
prompts alike, retries those that failed, and compares single rollouts with the belief.
`knapsack()` and `thompson()` price rollouts with a **value** and ask a **solver**.
`budgetalloc.trl.AdaptiveGRPOCallback` attaches a policy to TRL's `GRPOTrainer`.
"""

import typing as _typing

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.features import Features
from budgetalloc.beliefs.ids import Pool
from budgetalloc.beliefs.posterior import Belief, Beta, Point
from budgetalloc.beliefs.state import load_state, save_state
from budgetalloc.beliefs.tracking import TrackingEstimator
from budgetalloc.budget import Budget
from budgetalloc.errors import (
    BudgetallocError,
    BudgetError,
    InputError,
    StateError,
    UnsupportedError,
)
from budgetalloc.errors import nearest_name as _nearest
from budgetalloc.logs.ledger import Ledger
from budgetalloc.logs.ledger_writer import LedgerWriter
from budgetalloc.offline.comparison import compare, comparisons
from budgetalloc.offline.replay import Replay
from budgetalloc.offline.simulation import simulate
from budgetalloc.offline.worlds import Learner
from budgetalloc.policies import Needs, Policy, Step, adaptive, knapsack, thompson, uniform
from budgetalloc.policies.group_advantages import group_advantages
from budgetalloc.solvers.exact import Solution, certify, highs, ortools
from budgetalloc.solvers.greedy import greedy
from budgetalloc.solvers.proportional import proportional
from budgetalloc.training.options import Options
from budgetalloc.training.parts import Part
from budgetalloc.training.session import Session
from budgetalloc.values import mixed_group, pass_at_n, success_gain, variance

__version__ = "0.6.0"

if _typing.TYPE_CHECKING:
    from budgetalloc import cli, methods, offline, report, testing, trl, verl

__all__ = [
    "Belief",
    "Beta",
    "BetaEstimator",
    "Budget",
    "BudgetError",
    "BudgetallocError",
    "Features",
    "InputError",
    "Learner",
    "Ledger",
    "LedgerWriter",
    "Needs",
    "Options",
    "Part",
    "Point",
    "Policy",
    "Pool",
    "Replay",
    "Session",
    "Solution",
    "StateError",
    "Step",
    "TrackingEstimator",
    "UnsupportedError",
    "adaptive",
    "certify",
    "cli",
    "compare",
    "comparisons",
    "greedy",
    "group_advantages",
    "highs",
    "knapsack",
    "load_state",
    "methods",
    "mixed_group",
    "offline",
    "ortools",
    "pass_at_n",
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

_OLD = {"hit": "pass_at_n"}  # names of earlier versions
# Rooms that are imported at their first use, so that `import budgetalloc` stays light.
_LATER = {
    name: f"budgetalloc.{name}"
    for name in ("cli", "methods", "offline", "report", "testing", "trl", "verl")
}


def __getattr__(name: str) -> _typing.Any:
    import importlib

    if name not in _LATER:
        text = f"module 'budgetalloc' has no attribute {name!r}"
        if name in _OLD:
            text += f". It is budgetalloc.{_OLD[name]} now."
        elif not name.startswith("_"):
            rules = vars(importlib.import_module(_LATER["methods"]))
            near = _nearest(name, [*__all__, *rules])
            text += f". Use budgetalloc.methods.{name}." if name in rules else near
        raise AttributeError(text)
    return importlib.import_module(_LATER[name])


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
