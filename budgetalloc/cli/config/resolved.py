"""One YAML file with policy, budget, estimator and pacing, for the demo, the replay, the benchmarks and TRL.

`budgetalloc config FILE --show` prints every setting with its value; `configs/` has commented examples.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from budgetalloc.beliefs.rewards import check_range
from budgetalloc.budget import Budget
from budgetalloc.cli.config.settings import ESTIMATOR, CallbackSettings, PacingSettings, PolicySettings, parameters
from budgetalloc.cli.config.yamlfile import Section, read_text, written
from budgetalloc.errors import InputError, UnsupportedError
from budgetalloc.policies import Policy
from budgetalloc.policies.bounds import Bounds

SECTIONS = ("policy", "estimator", "budget", "pacing", "callback", "model", "dataset", "grpo")
_LONGEST = 10**6  # characters of a file
BUDGET = {"rollouts": int | None, "floor": int | None, "cap": int | None, "quantum": int, "min_group": int | None}
CALLBACK = {"candidates": int | Literal["all"] | None}
CALLBACK |= {key: kind for key, (kind, _) in parameters(CallbackSettings).items()}


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
    pacing: PacingSettings | None  # for the replay; a trainer's batches have one size
    callback: CallbackSettings
    model: str | None = None  # this and the next two are for `integrations/trl/train.py` alone
    dataset: str | None = None
    grpo: Mapping[str, Any] = field(default_factory=dict)  # arguments of `trl.GRPOConfig`
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
        """The method of this name with its defaults; `InputError` for an unknown one, or one that needs a function."""
        PolicySettings.of(name)
        return cls.parse(f"policy: {name}", f"--policy {name}")

    @classmethod
    def parse(cls, text: str, file: str = "config") -> "Config":
        """Reads the text of a file; `file` is its name in errors."""
        top = read_text(text, file)
        plain = top.arguments(dict.fromkeys(SECTIONS, Any) | {"model": str | None, "dataset": str | None})
        policy, pacing = PolicySettings.read(top), PacingSettings.read(top)
        section, budget = top.section("callback"), top.section("budget").arguments(BUDGET)
        if code := next((key for key in section.values if key in ("hint", "buffer")), None):
            raise section.error(f"not a plain value: give it in Python, AdaptiveGRPOCallback({code}=...).", code)
        callback = {key: value for key, value in section.arguments(CALLBACK).items() if value is not None}
        candidates, rollouts = callback.pop("candidates", None), budget.pop("rollouts", None)
        if pacing is not None and rollouts is not None:
            raise top.error("the rollouts of a step follow from it: leave out budget.rollouts.", "pacing")
        with top.named("policy"):
            needs = policy.build().needs
        with section.named("reward_range"):
            check_range(callback.get("reward_range", (0, 1)))
        with top.named("callback"):
            candidates = Bounds.resolve(needs, candidates=candidates).candidates
        with top.named("budget" if "budget" in top.values else "pacing"):
            bounds = Bounds.resolve(needs, candidates=candidates, **budget)
            # Where nothing says how many rollouts a step has, enough for any cap: the bounds must not contradict.
            for count in set(pacing.plan()) if pacing else {bounds.quantum * 10**6 if rollouts is None else rollouts}:
                bounds.budget(count, prompts=1, group=1)
        baseline = needs.baseline or (None if needs.keep_batch and candidates == 1 else "group")
        needed = {"baseline": baseline, "scale": needs.scale, "weight": needs.weight}
        attached = CallbackSettings(**needed | callback)
        model, dataset, grpo = plain.get("model"), plain.get("dataset"), dict(top.section("grpo").values)
        return cls(policy, rollouts, bounds, pacing, attached, model, dataset, grpo, file, top.lines)

    def build(self, seed: int | None = None) -> Policy:
        """A fresh policy that asks for what the file says; picklable as `config.build`."""
        policy = self.policy.build(seed)
        asked = {key: getattr(self.callback, key) for key in ("baseline", "scale", "weight")}
        asked |= {"candidates": self.bounds.candidates, "min_group": self.bounds.min_group}
        policy = replace(policy, needs=replace(policy.needs, **asked))
        return policy if self.pacing is None else self.pacing.paced(policy)

    def rival(self, name: str) -> "Config":
        """Another method by name with its own defaults, under the same budget and pacing."""
        other = Config.of(name)
        # The floor of all may be below the smallest group that this method asks for.
        group = min(other.bounds.min_group, self.bounds.floor or other.bounds.min_group)
        bounds = replace(self.bounds, candidates=other.bounds.candidates, min_group=group)
        return replace(other, rollouts=self.rollouts, bounds=bounds, pacing=self.pacing)

    def limits(self, rollouts: int, group: int | None = None) -> Budget:
        """The budget of one step; without a cap in the file, the cap is 8 times `group`, the mean size of a group."""
        return self.bounds.budget(rollouts, prompts=rollouts if group else 1, group=group or 1)

    def callback_arguments(self, rollouts: int) -> dict[str, Any]:
        """Arguments of `AdaptiveGRPOCallback` for a trainer with this many rollouts a step, or `UnsupportedError`."""
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
        return {key: x for key, x in (asdict(self.bounds) | asdict(self.callback)).items() if x is not None}

    def grpo_arguments(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """The section `grpo`; raises `InputError` for a key not in `known`, such as the fields of `trl.GRPOConfig`."""
        return Section(self.file, "grpo", self.grpo, self.lines).arguments(dict.fromkeys(known, Any))

    def as_dict(self) -> dict[str, Any]:
        """Every setting with its value, in the sections of a file."""
        options, bounds = dict(self.policy.options), asdict(self.bounds)
        sections = {
            "estimator": {key: options.pop(key) for key in ESTIMATOR if key in options},
            "policy": {"name": self.policy.name, **options},
            "callback": {"candidates": bounds.pop("candidates")} | asdict(self.callback),
            "budget": {"rollouts": self.rollouts} | bounds,
            "pacing": asdict(self.pacing) if self.pacing else None,
            "model": self.model,
            "dataset": self.dataset,
            "grpo": dict(self.grpo),
        }
        return {key: sections[key] for key in SECTIONS if sections[key] not in (None, {})}

    def as_yaml(self) -> str:
        """The same as YAML, which `parse` reads back to an equal config."""
        return written(self.as_dict())
