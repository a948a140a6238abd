"""The settings of the user and the needs of the policy, resolved and checked once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import check_range, check_success
from budgetalloc.errors import InputError, check_choice, check_flag
from budgetalloc.policies import Needs, Policy, Step
from budgetalloc.policies.advantages import Baseline, Scale, Weight
from budgetalloc.policies.batch_advantages import Advantages, batch_advantages
from budgetalloc.policies.bounds import Bounds
from budgetalloc.policies.decision import CostOf, Decide
from budgetalloc.policies.quotas import Quotas, Shares, check_domain_and_shares
from budgetalloc.training.batch import Batch
from budgetalloc.training.costs import Cost, check_cost
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.rails import Rails
from budgetalloc.training.scoring import Scoring
from budgetalloc.training.success import Success

PLAIN = (
    *("candidates", "floor", "cap", "min_group", "quantum"),
    *("baseline", "scale", "weight", "success", "reward_range", "fallback"),
)
"""The arguments that need nothing of the trainer but its rewards."""

DEFAULT_SCALE = "group"
"""The scale of advantages of TRL and verl where the user chooses none."""


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
        fallback: Whether groups are uniform while beliefs or advantages are out of bounds (`rails`).
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
    fallback: bool

    @classmethod
    def resolve(cls, needs: Needs, trainer_scale: Any, given: dict[str, Any]) -> "Options":
        """The options as given, with the policy's needs as defaults.

        Args:
            needs: Needs of the policy.
            trainer_scale: The trainer's own scale of advantages. "group" is the default of trainers: the policy's need
                takes its place. Any other scale was chosen by the user and holds, unless `given` has one.
            given: Arguments of `AdaptiveGRPOCallback` by name; None is as if it were left out.

        Raises:
            InputError: a value out of range.
        """
        given = {name: value for name, value in given.items() if value is not None}
        sizes = ("candidates", "floor", "cap", "min_group", "quantum")
        bounds = Bounds.resolve(needs, **{name: given[name] for name in sizes if name in given})
        keep_batch = needs.keep_batch and bounds.candidates == 1
        for name, allowed in (("baseline", Baseline), ("scale", Scale), ("weight", Weight)):
            if name in given:
                check_choice(name, given[name], get_args(allowed))
        chosen = trainer_scale if trainer_scale != DEFAULT_SCALE else needs.scale or trainer_scale
        scale, weight = given.get("scale", chosen), given.get("weight", needs.weight)
        # A buffer selects rows without signal, for which TRL's float32 advantages may not be exactly 0.
        keep_advantages = keep_batch and "buffer" not in given and (scale, weight) == (trainer_scale, "rollout")
        options = cls(
            bounds=bounds,
            baseline=given.get("baseline", needs.baseline or (None if keep_advantages else "group")),
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
            fallback=check_flag("fallback", given.get("fallback", True)),
        )
        check_choice("scale", options.scale, get_args(Scale))
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

    @property
    def of_groups(self) -> bool:
        """Whether the advantages are those of groups, so that a trainer with GRPO's advantages can keep its own."""
        return self.baseline in (None, "group")

    def scoring(self, names: Sequence[str], weights: Sequence[float], quiet: bool) -> Scoring:
        """The scoring of these reward functions; a policy that decides nothing needs no range, and one whose advantages
        do not follow from beliefs no rails."""
        rails = Rails(self.fallback, quiet) if self.baseline == "posterior" else None
        return Scoring(names, weights, self.success, None if self.keep_batch else self.reward_range, quiet, rails)

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
        decide: Decide | None = None,
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
            decide: The rule that decides in place of the policy's own.
        """
        batch_P = [] if self.bounds.candidates == "all" else factorize(own_ids)[0]
        rollouts *= self.generate if decide is None else 1
        if quotas is not None:
            return quotas.begin(policy, self.bounds, batch_P, rollouts, group, costs, decide)
        ids_P = self.bounds.offer(batch_P, pool, policy.seed, policy.estimator.step)
        return policy.begin(ids_P, self.bounds.budget(rollouts, len(ids_P), group), costs, decide=decide)

    def advantages(self, batch: Batch, rewards_R: FloatArray | None = None) -> Advantages:
        """The advantages of a batch by the baseline, the scale and the weight asked for.

        Args:
            batch: The batch with the groups and beliefs.
            rewards_R: Total rewards that replace the batch's own, if stored correct responses were substituted.
        """
        baseline = "group" if batch.uniform else self.baseline or "group"
        return batch_advantages(batch.rollouts(rewards_R), baseline, self.scale, self.weight)


def other_scale(policy: Policy, options: Options) -> str | None:
    """What to tell a user whose scale of advantages is not the one that the policy was measured with, if it is not.

    >>> import budgetalloc as ba
    >>> policy = ba.adaptive()
    >>> other_scale(policy, Options.resolve(policy.needs, "group", {})) is None
    True
    >>> print(other_scale(policy, Options.resolve(policy.needs, "none", {})))
    Advantages have scale='none', as the trainer is set, and adaptive(seed=0) was measured with 'group'. Pass
    scale='group' for that.
    """
    wanted = policy.needs.scale
    if wanted in (None, options.scale):
        return None
    return (
        f"Advantages have scale={options.scale!r}, as the trainer is set, and {policy} was measured with {wanted!r}. "
        f"Pass scale={wanted!r} for that."
    )
