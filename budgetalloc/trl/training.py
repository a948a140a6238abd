"""The objects that the steps of one training share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from budgetalloc.beliefs.ids import Id
from budgetalloc.policies import Policy
from budgetalloc.policies.quotas import Quotas
from budgetalloc.training.costs import Costs
from budgetalloc.training.log_writer import LogWriter
from budgetalloc.training.options import Options
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.scoring import Scoring
from budgetalloc.training.unseen_prompts import UnseenPromptsWarning
from budgetalloc.trl.experimental.response_reuse import Reuse
from budgetalloc.trl.prefetch import Prefetch, PreparedStep
from budgetalloc.trl.trackers import Trackers

Rows = list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Training:
    """A training with a policy attached.

    Args:
        trainer: The `GRPOTrainer`.
        policy: Decides and learns.
        prompts: Names rows.
        pool: The distinct prompts of the dataset; empty if only the batch's prompts are candidates.
        pool_size: Number of distinct prompts of the dataset; 0 if its rows cannot be listed.
        options: How the policy is attached.
        scoring: Computes success from rewards.
        generate: The trainer's `_generate_and_score_completions` as it was when training began.
        quotas: Shares of the rollouts by domain, or None.
        costs: What rollouts cost.
        reuse: Puts stored responses into batches, or None.
        log_writers: Write each step to disk, in this process.
        trackers: Show the steps, or None.
        unseen_prompts: Warns of biased advantages.
        prefetch: Begins the next step while the trainer computes gradients, or None.
    """

    trainer: Any
    policy: Policy
    prompts: Prompts
    pool: Sequence[Id]
    pool_size: int
    options: Options
    scoring: Scoring
    generate: Callable[[Rows], dict[str, Any]]
    quotas: Quotas | None
    costs: Costs
    reuse: Reuse | None
    log_writers: Sequence[LogWriter]
    trackers: Trackers | None
    unseen_prompts: UnseenPromptsWarning
    prefetch: Prefetch[PreparedStep] | None
