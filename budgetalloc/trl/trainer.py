"""TRL's `GRPOTrainer` with a policy, as a class."""

from inspect import signature
from typing import Any

from trl import GRPOTrainer

from budgetalloc.errors import check_known
from budgetalloc.training.options import Options
from budgetalloc.trl.callback import OTHERS, AdaptiveGRPOCallback
from budgetalloc.trl.mixin import AdaptiveMixin


class AdaptiveGRPOTrainer(AdaptiveMixin, GRPOTrainer):  # type: ignore[misc]
    """A `trl.GRPOTrainer` whose steps are decided by an allocation policy.

    `AdaptiveGRPOTrainer(model, reward_funcs, ..., policy="adaptive", floor=2)` is
    `GRPOTrainer(model, reward_funcs, ...)` with
    `trainer.add_callback(AdaptiveGRPOCallback(trainer, "adaptive", floor=2))`. For a trainer of
    another class, add the callback.

    Args:
        given: The arguments of `GRPOTrainer`, in its order.
        named: Its arguments by name, and those of `AdaptiveGRPOCallback`, such as `policy`,
            `ledger` or the fields of `budgetalloc.Options`.

    Raises:
        InputError: an argument that neither has; else as `AdaptiveGRPOCallback`.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        known = (*Options.names(trl=True), *OTHERS)
        for name in named:
            check_known(name, (*known, *signature(super().__init__).parameters), f"{name}=")
        own = {name: named.pop(name) for name in known if name in named}
        super().__init__(*given, **named)
        self.add_callback(AdaptiveGRPOCallback(self, **own))
