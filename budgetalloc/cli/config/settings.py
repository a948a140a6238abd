"""The sections of a file of settings: plain values that become a policy, a plan of rollouts, or callback arguments."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args, get_origin

from budgetalloc.advantages import Baseline, Scale, Weight
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.budget import Budget
from budgetalloc.cli.config.yamlfile import Section, nearest
from budgetalloc.costs.pacing import Horizon, constant, phases
from budgetalloc.errors import InputError, check_integer
from budgetalloc.policies import Policy, Step
from budgetalloc.policies.methods import METHODS
from budgetalloc.solvers.exact import ortools
from budgetalloc.solvers.greedy import greedy
from budgetalloc.values import hit, mixed_group, success_gain, variance


def parameters(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Type and default (`inspect.Parameter.empty` for none) of each parameter of a function or dataclass."""
    signature = inspect.signature(function, eval_str=True)
    return {name: (parameter.annotation, parameter.default) for name, parameter in signature.parameters.items()}


ESTIMATOR = tuple(parameters(BetaEstimator))
# The functions that a file can name; other functions, such as domain_of=, can only be given in Python.
NAMED: dict[str, dict[str, Callable[..., Any]]] = {
    "value": {"mixed_group": mixed_group, "hit": hit, "variance": variance, "success_gain": success_gain},
    "solver": {"greedy": greedy, "ortools": ortools},
}


@dataclass(frozen=True)
class PolicySettings:
    """A method by name, with every keyword argument that a file can give."""

    name: str
    options: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, **options: Any) -> "PolicySettings":
        """The method with these arguments, and its defaults for the others; `InputError` for an unknown name."""
        return cls(name, {key: default for key, (_, default) in keywords(name).items()} | options)

    @classmethod
    def read(cls, top: Section) -> "PolicySettings":
        """The sections `policy` and `estimator` together."""
        if isinstance(name := top.values.get("policy") or "adaptive", str):
            top = replace(top, values=dict(top.values) | {"policy": {"name": name}})
        section, estimator = top.section("policy"), top.section("estimator")
        name = section.values.get("name", "")
        if not isinstance(name, str) or not name:
            raise section.error(f"name={name!r}: name the policy, such as `policy: {{name: knapsack}}`.")
        with top.named("policy"):
            kinds = {key: kind for key, (kind, _) in keywords(name).items()}
        for key, (_, default) in parameters(method_of(name)).items():
            if key not in kinds and (default is inspect.Parameter.empty or key in section.values):
                text = f"{name} takes {key} as a function, which a file cannot hold: build the policy in Python, "
                raise section.error(f"{text}budgetalloc.policies.{name}({key}=...).", key)
        options = section.arguments(kinds | {"name": str})
        fading = {key: kind for key, kind in kinds.items() if key in ESTIMATOR}
        if estimator.values and not fading:
            raise estimator.error(f"{name} has no settings for how evidence fades. Leave this section out.")
        if twice := next((key for key in estimator.values if key in options), None):
            raise estimator.error(f"given twice, also as {section.path(twice)}.", twice)
        return cls.of(**options | estimator.arguments(fading))

    def build(self, seed: int | None = None) -> Policy:
        """A fresh policy, with this seed or that of the settings."""
        options = {key: NAMED[key].get(value) if key in NAMED else value for key, value in self.options.items()}
        return method_of(self.name)(**options if seed is None else options | {"seed": seed})


@dataclass(frozen=True)
class PacingSettings:
    """A rule of `budgetalloc.costs.pacing` and the arguments of its `Horizon`."""

    name: Literal["constant", "phases"]
    rollouts: int
    steps: int
    low: int = 1
    high: int | None = None
    quantum: int = 1
    parts: tuple[tuple[int, float], ...] | None = None

    @classmethod
    def read(cls, top: Section) -> "PacingSettings | None":
        """The section `pacing`, whose `low` is one portion unless the file says otherwise; None without it."""
        if top.values.get("pacing") is None:
            return None
        pacing = top.section("pacing").arguments({key: kind for key, (kind, _) in parameters(cls).items()})
        if missing := [key for key in ("name", "rollouts", "steps") if key not in pacing]:
            raise top.error(f"give {' and '.join(missing)}.", "pacing")
        settings = cls(**{"low": pacing.get("quantum", 1)} | pacing)
        with top.named("pacing"):
            settings.plan()
        return settings

    def plan(self) -> list[int]:
        """The rollouts of each step."""
        if (self.parts is None) != (self.name == "constant"):
            raise InputError(f"parts={self.parts!r}: phases needs them, as [[100, 1.0], [50, 2.0]]; constant has none.")
        horizon, counts, spent = Horizon(self.rollouts, self.steps, self.low, self.high, self.quantum), list[int](), 0
        for step in range(check_integer("steps", self.steps, 1, 10**6)):
            wish = constant(horizon, step, spent) if self.parts is None else phases(horizon, self.parts, step, spent)
            counts.append(horizon.fit(wish, step, spent))
            spent += counts[-1]
        return counts

    def paced(self, policy: Policy) -> "Paced":
        """This policy with the plan."""
        return Paced(**vars(policy), plan=tuple(self.plan()))


@dataclass(frozen=True, eq=False, repr=False)
class Paced(Policy):
    """A policy whose k-th step spends `plan[k]` rollouts, whatever the budget says; after the plan, the budget."""

    plan: tuple[int, ...] = ()

    def begin(self, ids_P: Iterable[Any], budget: Budget, *rest: Any, **named: Any) -> Step:
        at = self.estimator.step
        budget = replace(budget, rollouts=self.plan[at]) if at < len(self.plan) else budget
        return super().begin(ids_P, budget, *rest, **named)


@dataclass(frozen=True)
class CallbackSettings:
    """How the policy is attached, as in `AdaptiveGRPOCallback`; null is what the policy needs, or else TRL's own."""

    baseline: Baseline | None = None
    scale: Scale | None = None
    weight: Weight | None = None
    prompt_id: str | None = None
    success: str | int | float | None = None
    reward_range: tuple[float, float] | None = None
    ledger: str | None = None
    allow_dataset_change: bool = False


def keywords(name: str) -> dict[str, tuple[Any, Any]]:
    """Type and default of each argument of a method that a file can give; `InputError` for an unknown method."""
    every = {}
    for key, (kind, default) in parameters(method_of(name)).items():
        if key in NAMED:  # a function that a file can name
            choice: Any = Literal.__getitem__(tuple(NAMED[key]))
            every[key] = (choice | None, None) if default is None else (choice, default.__name__)
        elif not any(get_origin(one) is Callable for one in (kind, *get_args(kind))):
            every[key] = (kind, default)
    return every


def method_of(name: str) -> Callable[..., Policy]:
    """The function of a method; `InputError` for an unknown one, with the nearest that there is."""
    every = {method.name: method.build for method in METHODS}
    if name not in every:
        raise InputError(f"policy {name!r} is unknown{nearest(name, every)} `budgetalloc methods` lists {len(every)}.")
    build = every[name]
    return build.func if isinstance(build, partial) else build  # dump and sec, which the table gives a category
