"""The sections of a settings file: plain values that become a policy, a plan of rollouts, or callback arguments."""

import inspect
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.rewards import check_range, check_success
from budgetalloc.cli.config.yaml_file import Source
from budgetalloc.errors import check_flag, check_type
from budgetalloc.policies import Needs, Policy
from budgetalloc.policies.advantages import Baseline, Scale, Weight
from budgetalloc.policies.methods import method_of, tuples
from budgetalloc.policies.mixture import check_mixture
from budgetalloc.policies.pacing_policy import PACING, pacing_plan
from budgetalloc.policies.quotas import check_domain_and_shares
from budgetalloc.training.costs import check_cost, check_cost_per_step
from budgetalloc.training.prompt_features import check_features
from budgetalloc.training.shadow import policy_to_watch

__all__ = ["ESTIMATOR", "CallbackSettings", "PolicySettings", "paced"]

ESTIMATOR = tuple(inspect.signature(BetaEstimator).parameters)


@dataclass(frozen=True)
class PolicySettings:
    """The name of a method, and every keyword argument that a file can give."""

    name: str
    options: Mapping[str, Any]

    @classmethod
    def read(cls, source: Source) -> "PolicySettings":
        """The sections `policy` and `estimator` together."""
        if isinstance(name := source.values.get("policy") or "adaptive", str):
            source = replace(source, values={**source.values, "policy": {"name": name}})
        options, estimator = source.section("policy"), source.section("estimator")
        with source.named("policy"):
            row = method_of(options.pop("name", None))
        name, known, functions = row.name, row.defaults(), row.functions()
        if code := next((key for key, default in functions.items() if key in options or default is not None), None):
            text = f"{name} takes {code} as a function, which a file cannot hold: build the policy in Python, "
            raise source.error(f"{text}budgetalloc.policies.{name}({code}=...).", f"policy.{code}", "policy")
        fading = [key for key in ESTIMATOR if key in known]
        if estimator and not fading:
            raise source.error(f"{name} has no settings for fading evidence. Leave this section out.", "estimator")
        source.section("policy", (*known, "name"))
        source.section("estimator", fading)
        if twice := next((key for key in estimator if key in options), None):
            raise source.error(f"given twice, also as policy.{twice}.", f"estimator.{twice}")
        return cls(name, known | {key: tuples(value) for key, value in (options | estimator).items()})

    def build(self, seed: int | None = None) -> Policy:
        """A new policy, with this seed or the seed of the settings."""
        return method_of(self.name).named(self.options if seed is None else {**self.options, "seed": seed})


def paced(source: Source) -> tuple[dict[str, Any], tuple[int, ...]]:
    """The section `pacing` with its defaults, and the rollouts of each step; both empty without the section."""
    if source.values.get("pacing") is None:
        return {}, ()
    with source.named("pacing"):
        return pacing_plan(source.section("pacing", PACING))


@dataclass(frozen=True)
class CallbackSettings:
    """How the policy is attached, as in `AdaptiveGRPOCallback`. None takes what the policy needs, or TRL's own."""

    baseline: Baseline | None
    scale: Scale | None
    weight: Weight
    prompt_id: str | None = None
    success: str | int | float | None = None
    reward_range: tuple[float, float] | None = None
    domain: str | None = None
    quotas: Mapping[Hashable, tuple[float, float]] | None = None
    mixture: str | Mapping[str, Any] | None = None
    cost: str | Mapping[str, float] | None = None
    cost_per_step: float | None = None
    features: str | tuple[str, ...] | None = None
    shadow: str | None = None
    ledger: str | None = None
    allow_dataset_change: bool = False
    fallback: bool = True

    def __post_init__(self) -> None:
        Needs(baseline=self.baseline, scale=self.scale, weight=self.weight)
        for name in ("prompt_id", "ledger", "shadow"):
            check_type(name, getattr(self, name), (str, type(None)), "a text")
        if self.shadow is not None:
            policy_to_watch(self.shadow)
        check_success(self.success)
        if self.reward_range is not None:
            object.__setattr__(self, "reward_range", check_range(self.reward_range))
        shares = check_domain_and_shares(self.domain, self.quotas, check_mixture(self.mixture))
        object.__setattr__(self, "quotas", shares)
        check_cost(self.cost)
        check_cost_per_step(self.cost_per_step, self.cost)
        if isinstance(self.features, list):
            object.__setattr__(self, "features", tuple(self.features))
        if self.features is not None:
            check_features(self.features, None)
        for name in ("allow_dataset_change", "fallback"):
            check_flag(name, getattr(self, name))
