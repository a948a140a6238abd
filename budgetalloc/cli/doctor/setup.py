"""A run as far as it is known before it starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from budgetalloc.cli.doctor.data import Data
from budgetalloc.policies import Policy

ARGUMENTS: dict[str, Any] = dict.fromkeys(
    ("candidates", "baseline", "scale", "weight", "floor", "cap", "min_group", "success", "reward_range", "hint")
)
ARGUMENTS |= {"buffer": None, "domain": None, "quotas": None, "cost": None, "quantum": 1, "prompt_id": "prompt_id"}
"""The arguments of `AdaptiveGRPOCallback` that the checks concern, with their defaults."""
OTHERS = ("trainer", "policy", "ledger", "allow_dataset_change")
"""Its other arguments."""


@dataclass(frozen=True)
class Setup:
    """What is known of a run with TRL.

    Args:
        file: The script or the file of settings.
        trainer: The trainer's class and the classes that it inherits, by name.
        settings: The arguments of `GRPOConfig` that are known, resolved.
        processes: Processes of the training.
        policy: The policy; None if it cannot be known without running the script.
        attached: Whether the script attaches a policy; if not, `policy` is the default.
        given: The arguments of `AdaptiveGRPOCallback` that are known, with the defaults of the others.
        rewards: The names of the reward functions; None if they are not known.
        data: The train dataset.
        tools, environments: Whether the trainer has them; None if that is not known.
        unread: What would have to be run to be known.
        refused: Errors that reading the file has already met.
    """

    file: str
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
    unread: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
