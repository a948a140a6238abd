"""What the user and the policy ask for, resolved and checked once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from budgetalloc.advantages import Baseline, Scale, Weight, group_advantages
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import check_range, to_unit
from budgetalloc.errors import InputError
from budgetalloc.policies import Needs
from budgetalloc.policies.bounds import Bounds
from budgetalloc.trl.batch import Batch
from budgetalloc.trl.experimental.buffers import CorrectResponseBuffer, SelectiveSampleBuffer


@dataclass(frozen=True)
class Options:
    """How a policy is attached to a trainer: the arguments of `AdaptiveGRPOCallback`, resolved.

    Args:
        bounds: Which prompts are on offer, and the sizes of their groups.
        baseline: None where TRL's own advantages stay.
        scale, weight: As in `budgetalloc.group_advantages`.
        reward_range: Lowest and highest total reward.
        keep_batch: Whether the rows of TRL's batch stay as they are.
        generate: Rollouts that a step may generate for each one that it trains on.
        hint: From a dataset row to the row with a hint, or None.
        buffer: Responses of earlier steps, or None.
    """

    bounds: Bounds
    baseline: Baseline | None
    scale: Scale
    weight: Weight
    reward_range: tuple[float, float]
    keep_batch: bool
    generate: int
    hint: Callable[[dict[str, Any]], dict[str, Any]] | None
    buffer: SelectiveSampleBuffer | CorrectResponseBuffer | None

    @classmethod
    def resolve(cls, needs: Needs, trainer_scale: Any, given: dict[str, Any]) -> "Options":
        """What was given, and for the rest what the policy needs.

        Args:
            needs: Of the policy.
            trainer_scale: The trainer's own scale of advantages, used where neither says one.
            given: The arguments of `AdaptiveGRPOCallback` of these names; None for those left out.

        Raises:
            InputError: a value out of range.
        """
        sizes = {name: given[name] for name in ("candidates", "floor", "cap", "min_group", "quantum")}
        bounds = Bounds.resolve(needs, **sizes)
        keep_batch = needs.keep_batch and bounds.candidates == 1
        # A buffer looks for rows without signal; TRL's float32 advantages may be only nearly 0 there.
        keep_advantages = keep_batch and given["buffer"] is None
        options = cls(
            bounds=bounds,
            baseline=_first(given["baseline"], needs.baseline, None if keep_advantages else "group"),
            scale=_first(given["scale"], needs.scale, trainer_scale),
            weight=_first(given["weight"], needs.weight),
            reward_range=check_range(given["reward_range"]),
            keep_batch=keep_batch,
            generate=needs.generate,
            hint=given["hint"],
            buffer=given["buffer"],
        )
        for name, allowed in (("baseline", Baseline), ("scale", Scale), ("weight", Weight)):
            value = getattr(options, name)
            if value not in get_args(allowed) and not (name == "baseline" and value is None):
                raise InputError(f"{name}={value!r}: use one of {get_args(allowed)}.")
        if not isinstance(options.buffer, SelectiveSampleBuffer | CorrectResponseBuffer | None):
            raise InputError(f"buffer={options.buffer!r}: pass a SelectiveSampleBuffer or a CorrectResponseBuffer.")
        if options.hint is not None and options.baseline == "posterior":
            raise InputError(
                "hint= with baseline='posterior': a belief is about the prompt without a hint. Use baseline='loo'."
            )
        return options

    def advantages(self, batch: Batch, rewards_R: FloatArray | None = None) -> FloatArray:
        """Advantages of a batch, shape (R,). The posterior baseline is on the beliefs' scale, others on the rewards'.

        Args:
            batch: Whose groups and beliefs.
            rewards_R: Total rewards where they are not the batch's own.
        """
        rewards_R = batch.rewards_R if rewards_R is None else rewards_R
        baseline = self.baseline or "group"
        posterior = baseline == "posterior"
        rewards = self.to_unit(rewards_R) if posterior else rewards_R
        advantages_R = group_advantages(
            rewards, batch.ids_R, baseline, self.scale, self.weight, belief_R=batch.belief_R
        )
        low, high = self.reward_range
        return advantages_R * (high - low) if posterior and self.scale == "none" else advantages_R

    def to_unit(self, rewards_R: FloatArray) -> FloatArray:
        """Total rewards on the scale of the beliefs; raises `InputError` for one outside `reward_range`."""
        unit_R = to_unit(rewards_R, self.reward_range)
        outside_R = (unit_R < 0) | (unit_R > 1)  # False for NaN
        if outside_R.any():
            raise InputError(
                f"A reward of {np.asarray(rewards_R)[outside_R][0]:g} lies outside reward_range={self.reward_range}: "
                "the total over all reward functions, with their weights, counts. Pass reward_range=(lowest, highest)."
            )
        return unit_R


def _first(*values: Any) -> Any:
    """The first that is not None."""
    return next((value for value in values if value is not None), None)
