"""The methods of TRL's trainer that the callback overrides."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import new_class
from typing import Any

from budgetalloc.trl.checkpoints import SavesBeliefs, newest_complete_or_error
from budgetalloc.trl.compatibility import attached
from budgetalloc.trl.patching import patched_attribute

logger = logging.getLogger(__name__)
SAVING = ("_save_checkpoint", "_load_optimizer_and_scheduler")


class AdaptiveMixin(SavesBeliefs):
    """A mixin of `GRPOTrainer` whose steps are decided by the `AdaptiveGRPOCallback` among its
    callbacks. It comes before the trainer's class among the bases.

    `AdaptiveGRPOCallback(trainer)` gives it to the trainer; without a callback it changes nothing.
    """

    _budgetalloc: Any = None  # the callback, while `train` runs and TRL does not generate
    _budgetalloc_score: Any = None  # what a round does with TRL's scoring

    def train(
        self,
        resume_from_checkpoint: Any = None,
        *more: Any,
        own: Any = None,
        **named: Any,
    ) -> Any:
        """Trains as TRL does, with the policy if there is a callback."""
        own = own or super().train
        callback = next((each for each in attached(self) if each.trainer is self), None)
        if callback is None:
            logger.warning(
                "The AdaptiveGRPOCallback of this trainer is not among its callbacks: TRL trains "
                "without it. Call trainer.add_callback(callback) before train()."
            )
        if callback is None or not callback._follow():
            return own(resume_from_checkpoint, *more, **named)
        if resume_from_checkpoint is True:
            resume_from_checkpoint = newest_complete_or_error(self.args.output_dir)
        with callback._deciding():
            return own(resume_from_checkpoint, *more, **named)

    def _generate_and_score_completions(self, inputs: Any, *, own: Any = None) -> Any:
        own = own or super()._generate_and_score_completions
        if self._budgetalloc is None or not self.model.training:
            return own(inputs)
        return self._budgetalloc._step(inputs, own)

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids: Any, *, own: Any = None
    ) -> Any:
        own = own or super()._calculate_rewards
        if self._budgetalloc_score is not None:
            own = partial(self._budgetalloc_score, own)
        # A function of other code, which `own` may be, may call this method again.
        with patched_attribute(self, "_budgetalloc_score", None):
            return own(inputs, prompts, completions, completion_ids)


def mix_in(trainer: Any, mixin: type, *names: str) -> None:
    """Puts a mixin before all classes of a trainer, whose class keeps its name.

    Functions of these names that other code has set on the trainer hide the methods of its class.
    The mixin's methods take their place, and call them.
    """
    if isinstance(trainer, mixin):
        return
    cls = type(trainer)
    same = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    trainer.__class__ = new_class(cls.__name__, (mixin, cls), {}, lambda body: body.update(same))
    for name in names:
        if name in vars(trainer):
            method = partial(getattr(mixin, name), trainer, own=vars(trainer)[name])
            setattr(trainer, name, method)


@contextmanager
def in_front(trainer: Any, name: str) -> Iterator[None]:
    """Inside the block, the mixin's method comes before all others of its name. A mixin alone is
    hidden by a function that other code has set on the trainer, and by a method of a subclass of
    `AdaptiveGRPOTrainer`; here it calls them."""
    found, method = getattr(trainer, name), getattr(AdaptiveMixin, name)
    if getattr(found, "__func__", None) is method:
        yield
        return
    with patched_attribute(trainer, name, partial(method, trainer, own=found)):
        yield
