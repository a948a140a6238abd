"""One YAML file with policy, budget, estimator and pacing, for the demo, the replay and TRL, as in `configs/`."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from budgetalloc.cli.config.settings import ESTIMATOR, CallbackSettings, PolicySettings, paced
from budgetalloc.cli.config.yaml_file import Source, read_text
from budgetalloc.errors import InputError, UnsupportedError, check_type
from budgetalloc.policies import Policy
from budgetalloc.policies.bounds import Bounds
from budgetalloc.policies.methods import method_of
from budgetalloc.policies.pacing_policy import Paced

SECTIONS = ("policy", "estimator", "budget", "pacing", "callback", "model", "dataset", "grpo")
BUDGET = ("rollouts", "floor", "cap", "quantum", "min_group")
CALLBACK = ("candidates", *(field.name for field in fields(CallbackSettings)))
_LONGEST = 10**6  # characters of a file


@dataclass(frozen=True)
class Config:
    """The settings of a file with every default resolved; two configs that are equal behave the same.

    A mistake in the file is an `InputError` or a `BudgetError` that names file, line and key.

    >>> config = Config.parse("policy: {name: knapsack, value: hit}\\nestimator: {discount: 0.8}\\nbudget: {floor: 4}")
    >>> config.build(seed=1)
    knapsack(value=hit, belief='posterior', prior=(0.5, 0.5), discount=0.8, idle=1.0, seed=1)
    >>> config.bounds.candidates, config.callback.baseline, config.bounds.min_group
    (1, 'group', 2)
    """

    policy: PolicySettings  # the section `estimator` of a file is among its options
    rollouts: int | None  # of one step; None where the trainer, the log or the command line decides
    bounds: Bounds  # the prompts on offer and the sizes of groups, from the sections `budget` and `callback`
    pacing: Mapping[str, Any]  # for the replay, empty without; a trainer's batches have one size
    plan: tuple[int, ...]  # the rollouts of each step under the pacing
    callback: CallbackSettings
    model: str | None = None  # this and the next two are for `integrations/trl/train.py` alone
    dataset: str | None = None
    grpo: Mapping[str, Any] = field(default_factory=dict)  # arguments of `trl.GRPOConfig`
    source: Source = field(default=Source("config", {}, {}), compare=False, repr=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Config":
        """Reads a file; `OSError` where there is none."""
        name = os.fspath(path)
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read(_LONGEST + 1)
        except UnicodeDecodeError as error:
            raise InputError(f"{name}: this is not UTF-8 text: give a YAML file.") from error
        if len(text) > _LONGEST:
            raise InputError(f"{name}: more than {_LONGEST:,} characters: give a file of settings.")
        return cls.parse(text, name)

    @classmethod
    def of(cls, name: str) -> "Config":
        """The method of this name with its defaults; `InputError` for an unknown one, or one that needs a function."""
        method_of(name)
        return cls.parse(f"policy: {name}", f"--policy {name}")

    @classmethod
    def parse(cls, text: str, file: str = "config") -> "Config":
        """Reads the text of a file; `file` is its name in errors."""
        source = read_text(text, file)
        source.section("", SECTIONS)
        policy, (pacing, plan) = PolicySettings.read(source), paced(source)
        with source.named("policy", "estimator"):
            needs = policy.build().needs
        if code := next((key for key in source.section("callback") if key in ("hint", "buffer")), None):
            text = f"not a plain value: give it in Python, AdaptiveGRPOCallback({code}=...)."
            raise source.error(text, f"callback.{code}")
        given = {key: value for key, value in source.section("callback", CALLBACK).items() if value is not None}
        candidates, budget = given.pop("candidates", None), source.section("budget", BUDGET)
        with source.named("callback"):
            asked = {"baseline": needs.baseline, "scale": needs.scale, "weight": needs.weight}
            callback = CallbackSettings(**asked | given)
        rollouts = budget.pop("rollouts", None)
        if plan and rollouts is not None:
            raise source.error("pacing sets the rollouts of each step: leave out budget.rollouts.", "pacing")
        with source.named("budget", "pacing", "callback"):
            bounds = Bounds.resolve(needs, candidates=candidates, **budget)
            # Where nothing says how many rollouts a step has, enough for any cap: the bounds must not contradict.
            for count in set(plan) or [bounds.quantum * 10**6 if rollouts is None else rollouts]:
                bounds.budget(count, prompts=1, group=1)
        model, dataset, grpo = source.values.get("model"), source.values.get("dataset"), source.section("grpo")
        with source.named():
            check_type("model", model, (str, type(None)), "a name on the hub or a folder")
            check_type("dataset", dataset, (str, type(None)), "a name on the hub, a file or a folder")
        return cls(policy, rollouts, bounds, pacing, plan, callback, model, dataset, grpo, source)

    def build(self, seed: int | None = None) -> Policy:
        """A fresh policy that asks for what the file says; picklable as `config.build`."""
        policy = self.policy.build(seed)
        asked = {key: getattr(self.callback, key) for key in ("baseline", "scale", "weight")}
        asked |= {key: getattr(self.bounds, key) for key in ("candidates", "min_group")}
        policy = replace(policy, needs=replace(policy.needs, **asked))
        return Paced(**vars(policy), plan=self.plan) if self.plan else policy

    def rival(self, name: str) -> "Config":
        """Another method by name with its own defaults, under the same budget and pacing."""
        other = Config.of(name)
        # The floor of all may be below the smallest group that this method asks for.
        group = min(other.bounds.min_group, self.bounds.floor or other.bounds.min_group)
        bounds = replace(self.bounds, candidates=other.bounds.candidates, min_group=group)
        return replace(other, rollouts=self.rollouts, bounds=bounds, pacing=self.pacing, plan=self.plan)

    def callback_arguments(self, rollouts: int | None) -> dict[str, Any]:
        """Arguments of `AdaptiveGRPOCallback` for a trainer with this many rollouts a step, or `UnsupportedError`.

        None: a number that is not known, which then contradicts nothing.
        """
        if self.plan:
            always = f"TRL generates {rollouts or 'as many'} rollouts at every step"
            text = f"{always}, so the budget cannot change over the run."
            other = (
                "`budgetalloc replay`, verl (+budgetalloc.pacing=) and, with AsyncGRPOTrainer, "
                "AdaptiveRolloutWorker(rollouts_per_step=) serve it."
            )
            raise self.source.error(f"{text} {other}", "pacing", kind=UnsupportedError)
        if rollouts is not None and self.rollouts not in (None, rollouts):
            text = f"this trainer generates {rollouts} rollouts a step. Use {rollouts}, or change its batch size."
            raise self.source.error(f"{self.rollouts}: {text}", "budget.rollouts", kind=UnsupportedError)
        return {key: x for key, x in (asdict(self.bounds) | asdict(self.callback)).items() if x is not None}

    def as_dict(self) -> dict[str, Any]:
        """Every setting with its value, in the sections of a file; read back, it is an equal config."""
        options, bounds = dict(self.policy.options), asdict(self.bounds)
        sections = {
            "estimator": {key: options.pop(key) for key in ESTIMATOR if key in options},
            "policy": {"name": self.policy.name, **options},
            "callback": {"candidates": bounds.pop("candidates")} | asdict(self.callback),
            "budget": {"rollouts": self.rollouts} | bounds,
        }
        sections |= {key: getattr(self, key) for key in ("pacing", "model", "dataset", "grpo")}
        return {key: sections[key] for key in SECTIONS if sections[key] not in (None, {})}
