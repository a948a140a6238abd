"""The state that the steps of one training share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from budgetalloc.contrib.stored_responses import Reuse
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.session import Session

__all__ = ["Rows", "Training"]

Rows = list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Training:
    """A training with a policy attached."""

    trainer: Any
    session: Session
    prompts: Prompts
    # TRL's `_generate_and_score_completions` when training began
    generate: Callable[[Rows], dict[str, Any]]
    reuse: Reuse | None
