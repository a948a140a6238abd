"""Settings of policy, budget, estimator and pacing in one YAML file, as in `configs/`."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from budgetalloc.cli.config.settings import ESTIMATOR, CallbackSettings, PolicySettings, paced
from budgetalloc.cli.config.yaml_file import Source, read_text, text_of
from budgetalloc.errors import UnsupportedError, check_type
from budgetalloc.policies import Policy
from budgetalloc.policies.bounds import Bounds
from budgetalloc.policies.methods import method_of
from budgetalloc.policies.pacing_policy import Paced

__all__ = ["BUDGET", "CALLBACK", "SECTIONS", "Config"]

SECTIONS = ("policy", "estimator", "budget", "pacing", "callback", "model", "dataset", "grpo")
BUDGET = ("rollouts", "floor", "cap", "quantum", "min_group")
CALLBACK = ("candidates", *(field.name for field in fields(CallbackSettings)))


@dataclass(frozen=True)
class Config:
    """The settings of a file with every default resolved. Equal configs behave the same.

    A mistake in the file is an `InputError` or a `BudgetError` that names file, line and key.

    >>> config = Config.parse("policy: {name: knapsack, value: hit}\\nestimator: {discount: 0.8}\\nbudget: {floor: 4}")
    >>> config.build(seed=1)
    knapsack(value=hit, belief='posterior', prior=(0.5, 0.5), discount=0.8, idle=1.0, seed=1)
    >>> config.bounds.candidates, config.callback.baseline, config.bounds.min_group
    (1, 'group', 2)
    """

    policy: PolicySettings  # includes the section `estimator`
    rollouts: int | None  # of one step; None leaves it to the trainer, the log or the command line
    bounds: Bounds  # candidates and group sizes, from the sections `budget` and `callback`
    pacing: Mapping[str, Any]  # for the replay only, because a trainer's batches have one size; may be empty
    plan: tuple[int, ...]  # the rollouts of each step under the pacing
    callback: CallbackSettings
    model: str | None = None  # only `integrations/trl/train.py` reads `model`, `dataset` and `grpo`
    dataset: str | None = None
    grpo: Mapping[str, Any] = field(default_factory=dict)  # arguments of `trl.GRPOConfig`
    source: Source = field(default=Source("config", {}, {}), compare=False, repr=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Config":
        """Reads a file; raises `OSError` if there is none."""
        return cls.parse(text_of(Path(path), 10**6, "a YAML file of settings"), os.fspath(path))

    @classmethod
    def of(cls, name: str) -> "Config":
        """The method of this name with its defaults; `InputError` if it is unknown or needs a function."""
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
            # The bounds must not contradict each other. If nothing sets the rollouts, take enough for any cap.
            for count in set(plan) or [bounds.quantum * 10**6 if rollouts is None else rollouts]:
                bounds.budget(count, prompts=1, group=1)
        model, dataset, grpo = source.values.get("model"), source.values.get("dataset"), source.section("grpo")
        with source.named():
            check_type("model", model, (str, type(None)), "a name on the hub or a folder")
            check_type("dataset", dataset, (str, type(None)), "a name on the hub, a file or a folder")
        return cls(policy, rollouts, bounds, pacing, plan, callback, model, dataset, grpo, source)

    def build(self, seed: int | None = None) -> Policy:
        """A new policy with the settings of the file; `config.build` can be pickled."""
        policy = self.policy.build(seed)
        asked = {key: getattr(self.callback, key) for key in ("baseline", "scale", "weight")}
        asked |= {key: getattr(self.bounds, key) for key in ("candidates", "min_group")}
        policy = replace(policy, needs=replace(policy.needs, **asked))
        return Paced(**vars(policy), plan=self.plan) if self.plan else policy

    def rival(self, name: str) -> "Config":
        """Another method with its own defaults, under the same budget and pacing."""
        other = Config.of(name)
        # The common floor may be below the smallest group of this method.
        group = min(other.bounds.min_group, self.bounds.floor or other.bounds.min_group)
        bounds = replace(self.bounds, candidates=other.bounds.candidates, min_group=group)
        return replace(other, rollouts=self.rollouts, bounds=bounds, pacing=self.pacing, plan=self.plan)

    def callback_arguments(self, rollouts: int | None) -> dict[str, Any]:
        """Arguments of `AdaptiveGRPOCallback` for a trainer with this many rollouts a step (None: not known).

        Raises `UnsupportedError` for pacing, and for another number of rollouts than the trainer's.
        """
        if self.plan:
            text = (
                f"TRL generates {rollouts or 'as many'} rollouts at every step, so the budget cannot change over the "
                "run. `budgetalloc replay`, verl (+budgetalloc.pacing=) and, with AsyncGRPOTrainer, "
                "AdaptiveRolloutWorker(rollouts_per_step=) serve it."
            )
            raise self.source.error(text, "pacing", kind=UnsupportedError)
        if rollouts is not None and self.rollouts not in (None, rollouts):
            text = f"this trainer generates {rollouts} rollouts a step. Use {rollouts}, or change its batch size."
            raise self.source.error(f"{self.rollouts}: {text}", "budget.rollouts", kind=UnsupportedError)
        return {key: x for key, x in (asdict(self.bounds) | asdict(self.callback)).items() if x is not None}

    def as_dict(self) -> dict[str, Any]:
        """Every setting with its value, in the sections of a file, which reads back as an equal config."""
        options, bounds = dict(self.policy.options), asdict(self.bounds)
        sections = {
            "estimator": {key: options.pop(key) for key in ESTIMATOR if key in options},
            "policy": {"name": self.policy.name, **options},
            "callback": {"candidates": bounds.pop("candidates")} | asdict(self.callback),
            "budget": {"rollouts": self.rollouts} | bounds,
        }
        sections |= {key: getattr(self, key) for key in ("pacing", "model", "dataset", "grpo")}
        return {key: sections[key] for key in SECTIONS if sections[key] not in (None, {})}
