"""Attaches an allocation policy to TRL's `GRPOTrainer` or `AsyncGRPOTrainer`.

torch and trl are imported at the first use of a name, because the rules of `compatibility` need
neither.
"""

import importlib
from typing import TYPE_CHECKING, Any

from budgetalloc.errors import import_optional as _imported

if TYPE_CHECKING:
    from budgetalloc.contrib.rollout_worker import AdaptiveRolloutWorker
    from budgetalloc.trl.callback import AdaptiveGRPOCallback
    from budgetalloc.trl.checkpoints import last_checkpoint
    from budgetalloc.trl.trainer import AdaptiveGRPOTrainer

__all__ = [
    "AdaptiveGRPOCallback",
    "AdaptiveGRPOTrainer",
    "AdaptiveRolloutWorker",
    "last_checkpoint",
]

_LATER = {
    "AdaptiveGRPOCallback": "budgetalloc.trl.callback",
    "AdaptiveGRPOTrainer": "budgetalloc.trl.trainer",
    "last_checkpoint": "budgetalloc.trl.checkpoints",
    "AdaptiveRolloutWorker": "budgetalloc.contrib.rollout_worker",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'budgetalloc.trl' has no attribute {name!r}")
    for library in ("torch", "transformers", "trl"):
        _imported(library, f"budgetalloc.trl.{name}", "trl")
    return getattr(importlib.import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
