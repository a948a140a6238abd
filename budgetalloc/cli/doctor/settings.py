"""A file of settings of budgetalloc as a `Setup`: the run of integrations/trl/train.py."""

from typing import Any

from budgetalloc.cli.config import Config
from budgetalloc.cli.doctor import grpo
from budgetalloc.cli.doctor.data import Data, named
from budgetalloc.cli.doctor.literals import UNKNOWN
from budgetalloc.cli.doctor.setup import ARGUMENTS, Setup
from budgetalloc.errors import BudgetallocError, InputError


def of_config(config: Config, processes: int) -> Setup:
    """What a file of settings says about a run with TRL."""
    unread, refused = ["the reward functions: your training script has them"], list[str]()
    given: dict[str | None, Any] = {str(name): value for name, value in config.grpo.items()}
    if not given:
        given[None] = UNKNOWN
        unread.append("GRPOConfig: the file has no section grpo")
    try:
        settings = grpo.resolved(given, processes)
    except InputError as error:
        refused.append(str(config.source.error(error, "grpo")))
        settings = {}
    arguments = dict(ARGUMENTS)
    try:
        known = config.callback_arguments(settings.get("generation_batch_size"))
        arguments |= {name: value for name, value in known.items() if name in arguments}
    except BudgetallocError as error:
        refused.append(str(error))
    data = Data("the file names none") if config.dataset is None else named(config.dataset)
    return Setup(
        config.source.file,
        ["GRPOTrainer"],
        settings,
        processes,
        config.policy.build(),  # without a plan, which is refused above
        True,
        arguments,
        None,
        data,
        unread=unread,
        refused=refused,
    )
