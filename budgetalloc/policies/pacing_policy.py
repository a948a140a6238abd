"""A policy whose budget changes over the run."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any

from budgetalloc.budget import Budget
from budgetalloc.errors import InputError, check_choice, nearest
from budgetalloc.policies.costs.pacing import Horizon, constant, phases
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.step import Step

__all__ = ["PACING", "Paced", "pacing_plan", "possible_step_sizes", "tuples"]

PACING = ("name", *(field.name for field in fields(Horizon)), "parts")


@dataclass(frozen=True, eq=False, repr=False)
class Paced(Policy):
    """A policy whose step k spends `plan[k]` rollouts, and after the plan those of the budget.

    >>> from budgetalloc.policies.composition import uniform
    >>> Paced(**vars(uniform()), plan=(4,)).allocate(["a", "b"], Budget(rollouts=16))
    array([2, 2])
    """

    plan: tuple[int, ...] = ()

    def begin(self, ids_P: Iterable[Any], budget: Budget, *rest: Any, **named: Any) -> Step:
        budget = replace(budget, rollouts=self.rollouts(budget.rollouts))
        return super().begin(ids_P, budget, *rest, **named)

    def rollouts(self, otherwise: Any) -> Any:
        """The rollouts of the next step."""
        at = self.estimator.step
        return self.plan[at] if at < len(self.plan) else otherwise


def possible_step_sizes(policy: Policy, otherwise: int) -> set[int]:
    """The possible numbers of rollouts of a step; `otherwise` is that of a step without pacing."""
    return {otherwise, *policy.plan} if isinstance(policy, Paced) else {otherwise}


def pacing_plan(given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[int, ...]]:
    """The settings with their defaults, and the rollouts of each step.

    Args:
        given: `name` ("constant" or "phases"), the arguments of `Horizon` (`low` is one portion
            unless given), and `parts` of phases.

    Raises:
        InputError: an unknown or a missing setting, or one out of range. BudgetError: the bounds
            contradict each other.

    >>> pacing_plan({"name": "phases", "rollouts": 96, "steps": 2, "quantum": 8, "parts": [[1, 1.0], [1, 2.0]]})[1]
    (32, 64)
    """
    for key in given:
        if key not in PACING:
            raise InputError(f"{key} is unknown{nearest(key, PACING)} Use {', '.join(PACING)}.")
    check_choice("name", name := given.get("name"), ("constant", "phases"))
    if missing := [key for key in ("rollouts", "steps") if key not in given]:
        raise InputError(f"give {' and '.join(missing)}.")
    parts = tuples(given.get("parts"))
    if (parts is None) != (name == "constant"):
        raise InputError(
            f"parts={parts!r}: phases needs them, as [[100, 1.0], [50, 2.0]]; constant has none."
        )
    bounds = {key: value for key, value in given.items() if key not in ("name", "parts")}
    horizon = Horizon(**{"low": given.get("quantum", 1)} | bounds)
    rule = partial(constant, horizon) if parts is None else partial(phases, horizon, parts)
    return {"name": name, **asdict(horizon), "parts": parts}, tuple(horizon.plan(rule))


def tuples(value: Any) -> Any:
    """The value with its lists replaced by tuples, as in the defaults of functions.

    >>> tuples([[100, 1.0], [50, 2.0]])
    ((100, 1.0), (50, 2.0))
    """
    return tuple(map(tuples, value)) if isinstance(value, list) else value
