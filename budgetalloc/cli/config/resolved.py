"""One YAML file with policy, budget, estimator and pacing, for the demo, the replay, the benchmarks and TRL.

    policy: {name: knapsack, seed: 0}     # or `policy: knapsack`; the keyword arguments of the function beside the name
    estimator: {discount: 0.9}            # how evidence fades, where the policy has a choice
    budget: {rollouts: 1024, cap: 64}     # of one step
    callback: {candidates: 4}             # how the policy is attached: see AdaptiveGRPOCallback

`budgetalloc config FILE --show` prints every setting with its value; `configs/` has examples.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from inspect import Parameter
from typing import Any, Literal

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.budget import Budget
from budgetalloc.cli.config.settings import (
    CallbackSettings,
    Paced,
    PacingSettings,
    PolicySettings,
    keywords,
    method_of,
    parameters,
)
from budgetalloc.cli.config.yamlfile import Section, read_text, written
from budgetalloc.errors import BudgetallocError, InputError, UnsupportedError
from budgetalloc.policies import Policy
from budgetalloc.policies.bounds import Bounds

SECTIONS = ("policy", "estimator", "budget", "pacing", "callback", "model", "dataset", "grpo")
_LONGEST = 10**6  # characters of a file
ESTIMATOR = tuple(parameters(BetaEstimator))
BUDGET = {"rollouts": int | None, "floor": int | None, "cap": int | None, "quantum": int, "min_group": int | None}
CALLBACK = {"candidates": int | Literal["all"] | None}
CALLBACK |= {key: kind for key, (kind, _) in parameters(CallbackSettings).items()}
PACING = {key: kind for key, (kind, _) in parameters(PacingSettings).items()}


@dataclass(frozen=True)
class Config:
    """The settings of a file with every default resolved; two configs that are equal behave the same.

    Args:
        policy: The allocation policy; the `estimator` section of a file is among its options.
        rollouts: Of one step; None where the trainer, the log or the command line decides.
        bounds: The prompts on offer and the sizes of their groups, from the sections `budget` and `callback`.
        pacing: How the rollouts change over a run, for the replay; a trainer's batches have one size.
        callback: How the policy is attached.
        model, dataset, grpo: For `integrations/trl/train.py` alone; `grpo` are arguments of `trl.GRPOConfig`.
        file: The name of the file.

    Raises:
        InputError: an unknown key, a wrong type or a value out of range, with file, line and key. BudgetError: a budget
            that contradicts itself.

    >>> config = Config.parse("policy: {name: knapsack, value: hit}\\nestimator: {discount: 0.8}\\nbudget: {floor: 4}")
    >>> config.build(seed=1)
    knapsack(value=hit, belief='posterior', prior=(0.5, 0.5), discount=0.8, idle=1.0, seed=1)
    >>> config.bounds.candidates, config.callback.baseline, config.bounds.min_group
    (1, 'group', 2)
    >>> Config.parse(config.as_yaml()) == config
    True
    >>> Config.parse("policy: adaptive\\nmodle: tiny", "run.yaml")
    Traceback (most recent call last):
    budgetalloc.errors.InputError: run.yaml, line 2: modle: unknown key, did you mean model? Known: policy, estimator,
        budget, pacing, callback, model, dataset, grpo.
    """

    policy: PolicySettings
    rollouts: int | None
    bounds: Bounds
    pacing: PacingSettings | None
    callback: CallbackSettings
    model: str | None = None
    dataset: str | None = None
    grpo: Mapping[str, Any] = field(default_factory=dict)
    file: str = field(default="config", compare=False)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Config":
        """Reads a file; `OSError` where there is none."""
        name = os.fspath(path)
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read(_LONGEST + 1)
        except UnicodeDecodeError as error:
            raise InputError(f"{name}: not a text in UTF-8, so not a YAML file.") from error
        if len(text) > _LONGEST:
            raise InputError(f"{name}: more than {_LONGEST:,} characters, so not a file of settings.")
        return cls.parse(text, name)

    @classmethod
    def of(cls, name: str) -> "Config":
        """The method of this name as it comes; `InputError` for an unknown one, or one that needs a function."""
        keywords(name)
        return cls.parse(f"policy: {name}", f"--policy {name}")

    @classmethod
    def parse(cls, text: str, file: str = "config") -> "Config":
        """Reads the text of a file; `file` is its name in errors."""
        top = read_text(text, file)
        top.only(SECTIONS)
        policy, pacing = _policy(top), _pacing(top)
        budget, callback = top.section("budget").arguments(BUDGET), _callback(top.section("callback"))
        names = {key: top.values[key] for key in ("model", "dataset") if key in top.values}
        replace(top, values=names).arguments({"model": str | None, "dataset": str | None})
        rollouts, candidates = budget.pop("rollouts", None), callback.pop("candidates", None)
        if pacing is not None and rollouts is not None:
            raise top.error("the rollouts of a step follow from it: leave out budget.rollouts.", "pacing")
        try:
            needs = policy.build().needs
        except BudgetallocError as error:
            raise top.error(error, "policy") from error
        try:
            bounds = Bounds.resolve(needs, candidates=candidates, **budget)
        except InputError as error:
            raise top.error(error, "callback") from error
        trl_baseline = needs.keep_batch and bounds.candidates == 1
        attached = CallbackSettings(
            **callback
            | {
                "baseline": callback.get("baseline") or needs.baseline or (None if trl_baseline else "group"),
                "scale": callback.get("scale") or needs.scale,
                "weight": callback.get("weight") or needs.weight,
            }
        )
        grpo = dict(top.section("grpo").values)
        config = cls(policy, rollouts, bounds, pacing, attached, **names, grpo=grpo, file=file, lines=top.lines)
        try:
            # Where nothing says how many rollouts a step has, enough for any cap: the bounds must not contradict.
            for count in set(pacing.plan()) if pacing else {rollouts or bounds.quantum * 10**6}:
                config.limits(count)
        except BudgetallocError as error:
            raise top.error(error, "budget" if top.values.get("budget") else "pacing", type(error)) from error
        return config

    def build(self, seed: int | None = None) -> Policy:
        """A fresh policy that asks for what the file says; picklable as `config.build`."""
        policy, callback = self.policy.build(seed), self.callback
        needs = replace(
            policy.needs,
            candidates=self.bounds.candidates,
            baseline=callback.baseline,
            scale=callback.scale,
            weight=callback.weight or policy.needs.weight,
            min_group=self.bounds.min_group,
        )
        policy = replace(policy, needs=needs)
        return policy if self.pacing is None else Paced(**vars(policy), plan=tuple(self.pacing.plan()))

    def rival(self, name: str) -> "Config":
        """Another method by name with its own defaults, under the same budget and pacing."""
        other = Config.of(name)
        # The floor of all may be below the smallest group that this method asks for.
        group = min(other.bounds.min_group, self.bounds.floor or other.bounds.min_group)
        bounds = replace(self.bounds, candidates=other.bounds.candidates, min_group=group)
        return replace(other, rollouts=self.rollouts, bounds=bounds, pacing=self.pacing)

    def limits(self, rollouts: int, group: int | None = None) -> Budget:
        """The budget of one step.

        Args:
            rollouts: Of the step.
            group: Rollouts of a prompt on average. Where the file gives no cap, it is 8 times as many.
        """
        return self.bounds.budget(rollouts, prompts=rollouts if group else 1, group=group or 1)

    def callback_arguments(self, rollouts: int) -> dict[str, Any]:
        """The keyword arguments of `AdaptiveGRPOCallback` for a trainer of so many rollouts a generation batch.

        Raises:
            UnsupportedError: the file asks for what a trainer's batches of one size cannot do.
        """
        if self.pacing is not None:
            raise UnsupportedError(
                f"{self.file}: pacing: TRL generates {rollouts} rollouts at every step, so the budget cannot change "
                "over the run. Leave out `pacing`; `budgetalloc replay` serves it."
            )
        if self.rollouts not in (None, rollouts):
            raise UnsupportedError(
                f"{self.file}: budget.rollouts={self.rollouts}: this trainer generates {rollouts} rollouts a "
                f"step. Use {rollouts}, leave it out, or change the trainer's batch size."
            )
        arguments = asdict(self.bounds) | asdict(self.callback)
        return {key: value for key, value in arguments.items() if value is not None}

    def grpo_arguments(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """The `grpo` section as keyword arguments; `InputError` for one that is not known.

        Args:
            known: By name, such as `trl.GRPOConfig.__dataclass_fields__`.
        """
        Section(self.file, "grpo", self.grpo, self.lines).only(known)
        return dict(self.grpo)

    def as_dict(self) -> dict[str, Any]:
        """Every setting with its value, in the sections of a file."""
        options, bounds = dict(self.policy.options), asdict(self.bounds)
        callback = {"candidates": bounds.pop("candidates")} | asdict(self.callback)
        sections = {
            "estimator": {key: options.pop(key) for key in ESTIMATOR if key in options},
            "budget": {"rollouts": self.rollouts} | bounds,
            "pacing": asdict(self.pacing) if self.pacing else None,
            "callback": callback,
            "model": self.model,
            "dataset": self.dataset,
            "grpo": dict(self.grpo),
        }
        kept = {key: value for key, value in sections.items() if value is not None and value != {}}
        return {"policy": {"name": self.policy.name, **options}} | kept

    def as_yaml(self) -> str:
        """The same as YAML, which `parse` reads back to an equal config."""
        return written(self.as_dict())


def _policy(top: Section) -> PolicySettings:
    """The sections `policy` and `estimator` together."""
    name = top.values.get("policy") or "adaptive"
    section = Section(top.file, "policy", {"name": name}, top.lines)
    if not isinstance(name, str):
        section = top.section("policy")
        name = section.values.get("name", "")
        if not isinstance(name, str) or not name:
            raise top.error(f"name={name!r}: name the policy, such as `policy: {{name: knapsack}}`.", "policy")
    try:
        kinds = {key: kind for key, (kind, _) in keywords(name).items()}
    except InputError as error:
        raise top.error(error, "policy") from error
    for key, (_, default) in parameters(method_of(name)).items():
        if key not in kinds and (default is Parameter.empty or key in section.values):
            raise section.error(
                f"{name} takes {key} as a function, which a file cannot hold: build the policy in Python, "
                f"budgetalloc.policies.{name}({key}=...).",
                key if key in section.values else None,
            )
    options, estimator = section.arguments(kinds | {"name": str}), top.section("estimator")
    fading = {key: kind for key, kind in kinds.items() if key in ESTIMATOR}
    if estimator.values and not fading:
        raise top.error(f"{name} has no settings for how evidence fades. Leave this section out.", "estimator")
    for key in estimator.values:
        if key in options:
            raise estimator.error(f"given twice, also as {section.path(key)}.", key)
    options |= estimator.arguments(fading)
    del options["name"]
    return PolicySettings.of(name, **options)


def _callback(section: Section) -> dict[str, Any]:
    for key in ("hint", "buffer"):
        if key in section.values:
            raise section.error(f"not a plain value: give it in Python, AdaptiveGRPOCallback({key}=...).", key)
    callback = section.arguments(CALLBACK)
    low, high = callback.get("reward_range") or (0.0, 1.0)
    if not -math.inf < low < high < math.inf:
        raise section.error(f"[{low}, {high}]: give the lowest and the highest reward, as [0.0, 1.0].", "reward_range")
    return callback


def _pacing(top: Section) -> PacingSettings | None:
    section = top.section("pacing")
    if top.values.get("pacing") is None:
        return None
    pacing = section.arguments(PACING)
    if missing := [key for key in ("name", "rollouts", "steps") if key not in pacing]:
        raise top.error(f"give {' and '.join(missing)}.", "pacing")
    settings = PacingSettings(**{"low": pacing.get("quantum", 1)} | pacing)  # low must be a multiple of quantum
    try:
        settings.plan()
    except BudgetallocError as error:
        raise top.error(error, "pacing", type(error)) from error
    return settings
