"""The objects that the steps of one training share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from budgetalloc.training.prompts import Prompts
from budgetalloc.training.session import Session
from budgetalloc.training.unseen_prompts import UnseenPromptsWarning
from budgetalloc.trl.experimental.response_reuse import Reuse
from budgetalloc.trl.prefetch import Prefetch, PreparedStep
from budgetalloc.trl.trackers import Trackers

Rows = list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Training:
    """A training with a policy attached.

    Args:
        trainer: The `GRPOTrainer`.
        session: Runs the policy through the steps.
        prompts: Names rows.
        generate: The trainer's `_generate_and_score_completions` as it was when training began.
        reuse: Puts stored responses into batches, or None.
        trackers: Show the steps, or None.
        watch: Warns of biased advantages.
        ahead: Begins the next step while the trainer computes gradients, or None.
    """

    trainer: Any
    session: Session
    prompts: Prompts
    generate: Callable[[Rows], dict[str, Any]]
    reuse: Reuse | None
    trackers: Trackers | None
    watch: UnseenPromptsWarning
    ahead: Prefetch[PreparedStep] | None
