"""What is known about a run before it starts, and what the doctor reports about it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from budgetalloc.cli.config import Config
from budgetalloc.cli.doctor import grpo_config
from budgetalloc.cli.doctor.data import Data, named
from budgetalloc.errors import BudgetallocError
from budgetalloc.policies import Policy

__all__ = ["ARGUMENTS", "OTHERS", "Diagnosis", "Setup", "T", "every_mistake", "of_config", "shortened"]

T = TypeVar("T")
ARGUMENTS: dict[str, Any] = dict.fromkeys(
    ("candidates", "baseline", "scale", "weight", "floor", "cap", "min_group", "success", "reward_range", "hint")
)
ARGUMENTS |= {"buffer": None, "domain": None, "quotas": None, "cost": None, "quantum": 1, "prompt_id": None}
ARGUMENTS |= {"mixture": None, "cost_per_step": None, "features": None}
"""The arguments of `AdaptiveGRPOCallback` that the doctor checks, with their defaults."""
OTHERS = ("trainer", "policy", "ledger", "allow_dataset_change", "fallback", "shadow")
"""Its other arguments."""
_DOMAINS = ("domain", "quotas", "mixture")  # none of them is of use without the others
_LONGEST, _MOST = 800, 20  # characters of a printed text, and texts in a printed list


@dataclass
class Diagnosis:
    """What the doctor reports about a run."""

    file: str
    facts: list[tuple[str, str]] = field(default_factory=list)  # what the run is: names and texts
    unchecked: list[str] = field(default_factory=list)  # names of unknown facts, about which nothing was checked
    refused: list[str] = field(default_factory=list)  # errors that the run would raise
    warned: list[str] = field(default_factory=list)  # warnings that it would log
    advice: list[str] = field(default_factory=list)  # which policy fits
    unread: list[str] = field(default_factory=list)  # what is known only once the script runs
    blind: bool = False  # nothing was checked: step, dataset and rewards are unknown, and the policy is the default

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Adds an error that is raised inside to the refusals, instead of raising it."""
        try:
            yield
        except BudgetallocError as error:
            self.refused.append(str(error))

    def shortened(self) -> "Diagnosis":
        """The same in at most two pages, whatever names and values a script has."""
        facts = [(name, shortened(text)) for name, text in self.facts]
        lists: dict[str, Any] = {
            name: _first(getattr(self, name)) for name in ("refused", "warned", "advice", "unread")
        }
        return replace(self, file=shortened(self.file), facts=facts, **lists)


def shortened(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _first(texts: list[str]) -> list[str]:
    more = [f"... and {len(texts) - _MOST:,} more"] if len(texts) > _MOST else []
    return [*map(shortened, texts[:_MOST]), *more]


@dataclass(frozen=True)
class Setup:
    """What is known about a run with TRL. None: not known."""

    diagnosis: Diagnosis  # what reading the file has already shown
    trainer: Sequence[str]  # names of the trainer's class and its base classes
    settings: Mapping[str, Any]  # the known arguments of `GRPOConfig`, resolved
    processes: int
    policy: Policy | None
    attached: bool  # whether the script attaches a policy; if not, `policy` is the default
    given: Mapping[str, Any]  # the known arguments of `AdaptiveGRPOCallback`, and the defaults of the others
    rewards: Sequence[str] | None  # names of the reward functions
    data: Data
    tools: bool | None = None  # whether the trainer has tools
    environments: bool | None = None


def of_config(config: Config, processes: int) -> Setup:
    """What a settings file says about a run with TRL, as integrations/trl/train.py runs it."""
    diagnosis = Diagnosis(config.source.file, unread=["the reward functions: your training script has them"])
    if not config.grpo:
        diagnosis.unread.append("GRPOConfig: the file has no section grpo")
    settings, mistakes = grpo_config.resolved(config.grpo, processes) if config.grpo else ({}, [])
    diagnosis.refused += [str(config.source.error(mistake, "grpo")) for mistake in mistakes]
    arguments = dict(ARGUMENTS)
    with diagnosis.collecting():
        known = config.callback_arguments(settings.get("generation_batch_size"))
        arguments |= {name: value for name, value in known.items() if name in arguments}
    data = Data("the file names none") if config.dataset is None else named(config.dataset)
    policy = config.policy.build()  # without pacing, which callback_arguments() refuses
    return Setup(diagnosis, ["GRPOTrainer"], settings, processes, policy, True, arguments, None, data)


def every_mistake(build: Callable[[dict[str, Any]], T], given: Mapping[str, Any]) -> tuple[T | None, list[str]]:
    """Calls `build` until it succeeds, each time without the argument that the last error named; returns all errors.

    The result is None if an error names no argument.

    >>> from budgetalloc.errors import check_integer
    >>> every_mistake(lambda given: check_integer("a", given.get("a", 1), 1), {"a": 0})
    (1, ['a=0: use an integer of at least 1.'])
    """
    left, errors = dict(given), list[str]()
    while True:
        try:
            return build(left), errors
        except BudgetallocError as error:
            errors.append(str(error))
            name = errors[-1].partition("=")[0]
            if name not in left:
                return None, errors
            for each in _DOMAINS if name in _DOMAINS else (name,):
                left.pop(each, None)
