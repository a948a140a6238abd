"""A file of settings of budgetalloc as a `Setup`: the run of integrations/trl/train.py."""

from typing import Any

from budgetalloc.cli.config import Config
from budgetalloc.cli.doctor import grpo
from budgetalloc.cli.doctor.data import Data, named
from budgetalloc.cli.doctor.setup import ARGUMENTS, Setup
from budgetalloc.errors import BudgetallocError, InputError


def of_config(config: Config, processes: int) -> Setup:
    """What a file of settings says about a run with TRL."""
    unread, refused = ["the reward functions: your training script has them"], list[str]()
    settings: dict[str, Any] = {}
    if not config.grpo:
        unread.append("GRPOConfig: the file has no section grpo")
    try:
        settings = grpo.resolved(config.grpo, processes) if config.grpo else {}
    except InputError as error:
        refused.append(str(config.source.error(error, "grpo")))
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
