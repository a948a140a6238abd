"""Runs one generation batch of TRL's trainer: decide, generate, record, build TRL's batch, learn
and log.

The policy learns last. If anything before it raises, policy and ledger are unchanged.
"""

import time
from typing import Any

from budgetalloc.errors import InputError
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.metrics import share_without_spread
from budgetalloc.trl.decision import decide
from budgetalloc.trl.generation import generate
from budgetalloc.trl.outputs import batch_to_train_on
from budgetalloc.trl.training import Rows, Training

__all__ = ["log", "run_step"]


def run_step(training: Training, inputs: Rows) -> tuple[dict[str, Any], Rollouts]:
    """TRL's batch to train on, with as many rows as `inputs`, and the record of the step."""
    trainer, session = training.trainer, training.session
    started, generating = time.perf_counter(), 0.0
    session.follow(trainer.reward_func_names, trainer.reward_weights.tolist())
    outputs: list[dict[str, Any]] = []
    sizes: list[int] = []  # of the rounds
    total = len(inputs) * trainer.accelerator.num_processes
    for ids_R, rows in decide(training, inputs):
        generation_started = time.perf_counter()
        made, output = generate(training, ids_R, rows)
        generating += time.perf_counter() - generation_started
        session.observe(ids_R, **made._asdict())
        outputs.append(output)
        sizes.append(len(ids_R))
    if (generated := sum(sizes)) < total:
        raise InputError(
            f"{session.policy} requested {generated} rollouts in one step, and the trainer trains "
            f"on {total}: request "
            f"at least {total}."
        )
    batch = session.record(trainer.state.global_step)
    output, everyones_R = batch_to_train_on(training, batch, sizes, outputs, total)
    metrics = session.end(everyones_R).metrics
    metrics["seconds"] = time.perf_counter() - started - generating
    log(training, batch, len(outputs), metrics)
    return output, batch


def log(training: Training, batch: Rollouts, rounds: int, metrics: dict[str, float]) -> None:
    """Writes the step's metrics to the trainer's own log.

    TRL's `frac_reward_zero_std` is correct if its rows are unchanged. Otherwise TRL treated each
    row as a group: its entry is removed, and the share by the true groups is logged as
    `budgetalloc/frac_reward_zero_std`.
    """
    logged = training.trainer._metrics["train"]
    if not training.session.options.keep_batch:
        del logged["frac_reward_zero_std"][-rounds:]
        if not logged["frac_reward_zero_std"]:  # TRL divides by the number of entries
            del logged["frac_reward_zero_std"]
        if batch.counts_G.max() > 1:
            metrics = metrics | {"frac_reward_zero_std": share_without_spread(batch)}
    for key, value in metrics.items():
        logged[f"budgetalloc/{key}"].append(value)
