"""Reads a settings file of budgetalloc, as integrations/trl/train.py runs it, into a `Setup`."""

from budgetalloc.cli.config import Config
from budgetalloc.cli.doctor import grpo_config
from budgetalloc.cli.doctor.data import Data, named
from budgetalloc.cli.doctor.setup import ARGUMENTS, Diagnosis, Setup

__all__ = ["of_config"]


def of_config(config: Config, processes: int) -> Setup:
    """What a settings file says about a run with TRL."""
    diagnosis = Diagnosis(config.source.file, unread=["the reward functions: your training script has them"])
    if not config.grpo:
        diagnosis.unread.append("GRPOConfig: the file has no section grpo")
    settings, mistakes = grpo_config.resolved(config.grpo, processes) if config.grpo else ({}, [])
    diagnosis.refused += [str(config.source.error(mistake, "grpo")) for mistake in mistakes]
    arguments = dict(ARGUMENTS)
    with diagnosis.collecting():
        known = config.callback_arguments(settings.get("generation_batch_size"))
        arguments |= {name: value for name, value in known.items() if name in arguments}
    data = Data("the file names none") if config.dataset is None else named(config.dataset)
    policy = config.policy.build()  # without pacing, which callback_arguments() refuses
    return Setup(diagnosis, ["GRPOTrainer"], settings, processes, policy, True, arguments, None, data)
