"""Limits of a rollout's length: a schedule over the run, and a cap for each prompt. For TRL's
`GRPOTrainer`."""

import logging
import math
from collections.abc import Sequence
from functools import partial, wraps
from typing import Any, Literal

import numpy as np
from transformers import TrainerCallback
from trl import GRPOTrainer

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.state import Table, loaded
from budgetalloc.budget import IntArray
from budgetalloc.contrib.generation import generate_within, limited
from budgetalloc.errors import (
    InputError,
    UnsupportedError,
    check_integer,
    check_number,
    check_type,
)
from budgetalloc.policies import Step
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.parts import Host, Part
from budgetalloc.training.prompts import Prompts
from budgetalloc.trl.patching import patched_attribute

logger = logging.getLogger(__name__)


class LengthSchedule(TrainerCallback):  # type: ignore[misc]
    """Limits completions to fewer tokens from stage to stage of a run.

    Attach it by `trainer.add_callback(LengthSchedule(trainer, 256, 0.7, 150))`, with or without an
    `AdaptiveGRPOCallback`. Rollouts that are generated at step t have at most
    `max(1, first * factor ** (t // every))` tokens, rounded down: the budget of Train Long, Think
    Short (arXiv 2508.08940), which rewards lengths near the budget, where this cuts. The limit
    depends on the trainer's step alone, so a resumed run has the limits of an uninterrupted one.

    Evaluations keep `max_completion_length`, and so does the loss, where "dr_grpo" divides by it.

    Args:
        trainer: A `trl.GRPOTrainer`.
        first: The limit at the beginning in tokens, at most `max_completion_length`.
        factor: By which the limit shrinks after each stage, in (0, 1].
        every: The steps of a stage.

    Raises:
        InputError: a bad argument.
    """

    def __init__(self, trainer: Any, first: int, factor: float, every: int) -> None:
        most = _longest(trainer)
        self.first = check_integer("first", first, 1, most)
        self.factor = check_number("factor", factor, 0, 1, without=(0,))
        self.every = check_integer("every", every, 1)
        generate = trainer._generate

        @wraps(generate)
        def generate_within_limit(prompts: Any) -> Any:
            if not trainer.model.training or self not in trainer.callback_handler.callbacks:
                return generate(prompts)
            with limited(trainer, self.limit(trainer.state.global_step)):
                return generate(prompts)

        trainer._generate = generate_within_limit

    def limit(self, step: int) -> int:
        """The most tokens of a rollout that is generated at this step of the trainer."""
        exact = self.first * self.factor ** (step // self.every)
        return max(1, math.floor(exact + 1e-9))  # 100 * 0.29 is a little less than 29


class LengthCap(Part):
    """Limits each prompt's rollouts to the length that its successes needed.

    Attach it by `AdaptiveGRPOCallback(trainer, parts=[LengthCap(trainer)])`. A prompt's cap is
    `times` the quantile `of` the lengths of its last `keep` successes, as DART-GUI (arXiv
    2509.23866) limits the trajectories of a task; its formula was not found, so the defaults are
    this package's. `of="mean"` with `times` below 1 is the share of the mean length in e1 (arXiv
    2510.27042), which asks for it in the prompt, where this cuts.

    A prompt without a success has no cap. If at one of its steps no rollout succeeds and the cap
    cut one, its lengths are forgotten, and the next rollouts may have `max_completion_length`
    tokens again. All rollouts of a prompt in a step have the same cap, and one that is cut is
    truncated for the trainer, which masks it under `mask_truncated_completions`.

    Caps are exact under every engine. vLLM in the trainer's process also generates no token more;
    other engines generate up to the largest cap of the batch, and the rest is dropped.

    Args:
        trainer: A `trl.GRPOTrainer`.
        of: The quantile, in [0, 1], or "mean".
        times: The cap as a multiple of it, above 0.
        keep: The number of successes of a prompt that count, the newest.

    Raises:
        InputError: a bad argument. UnsupportedError: the trainer has tools, environments or a
            rollout_func, whose rollouts consist of several generations.
    """

    def __init__(
        self,
        trainer: Any,
        *,
        of: float | Literal["mean"] = 1.0,
        times: float = 1.25,
        keep: int = 8,
    ) -> None:
        self.longest = _longest(trainer)
        self.of = of if of == "mean" else check_number("of", of, 0, 1)
        self.times = check_number("times", times, 0, math.inf, without=(0, math.inf))
        self.trainer = trainer
        self._known = Table({"lengths": np.full(check_integer("keep", keep, 1), np.nan)})
        self._prompts: Prompts | None = None
        self._session: Any = None

    def attach(self, session: Any, host: Host) -> None:
        if host.prompts is None:
            raise UnsupportedError("LengthCap limits TRL's GRPOTrainer, and no other loop.")
        if self._prompts is None:
            self._wrap(self.trainer)
        self._prompts, self._session = host.prompts, session

    def start(self) -> None:
        several = ("tools", "environment_factories", "rollout_func")
        if used := [name for name in several if getattr(self.trainer, name, None)]:
            raise UnsupportedError(
                f"LengthCap does not work with {used[0]}, whose rollouts consist of several "
                "generations. LengthSchedule does."
            )

    def _wrap(self, trainer: Any) -> None:
        generate = trainer._generate_and_score_completions

        @wraps(generate)
        def generate_capped(inputs: list[dict[str, Any]]) -> Any:
            callbacks = trainer.callback_handler.callbacks
            sessions = [getattr(each, "session", None) for each in callbacks]
            if not trainer.model.training or self._session not in sessions:
                return generate(inputs)
            caps_R = self.caps(self._prompts.ids(inputs))  # type: ignore[union-attr]
            single = trainer._generate_single_turn

            def single_capped(*given: Any, **named: Any) -> Any:
                return generate_within(trainer, caps_R, partial(single, *given, **named))

            with patched_attribute(trainer, "_generate_single_turn", single_capped):
                return generate(inputs)

        trainer._generate_and_score_completions = generate_capped

    def caps(self, ids_R: Sequence[Id]) -> IntArray:
        """The cap of each of these prompts in tokens, shape (R,)."""
        ids_P, prompt_R = factorize(ids_R)
        at_P = self._known.find(ids_P)
        caps_P = np.full(len(ids_P), self.longest)
        lengths = self._known["lengths"]
        for place in np.flatnonzero(at_P >= 0).tolist():
            own = lengths[at_P[place]]
            own = own[~np.isnan(own)]
            if len(own):
                needed = own.mean() if self.of == "mean" else np.quantile(own, self.of)
                caps_P[place] = min(math.ceil(self.times * needed - 1e-9), self.longest)
        return caps_P[prompt_R]

    def learn(self, rollouts: Rollouts | None, step: Step) -> dict[str, float]:
        """Learns from the lengths of successes; the mean cap of a rollout, and the share that
        reached its cap."""
        if rollouts is None:
            return {}
        caps_R = self.caps(rollouts.ids_R)  # as they were when the rollouts were generated
        cut_R = rollouts.lengths_R >= caps_R
        right_R = (rollouts.success_R > 0.5) & ~rollouts.hinted_R
        ids_V, group_R = factorize(rollouts.ids_R)
        at_V, lengths = self._known.add(ids_V), self._known["lengths"]
        solved_V, cut_V = (np.bincount(group_R, each_R) > 0 for each_R in (right_R, cut_R))
        lengths[at_V[cut_V & ~solved_V]] = np.nan
        for row, length in zip(
            at_V[group_R[right_R]].tolist(), rollouts.lengths_R[right_R].tolist(), strict=True
        ):
            lengths[row] = [*lengths[row, 1:], length]
        return {"lengths/cap": float(caps_R.mean()), "lengths/cut": float(cut_R.mean())}

    def state_dict(self) -> dict[str, Any]:
        """The lengths, under the key "length_caps"."""
        return {"length_caps": self._known.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`; without it no prompt has a cap. Raises `StateError`, and changes
        nothing, for a state with another `keep`."""
        if "length_caps" not in state:
            logger.warning("The checkpoint has no lengths: no prompt has a cap yet.")
        known = {"ids": [], "lengths": np.zeros((0, self._known["lengths"].shape[1]))}
        self._known = loaded(self._known, state.get("length_caps", known))


def _longest(trainer: Any) -> int:
    """The trainer's `max_completion_length`; raises unless the limit of TRL holds."""
    check_type("trainer", trainer, GRPOTrainer, "a trl.GRPOTrainer")
    set_otherwise = {"max_tokens", "max_new_tokens"} & set(trainer.args.generation_kwargs or {})
    if set_otherwise:
        raise InputError(
            f"generation_kwargs[{set_otherwise.pop()!r}]",
            "replaces every other limit: set GRPOConfig(max_completion_length=) instead.",
        )
    return int(trainer.max_completion_length)
