"""Settings of policy, budget, estimator and pacing in one YAML file, as in `configs/`."""

import inspect
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.contrib.pacing import pacing_plan, tuples
from budgetalloc.errors import BudgetallocError, InputError, UnsupportedError, nearest, shown
from budgetalloc.methods.table import method_of
from budgetalloc.policies import Policy
from budgetalloc.policies.bounds import Bounds
from budgetalloc.training.options import Options

__all__ = ["BUDGET", "CALLBACK", "ESTIMATOR", "SECTIONS", "Config"]

SECTIONS = ("policy", "estimator", "budget", "pacing", "callback", "model", "dataset", "grpo")
BUDGET = ("rollouts", "floor", "cap", "quantum", "min_group")
ESTIMATOR = tuple(inspect.signature(BetaEstimator).parameters)
_OPTIONS = {each.name for each in fields(Options)} - {
    "bounds",
    "keep_batch",
    "generate",
    "hint",
    "buffer",
}
CALLBACK = (
    "candidates",
    *sorted(_OPTIONS),
    "prompt_id",
    "features",
    "shadow",
    "ledger",
    "allow_dataset_change",
)


@dataclass(frozen=True)
class Config:
    """The settings of a file with every default resolved. Equal configs behave the same.

    A mistake in the file is an `InputError` or a `BudgetError` that names the file.

    >>> config = Config.parse("policy: {name: knapsack, value: hit}\\nestimator: {discount: 0.8}\\nbudget: {floor: 4}")
    >>> config.build(seed=1)
    knapsack(value=hit, belief='posterior', prior=(0.5, 0.5), discount=0.8, idle=1.0, seed=1)
    >>> config.bounds.candidates, config.callback["baseline"], config.bounds.min_group
    (1, 'group', 2)
    """

    method: str
    arguments: Mapping[str, Any]  # of the method, from the sections `policy` and `estimator`
    rollouts: int | None  # of one step; None leaves it to the trainer, the log or the command line
    bounds: Bounds  # candidates and group sizes, from the sections `budget` and `callback`
    # for the replay only, because a trainer's batches have one size; may be empty
    pacing: Mapping[str, Any]
    plan: tuple[int, ...]  # the rollouts of each step under the pacing
    callback: Mapping[str, Any]  # the other arguments of the callback that are not None
    model: str | None = None  # only `integrations/trl/train.py` reads `model`, `dataset` and `grpo`
    dataset: str | None = None
    grpo: Mapping[str, Any] = field(default_factory=dict)  # arguments of `trl.GRPOConfig`
    file: str = field(default="config", compare=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Config":
        """Reads a file; raises `OSError` if there is none."""
        return cls.parse(Path(path).read_bytes(), os.fspath(path))

    @classmethod
    def of(cls, name: str) -> "Config":
        """The method of this name with its defaults; `InputError` if it is unknown or needs a
        function."""
        method_of(name)
        return cls.parse(f"policy: {name}", f"--policy {name}")

    @classmethod
    def parse(cls, text: str | bytes, file: str = "config") -> "Config":
        """Reads the text of a file; `file` is its name in errors."""
        sections = _sections(text, file)
        with _named(file, sections, "policy", "estimator"):
            method, arguments = _policy(sections)
            needs = method_of(method).named(arguments).needs
        with _named(file, sections, "pacing"):
            pacing, plan = pacing_plan(sections["pacing"]) if sections["pacing"] else ({}, ())
        with _named(file, sections, "budget", "callback"):
            _check_keys("budget", sections["budget"], BUDGET)
            _check_keys("callback", sections["callback"], CALLBACK)
            budget = dict(sections["budget"])
            rollouts = budget.pop("rollouts", None)
            if plan and rollouts is not None:
                raise InputError(
                    "pacing sets the rollouts of each step: leave out budget.rollouts."
                )
            asked = {"baseline": needs.baseline, "scale": needs.scale, "weight": needs.weight}
            given = {
                key: tuples(value)
                for key, value in sections["callback"].items()
                if value is not None
            }
            # The arguments that do not need a trainer, or its dataset, are checked here.
            known = {
                key: value for key, value in given.items() if key in _OPTIONS or key == "candidates"
            }
            bounds = Options.resolve(needs, "group", known | budget).bounds
            # The bounds must not contradict each other. If nothing sets the rollouts, take enough
            # for any cap.
            for count in set(plan) or [bounds.quantum * 10**6 if rollouts is None else rollouts]:
                bounds.budget(count, prompts=1, group=1)
        given.pop("candidates", None)
        callback = {key: value for key, value in (asked | given).items() if value is not None}
        rest = {key: sections[key] for key in ("model", "dataset", "grpo")}
        return cls(method, arguments, rollouts, bounds, pacing, plan, callback, **rest, file=file)

    def build(self, seed: int | None = None) -> Policy:
        """A new policy with the settings of the file; `config.build` can be pickled."""
        arguments = self.arguments if seed is None else {**self.arguments, "seed": seed}
        policy = method_of(self.method).named(arguments)
        asked: dict[str, Any] = {
            key: self.callback.get(key) for key in ("baseline", "scale", "weight")
        }
        asked |= {key: getattr(self.bounds, key) for key in ("candidates", "min_group")}
        return replace(policy, needs=replace(policy.needs, **asked), plan=self.plan)

    def rival(self, name: str) -> "Config":
        """Another method with its own defaults, under the same budget and pacing."""
        other = Config.of(name)
        # The common floor may be below the smallest group of this method.
        group = min(other.bounds.min_group, self.bounds.floor or other.bounds.min_group)
        bounds = replace(self.bounds, candidates=other.bounds.candidates, min_group=group)
        return replace(
            other, rollouts=self.rollouts, bounds=bounds, pacing=self.pacing, plan=self.plan
        )

    def callback_arguments(self, rollouts: int | None) -> dict[str, Any]:
        """Arguments of `AdaptiveGRPOCallback` for a trainer with this many rollouts a step (None:
        not known).

        Raises `UnsupportedError` for pacing, and for another number of rollouts than the trainer's.
        """
        if self.plan:
            raise UnsupportedError(
                f"{self.file}: pacing: TRL generates {rollouts or 'as many'} rollouts at every "
                "step, so the budget "
                "cannot change over the run. `budgetalloc replay`, verl (+budgetalloc.pacing=) "
                "and, with "
                "AsyncGRPOTrainer, AdaptiveRolloutWorker(rollouts_per_step=) serve it.",
                argument="pacing",
            )
        if rollouts is not None and self.rollouts not in (None, rollouts):
            raise UnsupportedError(
                f"{self.file}: budget.rollouts={self.rollouts}: this trainer generates {rollouts} "
                "rollouts a step. "
                f"Use {rollouts}, or change its batch size.",
                argument="rollouts",
            )
        return {
            key: value for key, value in asdict(self.bounds).items() if value is not None
        } | dict(self.callback)

    def as_dict(self) -> dict[str, Any]:
        """Every setting with its value, in the sections of a file, which reads back as an equal
        config."""
        arguments, bounds = dict(self.arguments), asdict(self.bounds)
        sections = {
            "policy": {"name": self.method},
            "estimator": {key: arguments.pop(key) for key in ESTIMATOR if key in arguments},
            "callback": {"candidates": bounds.pop("candidates"), **self.callback},
            "budget": {"rollouts": self.rollouts, **bounds},
        }
        sections["policy"] |= arguments
        sections |= {key: getattr(self, key) for key in ("pacing", "model", "dataset", "grpo")}
        return {key: sections[key] for key in SECTIONS if sections[key] not in (None, {})}


def _sections(text: str | bytes, file: str) -> dict[str, Any]:
    """The sections of a YAML file; those that are left out are empty. `policy` may be a name."""
    try:
        values = yaml.safe_load(text)
    # PyYAML has no common one: a date that does not exist is a ValueError
    except Exception as error:
        raise InputError(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    values = {} if values is None else values
    if not isinstance(values, Mapping):
        raise InputError(
            f"{file}: use settings of the form `name: value`, such as `policy: adaptive`."
        )
    with _named(file, values):
        _check_keys("", values, SECTIONS)
    sections = {name: {} if values.get(name) is None else values[name] for name in SECTIONS}
    sections |= {name: values.get(name) for name in ("model", "dataset")}
    if isinstance(name := sections["policy"] or "adaptive", str):
        sections["policy"] = {"name": name}
    for name in SECTIONS:
        if name not in ("model", "dataset") and not isinstance(sections[name], Mapping):
            text = (
                f"{file}: {name}: {shown(sections[name])}: use settings of the form `name: value`."
            )
            raise InputError(text, argument=name)
    return sections


def _policy(sections: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of the method, and every argument of it that a file can give."""
    options, estimator = dict(sections["policy"]), sections["estimator"]
    method = method_of(options.pop("name", None))
    defaults = method.defaults()
    code = [key for key, value in method.functions().items() if key in options or value is not None]
    if code:
        raise InputError(
            f"{method.name} takes {code[0]} as a function, which a file cannot hold: build the "
            "policy in Python, "
            f"budgetalloc.methods.{method.name}({code[0]}=...).",
            argument=code[0],
        )
    _check_keys("policy", options, defaults)
    _check_keys(
        "estimator", estimator, [key for key in ESTIMATOR if key in defaults and key not in options]
    )
    arguments = defaults | {
        key: tuples(value) for key, value in (options | dict(estimator)).items()
    }
    return method.name, arguments


def _check_keys(section: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    for key in given:
        if key not in known:
            name = f"{section}.{key}" if section else key
            raise InputError(
                f"{name}: unknown key{nearest(key, known)} Known: {', '.join(known) or 'none'}."
            )


@contextmanager
def _named(file: str, sections: Mapping[str, Any], *read: str) -> Iterator[None]:
    """Adds the file to an error that is raised inside, and which of the sections that are read has
    its argument."""
    try:
        yield
    except BudgetallocError as error:
        about = [name for name in read if error.argument in sections[name]]
        text = ": ".join([file, *about[:1], str(error)])
        raise type(error)(text, argument=error.argument) from error
