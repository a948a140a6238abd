"""One YAML file that says policy, budget, estimator and pacing, for the demo, the replay, the benchmark and TRL.

    policy: {name: knapsack, seed: 0}     # or `policy: knapsack`; the keyword arguments of the function beside the name
    estimator: {discount: 0.9}            # how evidence fades, where the policy has a choice
    budget: {rollouts: 1024, cap: 64}     # of one step
    callback: {candidates: 4}             # how the policy is attached: see AdaptiveGRPOCallback

`budgetalloc config FILE --show` prints every setting with its value; `configs/` has examples.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from inspect import Parameter
from pathlib import Path
from typing import Any

from budgetalloc.advantages import Baseline
from budgetalloc.budget import Budget
from budgetalloc.cli.config.settings import (
    ESTIMATOR,
    BudgetSettings,
    CallbackSettings,
    Paced,
    PacingSettings,
    PolicySettings,
    keywords,
    method_of,
)
from budgetalloc.cli.config.yamlfile import Section, parameters, read_text, written
from budgetalloc.errors import BudgetallocError, InputError, UnsupportedError
from budgetalloc.policies import Policy

SECTIONS = ("policy", "estimator", "budget", "pacing", "callback", "model", "dataset", "grpo")


@dataclass(frozen=True)
class Config:
    """What a file says, with every default resolved; two that are equal behave the same.

    Args:
        policy: The allocation policy; the `estimator` section of a file is among its options.
        budget: Of one step. `rollouts` may be left out where the trainer, the log or the command line says.
        pacing: How the rollouts move over a run, for the replay; a trainer's batches have one size.
        callback: How the policy is attached.
        model, dataset, grpo: For `integrations/trl/train.py` alone; `grpo` are arguments of `trl.GRPOConfig`.
        file: Where it was read.

    Raises:
        InputError: an unknown key, a wrong type or a value out of range, with file, line and key. BudgetError: a budget
            that contradicts itself.

    >>> config = Config.parse("policy: {name: knapsack, value: hit}\\nestimator: {discount: 0.8}\\nbudget: {floor: 4}")
    >>> config.build(seed=1)
    knapsack(value=hit, belief='posterior', prior=(0.5, 0.5), discount=0.8, idle=1.0, seed=1)
    >>> config.callback.candidates, config.callback.baseline, config.budget.min_group
    (1, 'group', 2)
    >>> Config.parse(config.as_yaml()) == config
    True
    >>> Config.parse("policy: adaptive\\nmodle: tiny", "run.yaml")
    Traceback (most recent call last):
    budgetalloc.errors.InputError: run.yaml, line 2: modle: unknown key, did you mean model? Known: policy, estimator,
        budget, pacing, callback, model, dataset, grpo.
    """

    policy: PolicySettings
    budget: BudgetSettings
    pacing: PacingSettings | None
    callback: CallbackSettings
    model: str | None = None
    dataset: str | None = None
    grpo: Mapping[str, Any] = field(default_factory=dict)
    file: str = field(default="config", compare=False)
    grpo_lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Config":
        """Reads a file; `OSError` where there is none."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{os.fspath(path)}: not a text in UTF-8, so not a YAML file.") from error
        return cls.parse(text, os.fspath(path))

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
        policy = _policy(top)
        budget = BudgetSettings(**top.section("budget").arguments(_kinds(BudgetSettings)))
        callback = CallbackSettings(**_callback(top.section("callback")))
        pacing = _pacing(top) if top.values.get("pacing") is not None else None
        names = {key: top.values[key] for key in ("model", "dataset") if key in top.values}
        Section(file, "", names, top.lines).arguments({"model": str | None, "dataset": str | None})
        grpo = top.section("grpo")
        lines = {key: line for key in grpo.values if (line := top.lines.get(grpo.path(str(key)))) is not None}
        config = cls(policy, budget, pacing, callback, **names, grpo=dict(grpo.values), file=file, grpo_lines=lines)
        try:
            policy.build()
        except BudgetallocError as error:
            raise top.error(error, "policy") from error
        config = _resolved(config)
        if pacing is not None and (budget.rollouts is not None or budget.tokens is not None):
            raise top.error("the rollouts of a step follow from it: leave out budget.rollouts and .tokens.", "pacing")
        try:
            # Where nothing says how many rollouts a step has, enough for any cap: the bounds must hold together.
            unknown = budget.rollouts is None and budget.tokens is None
            for rollouts in set(pacing.plan()) if pacing else {budget.quantum * 10**6 if unknown else budget.rollouts}:
                config.limits(rollouts)
        except BudgetallocError as error:
            raise top.error(error, "budget" if budget != BudgetSettings() else "pacing", type(error)) from error
        return config

    def build(self, seed: int | None = None) -> Policy:
        """A fresh policy that asks for what `callback` and `budget.min_group` say; picklable as `config.build`."""
        policy, callback = self.policy.build(seed), self.callback
        needs = replace(
            policy.needs,
            candidates=callback.candidates or policy.needs.candidates,
            baseline=callback.baseline,
            scale=callback.scale,
            weight=callback.weight or policy.needs.weight,
            min_group=self.budget.min_group or policy.needs.min_group,
        )
        policy = replace(policy, needs=needs)
        return policy if self.pacing is None else Paced.of(policy, self.pacing.plan())

    def rival(self, name: str) -> "Config":
        """Another method by name with its own defaults, under the same budget and pacing."""
        plain = Config.of(name)
        group = plain.budget.min_group
        if self.budget.floor and group:
            group = min(group, self.budget.floor)  # the floor of all may be below what this method asks for
        return replace(plain, budget=replace(self.budget, min_group=group), pacing=self.pacing)

    def limits(self, rollouts: int | None, group: int | None = None) -> Budget:
        """The budget of one step.

        Args:
            rollouts: Of the step; None is a step limited by `budget.tokens` alone.
            group: Rollouts of a prompt on average. Where the file gives no cap, it is 8 times as many.
        """
        b = self.budget
        floor, min_group = 0 if b.floor is None else b.floor, b.min_group or 2
        cap = b.cap
        if cap is None and group is not None:
            cap = -(-max(8 * group, floor, min_group) // b.quantum) * b.quantum
        return Budget(rollouts, b.tokens, floor=floor, cap=cap, quantum=b.quantum, min_group=min_group)

    def callback_arguments(self, rollouts: int) -> dict[str, Any]:
        """The keyword arguments of `AdaptiveGRPOCallback` for a trainer of so many rollouts a generation batch.

        Raises:
            UnsupportedError: the file asks for what a trainer's batches of one size cannot do.
        """
        if self.pacing is not None:
            raise UnsupportedError(
                f"{self.file}: pacing: TRL generates {rollouts} rollouts at every step, so the budget cannot move over "
                "the run. Leave out `pacing`; `budgetalloc replay` serves it."
            )
        if self.budget.tokens is not None:
            raise UnsupportedError(f"{self.file}: budget.tokens: TRL's batches are so many rollouts. Leave it out.")
        if self.budget.rollouts not in (None, rollouts):
            raise UnsupportedError(
                f"{self.file}: budget.rollouts={self.budget.rollouts}: this trainer generates {rollouts} rollouts a "
                f"step. Use {rollouts}, leave it out, or change the trainer's batch size."
            )
        bounds = {key: getattr(self.budget, key) for key in ("floor", "cap", "quantum", "min_group")}
        given = bounds | asdict(self.callback)
        return {key: value for key, value in given.items() if value is not None}

    def grpo_arguments(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """The `grpo` section as keyword arguments; `InputError` for one that is not known.

        Args:
            known: By name, such as `trl.GRPOConfig.__dataclass_fields__`.
        """
        Section(self.file, "grpo", self.grpo, {f"grpo.{k}": at for k, at in self.grpo_lines.items()}).only(known)
        return dict(self.grpo)

    def as_dict(self) -> dict[str, Any]:
        """Every setting with its value, in the sections of a file."""
        options = dict(self.policy.options)
        estimator = {key: options.pop(key) for key in ESTIMATOR if key in options}
        found: dict[str, Any] = {"policy": {"name": self.policy.name, **options}}
        found |= {"estimator": estimator} if estimator else {}
        found |= {"budget": asdict(self.budget)}
        found |= {"pacing": asdict(self.pacing)} if self.pacing else {}
        found |= {"callback": asdict(self.callback)}
        own = {"model": self.model, "dataset": self.dataset, "grpo": dict(self.grpo) or None}
        return found | {key: value for key, value in own.items() if value is not None}

    def as_yaml(self) -> str:
        """The same as YAML, which `parse` reads back to an equal config."""
        return written(self.as_dict())


def _kinds(function: Callable[..., Any]) -> dict[str, Any]:
    return {key: kind for key, (kind, _) in parameters(function).items()}


def _policy(top: Section) -> PolicySettings:
    """The sections `policy` and `estimator` together."""
    given = top.values.get("policy")
    if given is None or isinstance(given, str):
        name, section = given or "adaptive", Section(top.file, "policy", {}, top.lines)
    else:
        section = top.section("policy")
        name = section.values.get("name", "")
        if not isinstance(name, str) or not name:
            raise top.error(f"name={name!r}: name the policy, such as `policy: {{name: knapsack}}`.", "policy")
    try:
        known = {key: kind for key, (kind, _) in keywords(name).items()}
    except InputError as error:
        raise top.error(error, "policy") from error
    every = parameters(method_of(name))
    for key, (_, default) in every.items():
        if key not in known and (key in section.values or default is Parameter.empty):
            raise section.error(
                f"{name} takes {key} as a function, which a file cannot hold: build the policy in Python, "
                f"budgetalloc.policies.{name}({key}=...).",
                key if key in section.values else None,
            )
    options = section.arguments(known | {"name": str})
    estimator = top.section("estimator")
    if estimator.values:
        own = {key: kind for key, kind in known.items() if key in ESTIMATOR}
        if not own:
            raise top.error(f"{name} has no settings for how evidence fades. Leave this section out.", "estimator")
        for key in estimator.values:
            if key in options:
                raise estimator.error(f"given twice, also as {section.path(str(key))}.", key)
        options |= estimator.arguments(own)
    options.pop("name", None)
    return PolicySettings.of(name, **options)


def _callback(section: Section) -> dict[str, Any]:
    for key in ("hint", "buffer"):
        if key in section.values:
            raise section.error(
                f"a function or an object, which a file cannot hold: give it in Python, AdaptiveGRPOCallback({key}=).",
                key,
            )
    given = section.arguments(_kinds(CallbackSettings))
    if type(given.get("candidates")) is int and given["candidates"] < 1:
        raise section.error(f"{given['candidates']}: use 1, a larger integer or all.", "candidates")
    low, high = given.get("reward_range") or (0.0, 1.0)
    if not -float("inf") < low < high < float("inf"):
        raise section.error(f"[{low}, {high}]: give the lowest and the highest reward, as [0.0, 1.0].", "reward_range")
    return given


def _pacing(top: Section) -> PacingSettings:
    section = top.section("pacing")
    if section.values.get("name") in ("dual_price", "threshold", "DualPrice", "Threshold"):
        raise section.error(
            "it needs the gains of each step's rollouts, so it belongs into a loop of your own: see "
            "budgetalloc.costs.pacing. Use constant or phases.",
            "name",
        )
    given = section.arguments(_kinds(PacingSettings))
    if missing := [key for key in ("name", "rollouts", "steps") if key not in given]:
        raise top.error(f"give {' and '.join(missing)}.", "pacing")
    pacing = PacingSettings(**{"low": given.get("quantum", 1)} | given)  # 1, the horizon's own, fits no quantum but 1
    try:
        pacing.plan()
    except BudgetallocError as error:
        raise top.error(error, "pacing", type(error)) from error
    return pacing


def _resolved(config: Config) -> Config:
    """What was left out takes what the policy asks for, by the rules of `budgetalloc.trl.options`."""
    needs, callback, budget = config.policy.build().needs, config.callback, config.budget
    candidates = needs.candidates if callback.candidates is None else callback.candidates
    own: Baseline | None = None if needs.keep_batch and candidates == 1 else "group"
    callback = replace(
        callback,
        candidates=candidates,
        baseline=callback.baseline or needs.baseline or own,
        scale=callback.scale or needs.scale,
        weight=callback.weight or needs.weight,
    )
    budget = replace(
        budget,
        floor=(2 if candidates == 1 else 0) if budget.floor is None else budget.floor,
        min_group=needs.min_group if budget.min_group is None else budget.min_group,
    )
    return replace(config, budget=budget, callback=callback)
