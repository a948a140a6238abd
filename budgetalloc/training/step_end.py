"""The end of a step, in the same order for every trainer."""

from collections.abc import Callable, Iterable

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.policies import Policy
from budgetalloc.policies.quotas import Quotas
from budgetalloc.training.batch import Batch
from budgetalloc.training.costs import Costs
from budgetalloc.training.metrics import describe, of_advantages
from budgetalloc.training.scoring import Scoring


def end_step(
    policy: Policy,
    learn: Callable[[], None],
    batch: Batch,
    advantages_R: FloatArray,
    scoring: Scoring,
    *,
    log_writers: Iterable[Callable[[Batch], None]] = (),
    hints: bool = False,
    pool_size: int = 0,
    quotas: Quotas | None = None,
    costs: Costs | None = None,
) -> dict[str, float]:
    """Writes the step down, ends it, and returns its metrics.

    The policy and the scoring learn last: if anything before raises, both are as before the step.

    Args:
        policy: The policy that decided.
        learn: Lets it learn from the step: `Step.end` of the step whose rollouts were observed.
        batch: Its record.
        advantages_R: The advantages that are trained on.
        scoring: Computed success from rewards.
        log_writers: Write the step to disk.
        hints: Whether to count the rollouts with a hint.
        pool_size: Prompts of the dataset; 0 if unknown.
        quotas: Shares of the rollouts by domain, if there are any.
        costs: What rollouts cost, if it is learned.
    """
    share_seen = min(1.0, len(policy.estimator) / pool_size) if pool_size else None
    metrics = describe(batch, hints=hints, pool_met=share_seen, quotas=quotas) | of_advantages(advantages_R)
    if scoring.rails is not None:
        metrics |= scoring.rails.look(batch.rollouts())
    if costs is not None:
        metrics |= costs.described(batch)
    for write in log_writers:
        write(batch)
    learn()
    if costs is not None:
        costs.learn(batch)
    scoring.learn(batch.measure, batch.rewards_R, batch.scores_RF, batch.sums(), policy)
    return metrics
