"""The settings of the user and the needs of the policy, resolved and checked once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import check_range, check_success
from budgetalloc.errors import InputError
from budgetalloc.policies import Needs, Policy, Step
from budgetalloc.policies.advantages import EPS, Baseline, Scale, Weight, batch_advantages, posterior_mean
from budgetalloc.policies.bounds import Bounds
from budgetalloc.policies.decision import CostOf
from budgetalloc.policies.quotas import Quotas, Shares, check_domain_and_shares
from budgetalloc.training.batch import Batch
from budgetalloc.training.costs import Cost, check_cost
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.scoring import Scoring
from budgetalloc.training.success import Success

PLAIN = (
    *("candidates", "floor", "cap", "min_group", "quantum"),
    *("baseline", "scale", "weight", "success", "reward_range"),
)
"""The arguments that need nothing of the trainer but its rewards."""


@dataclass(frozen=True)
class Options:
    """How a policy is attached to a trainer: the arguments of `AdaptiveGRPOCallback`, resolved.

    Args:
        bounds: The candidates and the sizes of their groups.
        baseline: None if TRL's own advantages are kept.
        scale, weight: As in `budgetalloc.group_advantages`.
        success: The user's rule that computes success from rewards.
        reward_range: Lowest and highest total reward; None learns them.
        keep_batch: Whether the rows of TRL's batch stay as they are.
        generate: Rollouts that a step may generate per rollout that it trains on.
        hint: From a dataset row to the row with a hint, or None.
        buffer: Responses of earlier steps, of a type that the trainer's adapter serves, or None.
        domain: The dataset column of the domains, or None.
        quotas: The lowest and highest share of the rollouts of each domain, or None.
        cost: What rollouts cost, or None where they are alike.
    """

    bounds: Bounds
    baseline: Baseline | None
    scale: Scale
    weight: Weight
    success: Success
    reward_range: tuple[float, float] | None
    keep_batch: bool
    generate: int
    hint: Callable[[dict[str, Any]], dict[str, Any]] | None
    buffer: Any
    domain: str | None
    quotas: Shares | None
    cost: Cost

    @classmethod
    def resolve(cls, needs: Needs, trainer_scale: Any, given: dict[str, Any]) -> "Options":
        """The options as given, with the policy's needs as defaults.

        Args:
            needs: Needs of the policy.
            trainer_scale: The trainer's own scale of advantages, used if neither specifies one.
            given: Arguments of `AdaptiveGRPOCallback` by name; None is as if it were left out.

        Raises:
            InputError: a value out of range.
        """
        given = {name: value for name, value in given.items() if value is not None}
        sizes = ("candidates", "floor", "cap", "min_group", "quantum")
        bounds = Bounds.resolve(needs, **{name: given[name] for name in sizes if name in given})
        keep_batch = needs.keep_batch and bounds.candidates == 1
        scale, weight = _first(given.get("scale"), needs.scale, trainer_scale), given.get("weight", needs.weight)
        # A buffer selects rows without signal, for which TRL's float32 advantages may not be exactly 0.
        keep_advantages = keep_batch and "buffer" not in given and (scale, weight) == (trainer_scale, "rollout")
        options = cls(
            bounds=bounds,
            baseline=_first(given.get("baseline"), needs.baseline, None if keep_advantages else "group"),
            scale=scale,
            weight=weight,
            success=given.get("success"),
            reward_range=check_range(given["reward_range"]) if "reward_range" in given else None,
            keep_batch=keep_batch,
            generate=needs.generate,
            hint=given.get("hint"),
            buffer=given.get("buffer"),
            domain=given.get("domain"),
            quotas=check_domain_and_shares(given.get("domain"), given.get("quotas")),
            cost=given.get("cost"),
        )
        for name, allowed in (("baseline", Baseline), ("scale", Scale), ("weight", Weight)):
            value = getattr(options, name)
            if value not in get_args(allowed) and not (name == "baseline" and value is None):
                raise InputError(f"{name}={value!r}: use one of {get_args(allowed)}.")
        check_success(options.success)
        check_cost(options.cost)
        if options.buffer is not None and options.scale == "whiten_tokens":
            raise InputError(
                "buffer= with scale='whiten_tokens': the tokens of stored responses are not counted. Use 'whiten'."
            )
        if options.baseline == "policy" and needs.baseline != "policy":
            raise InputError("baseline='policy': this policy has no rule of its own. Use 'posterior', or 'group'.")
        if options.hint is not None and options.baseline in ("posterior", "policy"):
            raise InputError(
                f"hint= with baseline={options.baseline!r}: a belief is about the prompt without a hint. Use "
                "baseline='loo'."
            )
        return options

    def scoring(self, names: Sequence[str], weights: Sequence[float], quiet: bool) -> Scoring:
        """The scoring of these reward functions; a policy that decides nothing needs no range."""
        return Scoring(names, weights, self.success, None if self.keep_batch else self.reward_range, quiet)

    def quotas_of(self, prompts: Prompts, policy: Policy, rollouts: int, group: int) -> Quotas | None:
        """The quotas of these prompts, which this policy can keep; None if there are none."""
        if self.quotas is None or self.domain is None:
            return None
        quotas = Quotas(self.quotas, prompts.domains(self.domain))
        quotas.check(policy, self.bounds, rollouts, group)
        return quotas

    def begin(
        self,
        policy: Policy,
        quotas: Quotas | None,
        own_ids: Sequence[Id],
        pool: Sequence[Id],
        rollouts: int,
        group: int,
        costs: CostOf | None = None,
    ) -> Step:
        """The policy's next step, among its candidates: prompts of the loader's batch, with others of the dataset, or
        the whole dataset.

        Args:
            policy: Decides.
            quotas: Shares of the rollouts by domain, if there are any.
            own_ids: The prompt of each row of the loader's batch; unused if the whole dataset is on offer.
            pool: The distinct prompts of the dataset; empty with `candidates=1`.
            rollouts: Rollouts that the step trains on.
            group: Rollouts per prompt of the trainer without a policy.
            costs: As in `Policy.begin`.
        """
        batch_P = [] if self.bounds.candidates == "all" else factorize(own_ids)[0]
        rollouts *= self.generate
        if quotas is not None:
            return quotas.begin(policy, self.bounds, batch_P, rollouts, group, costs)
        ids_P = self.bounds.offer(batch_P, pool, policy.seed, policy.estimator.step)
        return policy.begin(ids_P, self.bounds.budget(rollouts, len(ids_P), group), costs)

    def advantages(self, batch: Batch, rewards_R: FloatArray | None = None) -> FloatArray:
        """Advantages of a batch in units of the total reward, shape (R,); 0 where all rewards of the batch are equal.

        The posterior baseline is the expected reward of the rollout, given the belief about its prompt's success; that
        of the policy's own rule likewise, given the success that it expects.

        Args:
            batch: The batch with the groups and beliefs.
            rewards_R: Total rewards that replace the batch's own, if stored correct responses were substituted.
        """
        success_R = batch.success_R
        if rewards_R is None:
            rewards_R = batch.rewards_R
        else:
            success_R = np.where(np.isnan(rewards_R) | (rewards_R == batch.rewards_R), success_R, 1.0)
        baseline = self.baseline or "group"
        if baseline not in ("posterior", "policy"):
            return batch_advantages(
                rewards_R, batch.ids_R, baseline, self.scale, self.weight, lengths_R=batch.lengths_R
            )
        if baseline == "policy" and batch.expected_R is not None:
            mean_R = batch.expected_R
        else:
            mean_R = posterior_mean(success_R, batch.group_R, batch.baseline_R)
        expected_R, deviation_R = batch.expected(mean_R)
        scale = "none" if self.scale == "group" else self.scale
        advantages_R = batch_advantages(
            rewards_R, batch.ids_R, expected_R, scale, self.weight, lengths_R=batch.lengths_R
        )
        if self.scale != "group":
            return advantages_R
        return np.where(np.isnan(deviation_R), 0.0, advantages_R / (deviation_R + EPS))  # NaN: a row not trained on

    def baselines(self, batch: Batch) -> FloatArray:
        """What each reward is compared with before scaling and weighting, in units of the total reward, shape (R,); NaN
        for rows that are not trained on."""
        baseline_R = batch.rewards_R - replace(self, scale="none", weight="rollout").advantages(batch)
        if self.baseline == "policy" and batch.expected_R is not None:
            baseline_R[np.isnan(batch.expected_R)] = np.nan
        return baseline_R


def _first(*values: Any) -> Any:
    """The first that is not None."""
    return next((value for value in values if value is not None), None)
