"""The parts of a session that learn: what they show of a step, what they learn from it, and their
state."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.state import unchanged_on_error
from budgetalloc.policies import Policy, Step
from budgetalloc.policies.batch_advantages import sums_of
from budgetalloc.policies.quotas import Quotas
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.costs import Costs
from budgetalloc.training.domain_learning import learn_mixture
from budgetalloc.training.metrics import describe, of_advantages, of_lost
from budgetalloc.training.options import Options
from budgetalloc.training.scoring import Scoring
from budgetalloc.training.shadow import Shadow
from budgetalloc.training.success_measure import Measure

__all__ = ["Learned"]


@dataclass(frozen=True, eq=False)
class Learned:
    """The parts of a session that learn; `quotas` and `shadow` are None if the session has none."""

    policy: Policy
    scoring: Scoring
    costs: Costs
    quotas: Quotas | None
    shadow: Shadow | None

    @property
    def _parts(self) -> list[Any]:
        mixture = None if self.quotas is None else self.quotas.mixture
        return [part for part in (self.policy, self.costs, mixture) if part is not None]

    def metrics(
        self,
        batch: Rollouts,
        measure: Measure,
        advantages_R: FloatArray,
        options: Options,
        pool_size: int,
    ) -> dict[str, float]:
        """Metrics of a step before it is learned from; `pool_size` is 0 if the pool is not
        known."""
        met = min(1.0, len(self.policy.estimator) / pool_size) if pool_size else None
        metrics = describe(
            batch, measure, hints=options.hint is not None, pool_met=met, quotas=self.quotas
        )
        return (
            metrics
            | of_advantages(advantages_R)
            | self.scoring.look(batch)
            | self.costs.described(batch)
        )

    def learn(
        self, batch: Rollouts | None, measure: Measure, step: Step, options: Options, quiet: bool
    ) -> dict[str, float]:
        """Ends the policy's step and learns from its record, None if every rollout failed; returns
        metrics of it."""
        missing = step.missing()
        lost_R = step.belief_of(missing)
        lost = self.costs.lost(missing, lost_R)
        step.end()
        metrics: dict[str, float] = {}
        if batch is not None:
            self.costs.learn(batch, lost)
            metrics = of_lost(lost_R, batch.belief_R) | learn_mixture(
                self.quotas, options, batch, step, quiet
            )
            self.scoring.learn(
                measure, batch.rewards_R, batch.scores_RF, sums_of(batch), self.policy
            )
        return metrics if self.shadow is None else metrics | self.shadow.watch(batch, options)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What was learned, and the definition of success in JSON types."""
        state = {key: value for part in self._parts for key, value in part.state_dict().items()}
        about = {"scoring": self.scoring.state_dict()}
        return (state, about) if self.shadow is None else self.shadow.added_to(state, about)

    def restore(self, state: dict[str, Any], about: Mapping[str, Any]) -> None:
        """Restores `state()`. If it raises `StateError`, because it does not fit, nothing has
        changed."""
        with unchanged_on_error(*self._parts):
            for part in self._parts:
                part.load_state_dict(state)
            self.scoring.load_state_dict(about.get("scoring", {}), self.policy)
        if self.shadow is not None:
            self.shadow.restore(state, about)
