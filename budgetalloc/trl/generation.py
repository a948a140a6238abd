"""One round of TRL's own generation and scoring."""

from typing import Any, NamedTuple

import numpy as np
import torch

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.contrib.trees import Trees
from budgetalloc.trl.batch_merge import drop_fillers
from budgetalloc.trl.patching import patched_attribute
from budgetalloc.trl.processes import gather, rows_of_process
from budgetalloc.trl.reports import reports
from budgetalloc.trl.training import Rows, Training

__all__ = ["GROUP", "Scored", "generate", "total_rewards"]

GROUP = "budgetalloc_group"  # the column that gives reward functions the prompt's id


class Scored(NamedTuple):
    """The rollouts of one round, of all processes and without fillers, as `Session.observe` takes
    them."""

    scores_RF: FloatArray
    lengths_R: IntArray
    rewards_R: FloatArray
    prompt_lengths_R: IntArray | None
    costs_R: dict[str, list[Any]] | None


def generate(training: Training, ids_R: list[Id], rows: Rows) -> tuple[Scored, dict[str, Any]]:
    """One round of TRL's own generation and scoring: the rollouts of all processes, and TRL's batch
    of this process.

    TRL's mean lengths include the fillers; all reward statistics exclude them.
    """
    trainer, options, wanted = training.trainer, training.session.options, len(ids_R)
    if training.session.step.hinted and options.hint is not None:
        rows = [options.hint(row) for row in rows]
    mine_R = rows_of_process(
        ids_R, trainer.accelerator.process_index, trainer.accelerator.num_processes
    )
    scored: list[tuple[torch.Tensor, IntArray, list[list[Any]]]] = []
    names = training.session.reports
    score = trainer._calculate_rewards

    def score_and_keep(
        inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> torch.Tensor:
        # Added only here: an environment's reset() gets the columns of its row, and may not accept
        # this one.
        grouped = [{GROUP: name, **row} for name, row in zip(mine_R, inputs, strict=True)]
        rewards: torch.Tensor = score(grouped, prompts, completions, completion_ids_list)
        lengths = torch.tensor([len(ids) for ids in completion_ids_list], device=rewards.device)
        lengths_R = trainer.accelerator.gather(lengths)[:wanted].cpu().numpy()
        # TRL gathered the rewards already, in the same order.
        reported = (
            gather(trainer.accelerator, reports(trainer, names, grouped, completions))[:wanted]
            if names
            else []
        )
        scored.append((rewards[:wanted], lengths_R, reported))
        rewards = rewards.clone()
        rewards[wanted:] = torch.nan  # TRL treats a filler like a rollout without scores
        return rewards

    # TRL's vLLM server treats every num_generations-th row as a prompt, and TRL folds rewards into
    # groups of that size. With chosen rows each row is therefore a group of one; the advantages are
    # replaced afterwards.
    size = trainer.num_generations if options.keep_batch else 1
    one_row_groups = patched_attribute(trainer, "num_generations", size)
    trees = trainer.rollout_func if isinstance(trainer.rollout_func, Trees) else None
    if trees is not None:
        trees.begin(mine_R)
    with patched_attribute(trainer, "_calculate_rewards", score_and_keep), one_row_groups:
        output = training.generate(rows)
    if trees is not None:
        output |= trees.branches(output["completion_ids"].size(1))
    if not scored:
        raise RuntimeError(
            "TRL did not call _calculate_rewards, so budgetalloc has no rewards of this step."
        )
    drop_fillers(trainer._logs, len(rows) * trainer.accelerator.num_processes - wanted)
    rewards_per_func, lengths_R, reported = scored[-1]
    prompt_lengths_R = None
    if training.session.prompt_lengths:
        prompt_lengths = trainer.accelerator.gather(output["prompt_mask"].sum(dim=1))
        prompt_lengths_R = prompt_lengths[:wanted].cpu().numpy()
    scores_RF = rewards_per_func.cpu().double().numpy()
    costs_R = (
        {name: [row[at] for row in reported] for at, name in enumerate(names)} if names else None
    )
    rewards_R = total_rewards(trainer, rewards_per_func)
    return Scored(scores_RF, lengths_R, rewards_R, prompt_lengths_R, costs_R), output


def total_rewards(trainer: Any, rewards_per_func: torch.Tensor) -> FloatArray:
    """TRL's weighted sum; NaN where no reward function scored the rollout."""
    weights = trainer.reward_weights.to(rewards_per_func.device)
    rewards_R = (rewards_per_func * weights).nansum(dim=1)
    rewards_R[torch.isnan(rewards_per_func).all(dim=1)] = torch.nan
    return np.asarray(rewards_R.cpu().double().numpy())  # on the CPU first: MPS has no float64
