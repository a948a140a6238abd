"""The shadow of a training with TRL: a second policy that watches, with the arguments of the
callback."""

from collections.abc import Mapping
from typing import Any

from budgetalloc.errors import BudgetallocError, UnsupportedError
from budgetalloc.training.policy_like import PolicyLike
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.session import Session
from budgetalloc.training.shadow import Shadow, options_to_watch, policy_to_watch
from budgetalloc.trl.checks import check_budget, check_compatible

__all__ = ["shadow_of"]


def shadow_of(
    shadow: PolicyLike | None,
    trainer: Any,
    run: Session,
    prompts: Prompts,
    given: Mapping[str, Any],
) -> Shadow | None:
    """The shadow, or None.

    Args:
        shadow: The policy that watches.
        trainer: The `GRPOTrainer`.
        run: The session of the policy that decides. Its features are also the shadow's.
        prompts: The dataset's prompts.
        given: The arguments of `AdaptiveGRPOCallback`.

    Raises:
        UnsupportedError, InputError, BudgetError: the policy could not be attached to this trainer.
    """
    if shadow is None:
        return None
    policy = policy_to_watch(shadow, run.policy)
    options = options_to_watch(policy, trainer.scale_rewards, given)
    try:
        unobserved = check_compatible(trainer, policy, options, prompts) or prompts.unnamed_row()
        if unobserved is not None:
            raise UnsupportedError(str(unobserved))
        check_budget(options, prompts, trainer.args.generation_batch_size, trainer.num_generations)
        session = Session(
            policy, run.scoring.names, run.scoring.weights, resolved=options, quiet=True
        )
        watching = Shadow(session, quiet=not trainer.accelerator.is_main_process)
        watching.adopt(
            run.policy, prompts, trainer.args.generation_batch_size, trainer.num_generations
        )
    except BudgetallocError as error:
        raise type(error)(
            f"shadow={policy}, as if it were attached: {error}", argument="shadow"
        ) from error
    return watching
