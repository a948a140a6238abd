"""How a policy is attached to a trainer: the user's settings and the policy's needs, resolved and
checked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import check_range, check_success
from budgetalloc.contrib.mixture import Mixture, check_mixture, mixed_quotas
from budgetalloc.errors import InputError, UnsupportedError, check_choice, check_flag, nearest
from budgetalloc.policies import Needs, Policy
from budgetalloc.policies.advantages import Baseline, Scale, Weight
from budgetalloc.policies.batch_advantages import Advantages, batch_advantages
from budgetalloc.policies.bounds import Bounds
from budgetalloc.policies.quotas import Quotas, Shares, check_domain_and_shares
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.costs import Cost, Costs, check_cost, check_cost_per_step
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.rails import Rails
from budgetalloc.training.scoring import Scoring
from budgetalloc.training.success import Success

__all__ = ["PLAIN", "Options", "check_plain", "other_scale"]

_DEFAULT_SCALE = "group"  # of TRL and verl
_SIZES = ("candidates", "floor", "cap", "min_group", "quantum")
PLAIN = (
    *_SIZES,
    "baseline",
    "scale",
    "weight",
    "success",
    "reward_range",
    "fallback",
    "cost",
    "cost_per_step",
)
"""The arguments that every training loop can serve, except `cost="seconds"`."""


def check_plain(given: Mapping[str, Any]) -> None:
    """Raises `InputError` unless a training loop without an adapter can serve these arguments.

    >>> check_plain({"cost": "seconds"})
    Traceback (most recent call last):
    budgetalloc.errors.InputError: Session(cost='seconds'): only the adapters for TRL measure the seconds of a step.
    Report the seconds of each rollout: cost={"seconds": 1} and observe(..., costs_R={"seconds": ...}).
    """
    for name in given:
        if name not in PLAIN:
            use = (
                "ba.adaptive(features=...)" if name == "features" else f"one of {', '.join(PLAIN)}"
            )
            raise InputError(f"Session({name}=) is unknown{nearest(name, PLAIN)} Use {use}.")
    if isinstance(given.get("cost"), str) and given["cost"] == "seconds":
        raise InputError(
            "Session(cost='seconds'): only the adapters for TRL measure the seconds of a step. "
            "Report the seconds of "
            'each rollout: cost={"seconds": 1} and observe(..., costs_R={"seconds": ...}).'
        )


@dataclass(frozen=True)
class Options:
    """How a policy is attached to a trainer: the arguments of `AdaptiveGRPOCallback`, resolved.

    Args:
        bounds: The candidates and the sizes of their groups.
        baseline: None if the trainer's own advantages are kept.
        scale, weight: As in `budgetalloc.group_advantages`.
        success: The user's rule that computes success from rewards.
        reward_range: Lowest and highest total reward; None learns them.
        keep_batch: Whether the rows of the trainer's batch stay as they are.
        generate: Rollouts that a step may generate per rollout that it trains on.
        hint: From a dataset row to the row with a hint, or None.
        buffer: Stored responses of earlier steps, of a type that the trainer's adapter supports, or
            None.
        domain: The dataset column of the domains, or None.
        quotas: The lowest and highest share of the rollouts of each domain, or None.
        mixture: How shares are learned within the quotas, or None.
        cost: What rollouts cost, or None if all cost the same.
        cost_per_step: What a step may cost on average, or None.
        fallback: Whether groups are uniform while beliefs or advantages are out of bounds
            (`rails`).
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
    mixture: Mixture | None
    cost: Cost
    cost_per_step: float | None
    fallback: bool

    @classmethod
    def resolve(cls, needs: Needs, trainer_scale: Any, given: dict[str, Any]) -> "Options":
        """The given options, with the policy's needs as defaults.

        Args:
            needs: Needs of the policy.
            trainer_scale: The trainer's own scale of advantages. "group" is the default of
                trainers, so the policy's scale replaces it. Any other scale was chosen by the user
                and holds, unless `given` has one.
            given: Arguments of `AdaptiveGRPOCallback` by name; None counts as left out.

        Raises:
            InputError: a value out of range.
        """
        given = {name: value for name, value in given.items() if value is not None}
        bounds = Bounds.resolve(needs, **{name: given[name] for name in _SIZES if name in given})
        keep_batch = needs.keep_batch and bounds.candidates == 1
        for name, allowed in (("baseline", Baseline), ("scale", Scale), ("weight", Weight)):
            if name in given:
                check_choice(name, given[name], get_args(allowed))
        chosen = trainer_scale if trainer_scale != _DEFAULT_SCALE else needs.scale or trainer_scale
        scale, weight = given.get("scale", chosen), given.get("weight", needs.weight)
        # A buffer selects rows without signal, for which TRL's float32 advantages may not be
        # exactly 0.
        keep_advantages = (
            keep_batch and "buffer" not in given and (scale, weight) == (trainer_scale, "rollout")
        )
        mixture = check_mixture(given.get("mixture"))
        options = cls(
            bounds=bounds,
            baseline=given.get(
                "baseline", needs.baseline or (None if keep_advantages else "group")
            ),
            scale=scale,
            weight=weight,
            success=given.get("success"),
            reward_range=check_range(given["reward_range"]) if "reward_range" in given else None,
            keep_batch=keep_batch,
            generate=needs.generate,
            hint=given.get("hint"),
            buffer=given.get("buffer"),
            domain=given.get("domain"),
            quotas=check_domain_and_shares(given.get("domain"), given.get("quotas"), mixture),
            mixture=mixture,
            cost=given.get("cost"),
            cost_per_step=check_cost_per_step(given.get("cost_per_step"), given.get("cost")),
            fallback=check_flag("fallback", given.get("fallback", True)),
        )
        check_choice("scale", options.scale, get_args(Scale))
        check_success(options.success)
        check_cost(options.cost)
        if options.buffer is not None and options.scale == "whiten_tokens":
            raise InputError(
                "buffer= with scale='whiten_tokens': the tokens of stored responses are not "
                "counted. Use 'whiten'."
            )
        if options.baseline == "policy" and needs.baseline != "policy":
            raise InputError(
                "baseline='policy': this policy has no rule of its own. Use 'posterior', or "
                "'group'."
            )
        if options.hint is not None and options.baseline in ("posterior", "policy"):
            raise InputError(
                f"hint= with baseline={options.baseline!r}: a belief is about the prompt without a "
                "hint. Use "
                "baseline='loo'."
            )
        return options

    @classmethod
    def of_loop(cls, needs: Needs, trainer_scale: str, given: Mapping[str, Any]) -> "Options":
        """The options of a training loop without an adapter, with the policy's own scale; raises as
        `check_plain`."""
        check_plain(given)
        return cls.resolve(needs, trainer_scale, {"scale": needs.scale, **given})

    @property
    def of_groups(self) -> bool:
        """Whether advantages compare within groups. A trainer with GRPO's advantages can then keep
        its own."""
        return self.baseline in (None, "group")

    def scoring(self, names: Sequence[str], weights: Sequence[float], quiet: bool) -> Scoring:
        """The scoring of these reward functions. It has rails only if advantages follow from
        beliefs."""
        rails = Rails(self.fallback, quiet) if self.baseline == "posterior" else None
        return Scoring(
            names,
            weights,
            self.success,
            None if self.keep_batch else self.reward_range,
            quiet,
            rails,
        )

    def costs(self, policy: Policy, quiet: bool) -> Costs:
        """The costs, before anything is learned; raises `UnsupportedError` if the policy ignores
        costs."""
        return Costs.of(self.cost, policy, quiet, self.cost_per_step)

    def quotas_of(
        self, prompts: Prompts, policy: Policy, rollouts: int, group: int
    ) -> Quotas | None:
        """The quotas of these prompts, or None; raises `BudgetError` or `UnsupportedError` if they
        cannot be kept."""
        if self.quotas is None or self.domain is None:
            return None
        quotas = mixed_quotas(self.quotas, prompts.domains(self.domain), self.mixture)
        quotas.check(policy, self.bounds, rollouts, group)
        return quotas

    def check_hint(self, policy: Policy) -> None:
        """Raises `UnsupportedError` unless rollouts can get the hint that this policy asks for."""
        if self.hint is None:
            raise UnsupportedError(
                f"{policy} requests rollouts with a hint: pass AdaptiveGRPOCallback(..., hint=), a "
                "function from a "
                "dataset row to the row with the hint in its prompt. Other loops cannot add hints."
            )

    def advantages(self, batch: Rollouts, rewards_R: FloatArray | None = None) -> Advantages:
        """The advantages of a batch. `rewards_R` are total rewards that replace the batch's own, if
        stored correct responses were substituted."""
        baseline = "group" if batch.uniform else self.baseline or "group"
        return batch_advantages(batch.with_rewards(rewards_R), baseline, self.scale, self.weight)


def other_scale(policy: Policy, options: Options) -> str | None:
    """A warning if the scale of advantages is not the scale that the policy was measured with; else
    None.

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
        f"Advantages have scale={options.scale!r}, as the trainer is set, and {policy} was "
        f"measured with {wanted!r}. "
        f"Pass scale={wanted!r} for that."
    )
