"""One generation batch of TRL's trainer, in a straight line: decide, generate, one `Batch`, outputs, readers.

The policy learns at the very end (`Step.end`). If anything before it raises, policy and ledger are as before the step.
"""

import time
from typing import Any

from budgetalloc.errors import InputError
from budgetalloc.trl.batch import Batch, append
from budgetalloc.trl.decide import decide, open_step
from budgetalloc.trl.generate import generate
from budgetalloc.trl.metrics import describe, share_without_spread
from budgetalloc.trl.outputs import batch_to_train_on
from budgetalloc.trl.training import Rows, Training


def run_step(training: Training, inputs: Rows) -> dict[str, Any]:
    """TRL's batch to train on, in place of `_generate_and_score_completions`: as many rows as `inputs`."""
    trainer, options = training.trainer, training.options
    started, generating = time.perf_counter(), 0.0
    step, own_ids_R = open_step(training, inputs)
    rounds, outputs = [], []
    for ids_R, rows in decide(training, step, own_ids_R, inputs):
        generation_started = time.perf_counter()
        made, output = generate(training, ids_R, rows, step.hinted)
        generating += time.perf_counter() - generation_started
        step.observe(made.ids_R, options.to_unit(made.rewards_R), hinted=made.hinted)
        rounds.append(made)
        outputs.append(output)
    total, generated = len(inputs) * trainer.accelerator.num_processes, sum(len(each.ids_R) for each in rounds)
    if generated < total:
        raise InputError(
            f"{training.policy} asked for {generated} rollouts in one step, and the trainer trains on {total}: a "
            "decision may generate more, never fewer."
        )
    batch = Batch.of(rounds, training.policy, options.to_unit, trainer.state.global_step)
    output = batch_to_train_on(training, batch, rounds, outputs, total)
    metrics = describe(batch, hints=options.hint is not None)
    if training.ledger is not None:
        append(training.ledger, batch)
    step.end()
    if training.trackers is not None:
        training.trackers.add(batch)
    metrics["seconds"] = time.perf_counter() - started - generating
    log(training, batch, len(rounds), metrics)
    return output


def log(training: Training, batch: Batch, rounds: int, metrics: dict[str, float]) -> None:
    """Hands the step's metrics to the trainer's own log."""
    logged = training.trainer._metrics["train"]
    for key, value in metrics.items():
        logged[f"budgetalloc/{key}"].append(value)
    if not training.options.keep_batch:  # TRL took each row for a group
        logged["frac_reward_zero_std"][-rounds:] = [share_without_spread(batch)] * rounds
