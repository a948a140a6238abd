"""What the user and the policy ask for, resolved and checked once."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from budgetalloc.advantages import Baseline, Scale, Weight, group_advantages
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.budget import Budget
from budgetalloc.errors import InputError
from budgetalloc.policies import Needs
from budgetalloc.trl.experimental.buffers import CorrectResponseBuffer, SelectiveSampleBuffer


@dataclass(frozen=True)
class Options:
    """How a policy is attached to a trainer; the fields are the arguments of `AdaptiveGRPOCallback`.

    `baseline` is None where TRL's own advantages stay, and `keep_batch` says that its rows stay too.
    """

    candidates: int | Literal["all"]
    baseline: Baseline | None
    scale: Scale
    weight: Weight
    floor: int
    cap: int | None
    min_group: int
    quantum: int
    reward_range: tuple[float, float]
    keep_batch: bool
    generate: int
    hint: Callable[[dict[str, Any]], dict[str, Any]] | None
    buffer: SelectiveSampleBuffer | CorrectResponseBuffer | None

    @classmethod
    def resolve(cls, needs: Needs, trainer_scale: Any, given: dict[str, Any]) -> "Options":
        """What was given, and for the rest what the policy needs; raises `InputError` for a value out of range."""
        candidates = _first(given["candidates"], needs.candidates)
        if candidates != "all" and (isinstance(candidates, bool) or not isinstance(candidates, int) or candidates < 1):
            raise InputError(f"candidates={candidates!r}: use 1, a larger integer or 'all'.")
        keep_batch = needs.keep_batch and candidates == 1
        # A buffer looks for rows without signal, which in TRL's own float32 may be only nearly so.
        own = keep_batch and given["buffer"] is None
        options = cls(
            candidates=candidates,
            baseline=_first(given["baseline"], needs.baseline, None if own else "group"),
            scale=_first(given["scale"], needs.scale, trainer_scale),
            weight=_first(given["weight"], needs.weight),
            floor=_first(given["floor"], 2 if candidates == 1 else 0),
            cap=given["cap"],
            min_group=_first(given["min_group"], needs.min_group),
            quantum=given["quantum"],
            reward_range=given["reward_range"],
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
        low, high = options.reward_range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise InputError(
                f"reward_range={options.reward_range!r}: give the lowest and highest reward, as (0.0, 1.0)."
            )
        if options.hint is not None and options.baseline == "posterior":
            raise InputError(
                "hint= with baseline='posterior': a belief is about the prompt without a hint. Use baseline='loo'."
            )
        return options

    def budget(self, rollouts: int, prompts: int, num_generations: int) -> Budget:
        """The budget of a generation batch with this many prompts on offer."""
        cap = self.cap
        if cap is None:
            widest = max(8 * num_generations, -(-rollouts // prompts), self.floor, self.min_group)
            cap = -(-widest // self.quantum) * self.quantum
        return Budget(rollouts, floor=self.floor, cap=cap, quantum=self.quantum, min_group=self.min_group)

    def advantages(self, rewards_R: FloatArray, ids_R: Sequence[Id], belief_R: Beta) -> FloatArray:
        """The posterior's baseline lives on the scale of the beliefs, the others on that of the rewards."""
        baseline = self.baseline or "group"
        posterior = baseline == "posterior"
        rewards = self.to_unit(rewards_R) if posterior else rewards_R
        advantages_R = group_advantages(rewards, ids_R, baseline, self.scale, self.weight, belief_R=belief_R)
        low, high = self.reward_range
        return advantages_R * (high - low) if posterior and self.scale == "none" else advantages_R

    def to_unit(self, rewards_R: FloatArray) -> FloatArray:
        """Rewards on the scale of the beliefs; raises `InputError` for one outside `reward_range`."""
        low, high = self.reward_range
        unit_R = (rewards_R - low) / (high - low)
        # TRL's rewards are float32: 0.3 + 0.7 may come out as 1 + 1e-7. Anything further out is for the user to see.
        near_R = np.clip(unit_R, 0.0, 1.0)
        unit_R = np.where(np.abs(unit_R - near_R) < 1e-6, near_R, unit_R)
        outside = (unit_R < 0) | (unit_R > 1)
        if outside.any():
            raise InputError(
                f"A reward of {rewards_R[outside][0]:g} lies outside reward_range={self.reward_range}: the "
                "total over all reward functions, with their weights, counts. Pass reward_range=(lowest, highest)."
            )
        return unit_R


def _first(*values: Any) -> Any:
    """The first that is not None."""
    return next((value for value in values if value is not None), None)
