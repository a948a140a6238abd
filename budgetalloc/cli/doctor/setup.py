"""A run as far as it is known before it starts, and what is said about it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from budgetalloc.cli.doctor.data import Data
from budgetalloc.errors import BudgetallocError
from budgetalloc.policies import Policy

T = TypeVar("T")
ARGUMENTS: dict[str, Any] = dict.fromkeys(
    ("candidates", "baseline", "scale", "weight", "floor", "cap", "min_group", "success", "reward_range", "hint")
)
ARGUMENTS |= {"buffer": None, "domain": None, "quotas": None, "cost": None, "quantum": 1, "prompt_id": None}
"""The arguments of `AdaptiveGRPOCallback` that the checks concern, with their defaults."""
OTHERS = ("trainer", "policy", "ledger", "allow_dataset_change", "fallback")
"""Its other arguments."""
_LONGEST, _MOST = 800, 20  # characters of a text, and texts of a kind, that are printed


@dataclass
class Diagnosis:
    """What the doctor says.

    Args:
        file: What was read.
        facts: A name and a text each: what the run is.
        unchecked: The names of the facts that are not known, so that nothing about them was checked.
        refused: The errors that the run would raise.
        warned: Its warnings.
        advice: Which policy fits.
        unread: What only running the script can tell.
        blind: Whether nothing was checked: step, dataset and rewards are not known, and the policy is the default.
    """

    file: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    blind: bool = False

    def shortened(self) -> "Diagnosis":
        """The same on a page or two, whatever names and values a script has."""
        facts = [(name, shortened(text)) for name, text in self.facts]
        refused, unread = _the_first(self.refused), _the_first(self.unread)
        warned, advice = _the_first(self.warned), _the_first(self.advice)
        return replace(
            self, file=shortened(self.file), facts=facts, refused=refused, unread=unread, warned=warned, advice=advice
        )


def shortened(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _the_first(texts: list[str]) -> list[str]:
    more = [f"... and {len(texts) - _MOST:,} more"] if len(texts) > _MOST else []
    return [*map(shortened, texts[:_MOST]), *more]


@dataclass(frozen=True)
class Setup:
    """What is known of a run with TRL.

    Args:
        diagnosis: What reading the file has already shown.
        trainer: The trainer's class and the classes that it inherits, by name.
        settings: The arguments of `GRPOConfig` that are known, resolved.
        processes: Processes of the training.
        policy: The policy; None if it cannot be known without running the script.
        attached: Whether the script attaches a policy; if not, `policy` is the default.
        given: The arguments of `AdaptiveGRPOCallback` that are known, with the defaults of the others.
        rewards: The names of the reward functions; None if they are not known.
        data: The train dataset.
        tools, environments: Whether the trainer has them; None if that is not known.
    """

    diagnosis: Diagnosis
    trainer: Sequence[str]
    settings: Mapping[str, Any]
    processes: int
    policy: Policy | None
    attached: bool
    given: Mapping[str, Any]
    rewards: Sequence[str] | None
    data: Data
    tools: bool | None = None
    environments: bool | None = None


def every_mistake(build: Callable[[dict[str, Any]], T], given: Mapping[str, Any]) -> tuple[T | None, list[str]]:
    """What `build` makes of these arguments, and all errors: the argument that an error names first is left out of the
    next attempt. None if an error names no argument.

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
            for each in ("domain", "quotas") if name in ("domain", "quotas") else (name,):
                left.pop(each, None)
