"""One generation batch of TRL's trainer, step by step: decide, generate, build one `Batch`, outputs, readers.

The policy learns at the very end (`Step.end`). If anything before it raises, policy and ledger are as before the step.
"""

import time
from typing import Any

from budgetalloc.errors import InputError
from budgetalloc.training.batch import Batch
from budgetalloc.training.metrics import share_without_spread
from budgetalloc.training.step_end import end_step
from budgetalloc.training.success_measure import Measure
from budgetalloc.trl.decision import decide, prefetch_next_step, take_or_begin_step
from budgetalloc.trl.generation import generate
from budgetalloc.trl.outputs import batch_to_train_on, everyones_advantages
from budgetalloc.trl.training import Rows, Training


def run_step(training: Training, inputs: Rows) -> tuple[dict[str, Any], Batch]:
    """TRL's batch to train on, in place of `_generate_and_score_completions`: as many rows as `inputs`; and the record
    of the step."""
    trainer, options, scoring = training.trainer, training.options, training.scoring
    started, generating = time.perf_counter(), 0.0
    training.costs.begin()
    prepared = take_or_begin_step(training, inputs)
    step = prepared.step
    rounds, outputs = [], []
    measure: Measure | None = None
    for ids_R, rows in decide(training, prepared, inputs):
        generation_started = time.perf_counter()
        made, output = generate(training, ids_R, rows, step.hinted)
        generating += time.perf_counter() - generation_started
        measure = measure or scoring.measure(made.rewards_R, made.scores_RF)
        scored = made.with_success(measure.success(made.rewards_R, made.scores_RF))
        step.observe(scored.ids_R, scored.rewards_R, scored.success_R, hinted=scored.hinted)
        rounds.append(scored)
        outputs.append(output)
    total, generated = len(inputs) * trainer.accelerator.num_processes, sum(len(each.ids_R) for each in rounds)
    if measure is None or generated < total:
        raise InputError(
            f"{training.policy} requested {generated} rollouts in one step, and the trainer trains on {total}: request "
            f"at least {total}."
        )
    batch = Batch.of(rounds, step, measure, scoring.sums, trainer.state.global_step)
    output = batch_to_train_on(training, batch, rounds, outputs, total)
    advantages_R = everyones_advantages(trainer, output)
    metrics = end_step(
        training.policy,
        step.end,
        batch,
        advantages_R,
        scoring,
        log_writers=training.log_writers,
        hints=options.hint is not None,
        pool_size=training.pool_size,
        quotas=training.quotas,
        costs=training.costs,
    )
    if training.trackers is not None:
        training.trackers.add(batch)
    if trainer.accelerator.is_main_process and options.bounds.candidates == 1 and not options.keep_batch:
        training.unseen_prompts.check_step(step.cold_P)
    metrics["seconds"] = time.perf_counter() - started - generating
    log(training, batch, len(rounds), metrics)
    prefetch_next_step(training, len(inputs))
    return output, batch


def log(training: Training, batch: Batch, rounds: int, metrics: dict[str, float]) -> None:
    """Writes the step's metrics to the trainer's own log.

    TRL's `frac_reward_zero_std` is correct if its rows are unchanged. Otherwise TRL treated each row as a group: its
    entry is removed, and the share by the true groups is logged as `budgetalloc/frac_reward_zero_std`.
    """
    logged = training.trainer._metrics["train"]
    if not training.options.keep_batch:
        del logged["frac_reward_zero_std"][-rounds:]
        if not logged["frac_reward_zero_std"]:  # TRL divides by the number of entries
            del logged["frac_reward_zero_std"]
        if batch.counts_G.max() > 1:
            metrics = metrics | {"frac_reward_zero_std": share_without_spread(batch)}
    for key, value in metrics.items():
        logged[f"budgetalloc/{key}"].append(value)
