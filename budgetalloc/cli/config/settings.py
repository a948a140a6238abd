"""The sections of a file of settings: plain values that know how to become a policy, a budget or a plan."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, get_args, get_origin

from numpy.typing import ArrayLike

from budgetalloc.advantages import Baseline, Scale, Weight
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.budget import Budget
from budgetalloc.cli.config.yamlfile import nearest, parameters
from budgetalloc.costs.pacing import Horizon, constant, phases
from budgetalloc.errors import InputError
from budgetalloc.policies import Policy, Step
from budgetalloc.policies.methods import METHODS
from budgetalloc.solvers.exact import ortools
from budgetalloc.solvers.greedy import greedy
from budgetalloc.values import hit, mixed_group, success_gain, variance

# The functions that a file can name; others, such as domain_of=, belong to Python.
NAMED: dict[str, dict[str, Callable[..., Any]]] = {
    "value": {"mixed_group": mixed_group, "hit": hit, "variance": variance, "success_gain": success_gain},
    "solver": {"greedy": greedy, "ortools": ortools},
}
ESTIMATOR = tuple(parameters(BetaEstimator))


@dataclass(frozen=True)
class PolicySettings:
    """A method by name, with every keyword argument that a file can give.

    >>> PolicySettings.of("dapo").options
    {'group': 8, 'generate': 3, 'order': 'random', 'discount': 0.2, 'idle': 0.999, 'seed': 0}
    >>> PolicySettings.of("dapo", generate=2).build(seed=1)
    dapo(group=8, generate=2, order='random', discount=0.2, idle=0.999, seed=1)
    """

    name: str
    options: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, **options: Any) -> "PolicySettings":
        """The method with these arguments, and its defaults for the others; `InputError` for an unknown name."""
        defaults = {key: default for key, (_, default) in keywords(name).items()}
        return cls(name, defaults | options)

    def build(self, seed: int | None = None) -> Policy:
        """A fresh policy, with this seed or that of the settings."""
        given = {key: NAMED[key].get(x) if key in NAMED else x for key, x in self.options.items()}
        return method_of(self.name)(**given if seed is None else given | {"seed": seed})


@dataclass(frozen=True)
class BudgetSettings:
    """As `Budget`, of one step. Left out, `floor`, `cap` and `min_group` are what the callback takes."""

    rollouts: int | None = None
    tokens: float | None = None
    floor: int | None = None
    cap: int | None = None
    quantum: int = 1
    min_group: int | None = None


@dataclass(frozen=True)
class PacingSettings:
    """A rule of `budgetalloc.costs.pacing` and its `Horizon`.

    >>> PacingSettings("phases", rollouts=90, steps=4, parts=((2, 1.0), (2, 2.0))).plan()
    [15, 15, 30, 30]
    """

    name: Literal["constant", "phases"]
    rollouts: int
    steps: int
    low: int = 1
    high: int | None = None
    quantum: int = 1
    parts: tuple[tuple[int, float], ...] | None = None

    def plan(self) -> list[int]:
        """The rollouts of each step."""
        horizon = Horizon(self.rollouts, self.steps, self.low, self.high, self.quantum)
        if (self.parts is None) != (self.name == "constant"):
            raise InputError(f"parts={self.parts!r}: phases needs them, as [[100, 1.0], [50, 2.0]]; constant has none.")
        rule = constant if self.parts is None else partial(_phases, self.parts)
        counts: list[int] = []
        spent = 0
        for step in range(self.steps):
            counts.append(horizon.fit(rule(horizon, step, spent), step, spent))
            spent += counts[-1]
        return counts


def _phases(parts: tuple[tuple[int, float], ...], horizon: Horizon, step: int, spent: int) -> float:
    return phases(horizon, parts, step, spent)


@dataclass(frozen=True, eq=False, repr=False)
class Paced(Policy):
    """A policy whose k-th step spends `plan[k]` rollouts, whatever the budget says; after the plan, the budget.

    >>> policy = Paced.of(PolicySettings.of("uniform").build(), [6, 4])
    >>> policy.allocate(["a", "b"], Budget(rollouts=99)); policy.observe(["a"], [1.0])
    array([3, 3])
    >>> policy.allocate(["a", "b"], Budget(rollouts=99)); policy.observe(["a"], [1.0])
    array([2, 2])
    """

    plan: tuple[int, ...] = ()

    @classmethod
    def of(cls, policy: Policy, plan: Iterable[int]) -> "Paced":
        """The same policy, paced; both share what it learns."""
        return cls(**{key.name: getattr(policy, key.name) for key in fields(policy)}, plan=tuple(plan))

    def begin(
        self,
        ids_P: Iterable[Any],
        budget: Budget,
        costs_P: ArrayLike | None = None,
        domains_P: Sequence[Hashable] | None = None,
    ) -> Step:
        at = self.estimator.step
        if at < len(self.plan):
            budget = replace(budget, rollouts=self.plan[at])
        return Step(self, ids_P, budget, costs_P, domains_P)


@dataclass(frozen=True)
class CallbackSettings:
    """How the policy is attached, as in `AdaptiveGRPOCallback`; null is the policy's wish, or else TRL's own."""

    candidates: int | Literal["all"] | None = None
    baseline: Baseline | None = None
    scale: Scale | None = None
    weight: Weight | None = None
    prompt_id: str | None = None
    reward_range: tuple[float, float] | None = None
    ledger: str | None = None
    allow_dataset_change: bool = False


def keywords(name: str) -> dict[str, tuple[Any, Any]]:
    """Type and default of each argument of a method that a file can give; `InputError` for an unknown method.

    >>> keywords("knapsack")["belief"]
    (typing.Literal['posterior', 'mean'], 'posterior')
    """
    found = {}
    for key, (kind, default) in parameters(method_of(name)).items():
        if key in NAMED:
            choice: Any = Literal.__getitem__(tuple(NAMED[key]))
            found[key] = (choice, default.__name__) if default is not None else (choice | None, None)
        elif not _is_function(kind):
            found[key] = (kind, default)
    return found


def method_of(name: str) -> Callable[..., Policy]:
    """The function of a method; `InputError` for an unknown one, with the nearest that there is."""
    every = {method.name: method.build for method in METHODS}
    if name not in every:
        raise InputError(
            f"policy {name!r} is unknown{nearest(name, list(every))} `budgetalloc methods` lists {len(every)}."
        )
    build = every[name]
    return build.func if isinstance(build, partial) else build  # dump and sec, which the table gives a category


def _is_function(kind: Any) -> bool:
    return any(get_origin(one) is get_origin(Callable[[], Any]) for one in (kind, *get_args(kind)))
