"""Builds TRL's batch to train on from the rounds of a step: the advantages of the true groups, and
the kept rows."""

from typing import Any

import numpy as np
import torch

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.contrib.tree_growth import tree_advantages
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.session import rows_to_train_on
from budgetalloc.trl.batch_merge import gather_rounds, merge_rounds, process_share, select_rows
from budgetalloc.trl.processes import from_rank_0
from budgetalloc.trl.training import Training

__all__ = ["batch_to_train_on", "put_advantages"]


def batch_to_train_on(
    training: Training, batch: Rollouts, sizes: list[int], outputs: list[dict[str, Any]], total: int
) -> tuple[dict[str, Any], FloatArray]:
    """TRL's batch of this process, and the advantages of all processes' rows.

    The batches have `total` rows in all, and are made of TRL's batches of the rounds, which have
    these sizes.
    """
    policy, options, reuse = training.session.policy, training.session.options, training.reuse
    trainer, accelerator = training.trainer, training.trainer.accelerator
    pad_token_id = trainer._tokenizer.pad_token_id
    # If rows are reordered, every process builds the whole batch and takes its share at the end.
    shared = accelerator.num_processes > 1 and (len(sizes) > 1 or len(batch) != total)
    output = (
        gather_rounds(outputs, sizes, accelerator, pad_token_id)
        if shared
        else merge_rounds(outputs, pad_token_id)
    )
    # Advantages are those of the rows trained on. Beliefs, metrics and ledger count fresh rollouts
    # only.
    swap = None if reuse is None else reuse.substitute(output, batch)
    trained_R = batch.rewards_R if swap is None else swap.rewards_R
    if "branch_ids" in output:
        _put_branch_advantages(training, batch, output)
    elif options.baseline is not None:
        advantages_R = options.advantages(batch, trained_R).values_R
        fresh_R = advantages_R.copy()
        if swap is not None:
            fresh_R[swap.rows] = 0.0  # these wrong responses are not trained on
        put_advantages(trainer, output, fresh_R)
        if reuse is not None and swap is not None:
            output = reuse.put_back(output, swap, advantages_R)
    kept_R = np.arange(len(batch))
    if policy.keep is not None and len(batch) > total:
        kept_R = from_rank_0(
            accelerator,
            lambda: rows_to_train_on(policy, batch, total, trained_R),
            np.ndarray.tolist,
            np.array,
            total,
        )
        output = select_rows(output, kept_R)
    if shared:
        output = process_share(output, accelerator.process_index, accelerator.num_processes)
    if reuse is not None:
        output = reuse.refill(output, batch, kept_R)
    if output["advantages"].dim() == 2:  # by branch, in one process
        everyones = _mean_over_tokens(output["advantages"], output["completion_mask"]).cpu()
    elif options.baseline is None or reuse is not None:
        everyones = accelerator.gather(output["advantages"]).cpu()
    else:  # every process computed them: an exchange would wait
        everyones = torch.as_tensor(advantages_R[kept_R], dtype=output["advantages"].dtype)
    return output, np.asarray(everyones.double().numpy())


def _put_branch_advantages(training: Training, batch: Rollouts, output: dict[str, Any]) -> None:
    """Replaces a number for each rollout by one for each token, which TRL's losses accept; its
    table gets the means."""
    branch_RT, weight_R = (
        output.pop("branch_ids").cpu().numpy(),
        output.pop("branch_weights").cpu().double().numpy(),
    )
    values_RT = tree_advantages(batch, training.session.options, branch_RT, weight_R)
    values = torch.as_tensor(
        values_RT, dtype=output["advantages"].dtype, device=output["advantages"].device
    )
    put_advantages(
        training.trainer, output, _mean_over_tokens(values, output["completion_mask"]).cpu().numpy()
    )
    output["advantages"] = values


def _mean_over_tokens(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (values * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def put_advantages(trainer: Any, output: dict[str, Any], advantages_R: FloatArray) -> None:
    """Writes advantages into TRL's batch, of this process or of all, and into TRL's table of
    completions."""
    old = output["advantages"]
    start = 0 if len(old) == len(advantages_R) else trainer.accelerator.process_index * len(old)
    mine = advantages_R[start : start + len(old)]
    output["advantages"] = torch.as_tensor(mine, dtype=old.dtype, device=old.device)
    table = trainer._logs["advantages"]  # its last rows are this batch's
    shown_R = advantages_R[-len(table) :].tolist()  # the table has at most as many rows as a batch
    for at, value in enumerate(shown_R, start=len(table) - len(shown_R)):
        table[at] = value
