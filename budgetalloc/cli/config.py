"""Settings of a policy in one YAML file, as in `configs/`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from budgetalloc.contrib.pacing import pacing_plan, tuples
from budgetalloc.errors import (
    InputError,
    UnsupportedError,
    check_integer,
    check_known,
    prefix_errors,
    short_repr,
)
from budgetalloc.policies import Policy
from budgetalloc.policies.interface import Bounds
from budgetalloc.training.options import Options
from budgetalloc.training.policy_like import resolve_policy

SECTIONS = ("policy", "estimator", "budget", "pacing", "callback", "model", "dataset", "grpo")
_FORMS = {"budget": "budget: {rollouts: 64}", "policy": "policy: {name: adaptive, rounds: 3}"}
_ATTACHED = ("prompt_id", "features", "ledger", "allow_dataset_change")  # not in `Options`


@dataclass(frozen=True)
class Config:
    """The settings of a file: each section has the arguments of the function that takes it.

    Args:
        method: The name of a method, or of a function of yours: "mine.py:thirds".
        arguments: Those of the method, from the sections `policy` and `estimator`.
        rollouts: Of one step; None leaves it to the trainer, the log or the command line.
        sizes: The other settings of the section `budget`: bounds of group sizes.
        callback: Other arguments of `AdaptiveGRPOCallback`.
        plan: The rollouts of each step, from the section `pacing`.
        model, dataset, grpo: For `integrations/trl/train.py`; `grpo` are `trl.GRPOConfig`'s.
        file: The name of the file, for errors.

    >>> text = "policy: {name: knapsack, value: pass_at_n}\\nestimator: {discount: 0.8}"
    >>> config = Config.parse(text + "\\nbudget: {floor: 4}")
    >>> config.build(seed=1)
    knapsack(value=pass_at_n, belief='posterior', prior=(0.5, 0.5), discount=0.8, idle=1.0, seed=1)
    >>> config.bounds.candidates, config.bounds.floor, config.bounds.min_group
    (1, 4, 2)
    """

    method: str = "adaptive"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    rollouts: int | None = None
    sizes: Mapping[str, Any] = field(default_factory=dict)
    callback: Mapping[str, Any] = field(default_factory=dict)
    plan: tuple[int, ...] = ()
    model: str | None = None
    dataset: str | None = None
    grpo: Mapping[str, Any] = field(default_factory=dict)
    file: str = field(default="config", compare=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Config":
        """Reads a file; raises `OSError` if there is none."""
        return cls.parse(Path(path).read_bytes(), os.fspath(path))

    @classmethod
    def parse(cls, text: str | bytes, file: str = "config") -> "Config":
        """Reads the text of a file. A mistake is an `InputError` or a `BudgetError` that names the
        file."""
        with prefix_errors(f"{file}: "):
            sections = _sections(text)
            arguments = {**sections["policy"], **sections["estimator"]}
            method = arguments.pop("name", "adaptive")
            budget = dict(sections["budget"])
            rollouts = budget.pop("rollouts", None)
            plan = pacing_plan(sections["pacing"]) if sections["pacing"] else ()
            if rollouts is not None:
                check_integer("rollouts", rollouts, 1)
                if plan:
                    raise InputError(
                        "pacing sets the rollouts of each step: leave out budget.rollouts."
                    )
            config = cls(
                method,
                {key: tuples(value) for key, value in arguments.items()},
                rollouts,
                _given(budget),
                _given(sections["callback"]),
                plan,
                sections["model"],
                sections["dataset"],
                sections["grpo"],
                file,
            )
            config.build()  # raises
        return config

    def build(self, seed: int | None = None) -> Policy:
        """A new policy with the settings of the file; `config.build` can be pickled."""
        arguments = self.arguments if seed is None else {**self.arguments, "seed": seed}
        policy = resolve_policy(self.method, **arguments)
        names = ("baseline", "scale", "weight")
        asked = {name: self.callback[name] for name in names if name in self.callback}
        bounds = self._bounds(policy)
        asked |= {"candidates": bounds.candidates, "min_group": bounds.min_group}
        return replace(policy, needs=replace(policy.needs, **asked), plan=self.plan)

    @property
    def bounds(self) -> Bounds:
        """Candidates and group sizes, with the policy's needs as defaults."""
        return self._bounds(resolve_policy(self.method, **self.arguments))

    def _bounds(self, policy: Policy) -> Bounds:
        given = {key: value for key, value in self.callback.items() if key not in _ATTACHED}
        options = {**given, **self.sizes}
        return Options.resolve(policy.needs, "group", options, trl=False, others=_ATTACHED).bounds

    def rival(self, name: str) -> "Config":
        """Another method with its own defaults, under the same budget and pacing."""
        own, group = self.bounds, resolve_policy(name).needs.min_group
        # The common floor may be below the smallest group of this method.
        sizes = {"floor": own.floor, "cap": own.cap, "quantum": own.quantum}
        sizes["min_group"] = min(group, own.floor or group)
        return Config(name, {}, self.rollouts, sizes, plan=self.plan, file=self.file)

    def callback_arguments(self, rollouts: int | None) -> dict[str, Any]:
        """Arguments of `AdaptiveGRPOCallback` for a trainer with this many rollouts a step (None:
        not known).

        Raises `UnsupportedError` for pacing, and for another number of rollouts than the trainer's.
        """
        if self.plan:
            raise UnsupportedError(
                f"{self.file}: pacing: TRL generates {rollouts or 'as many'} rollouts at every "
                "step, so the budget cannot change over the run. `budgetalloc replay`, verl "
                "(+budgetalloc.pacing=) and, with AsyncGRPOTrainer, "
                "AdaptiveRolloutWorker(rollouts_per_step=) serve it.",
                argument="pacing",
            )
        if rollouts is not None and self.rollouts not in (None, rollouts):
            raise UnsupportedError(
                f"{self.file}: budget.rollouts={self.rollouts}: this trainer generates {rollouts} "
                f"rollouts a step. Use {rollouts}, or change its batch size.",
                argument="rollouts",
            )
        return {**self.sizes, **self.callback}


def _sections(text: str | bytes) -> dict[str, Any]:
    """The sections of a YAML file; those that are left out are empty. `policy` may be a name."""
    try:
        values = yaml.safe_load(text)
    # PyYAML has no common one: a date that does not exist is a ValueError
    except Exception as error:
        raise InputError(f"not YAML: {' '.join(str(error).split())}") from error
    values = {} if values is None else values
    if not isinstance(values, Mapping):
        raise InputError("use settings of the form `name: value`, such as `policy: adaptive`.")
    sections: dict[str, Any] = {}
    for name in (*SECTIONS, *values):
        check_known(name, SECTIONS, f"the section {name}")
        value = values.get(name)
        if name == "policy" and isinstance(value, str):
            value = {"name": value}
        if name not in ("model", "dataset"):
            value = {} if value is None else value
            texts = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
            if not texts:
                form = _FORMS.get(name, "name: value")
                raise InputError(
                    f"{name}: {short_repr(value)}: use settings of the form `{form}`.",
                    argument=name,
                )
        sections[name] = value
    return sections


def _given(section: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuples(value) for key, value in section.items() if value is not None}
