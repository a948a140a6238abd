"""One generation batch of TRL's trainer: whose rollouts it holds, and what they teach."""

import time
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object

from budgetalloc.advantages import group_advantages
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError
from budgetalloc.ids import Id, factorize
from budgetalloc.ledger import LedgerWriter
from budgetalloc.policies import Policy, Step
from budgetalloc.posterior import Beta, FloatArray
from budgetalloc.trl.metrics import group_metrics, share_without_spread
from budgetalloc.trl.options import Options
from budgetalloc.trl.prompts import Prompts

HELD = ("_generate_and_score_completions", "_calculate_rewards", "_generate_single_turn")


@dataclass(frozen=True, eq=False)
class _Plan:
    """The rollouts of all processes in TRL's order: their prompts, and what was believed of them before."""

    step: Step
    ids_R: list[Id]
    belief_R: Beta


class Generation:
    """Stands before TRL's generation and scoring while `held`: decides the rows, then learns from their rewards.

    Args:
        trainer: The `GRPOTrainer`.
        policy: Decides and learns.
        prompts: Names rows.
        options: How the policy is attached.
    """

    def __init__(self, trainer: Any, policy: Policy, prompts: Prompts, options: Options) -> None:
        self.trainer, self.policy, self.prompts, self.options = trainer, policy, prompts, options
        self.ledger: LedgerWriter | None = None
        self._pool: dict[Id, int] = {}
        self._own = {name: getattr(trainer, name) for name in HELD}
        self._scored: tuple[torch.Tensor, torch.Tensor] | None = None

    def hold(self) -> None:
        """Puts this object before the trainer's methods."""
        if self.options.candidates != 1:
            self._pool = self.prompts.first_rows()
        for name, mine in zip(HELD, (self._generate_and_score, self._see_rewards, self._single_turn), strict=True):
            setattr(self.trainer, name, mine)

    def release(self) -> None:
        """Gives the trainer its own methods back."""
        for name, own in self._own.items():
            setattr(self.trainer, name, own)

    def _generate_and_score(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        generate = self._own["_generate_and_score_completions"]
        if not self.trainer.model.training:
            return generate(inputs)  # type: ignore[no-any-return]
        started = time.perf_counter()
        plan, rows = self._decide(inputs)
        decided = time.perf_counter()
        self._scored = None
        output: dict[str, Any] = generate(rows)
        generated = time.perf_counter()
        self._learn(plan, output)
        seconds = decided - started + time.perf_counter() - generated
        self.trainer._metrics["train"]["budgetalloc/seconds"].append(seconds)
        return output

    def _see_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        rewards: torch.Tensor = self._own["_calculate_rewards"](inputs, prompts, completions, completion_ids_list)
        if self.trainer.model.training:
            lengths = torch.tensor([len(ids) for ids in completion_ids_list], device=rewards.device)
            self._scored = (rewards, self.trainer.accelerator.gather(lengths))  # TRL gathered the rewards already
        return rewards

    def _single_turn(
        self, prompt_ids: Any, images: Any, fields: Any, num_generations: int, *more: Any, **kw: Any
    ) -> Any:
        """TRL's vLLM server takes each `num_generations`-th row for a prompt; in uneven groups each row is its own."""
        if self.trainer.model.training and not self.options.keep_batch:
            num_generations = 1
        return self._own["_generate_single_turn"](prompt_ids, images, fields, num_generations, *more, **kw)

    # --- before generation: whose rollouts ------------------------------------------------------------------------

    def _decide(self, inputs: list[dict[str, Any]]) -> tuple[_Plan, list[dict[str, Any]]]:
        accelerator, options = self.trainer.accelerator, self.options
        total = len(inputs) * accelerator.num_processes
        own = self.prompts.ids(inputs) if options.candidates != "all" else []
        own_ids_R = self._gather(own)
        ids_P = self._offer(own_ids_R)
        step = self.policy.begin(ids_P, options.budget(total, len(ids_P), self.trainer.num_generations))
        if options.keep_batch:
            _, at_R = factorize(own_ids_R)
            return _Plan(step, own_ids_R, step.belief_P.take(at_R)), inputs
        counts_P = step.request()
        self._check_same_on_all_ranks(counts_P)
        at_R = np.repeat(np.arange(len(ids_P)), counts_P)
        ids_R = [ids_P[at] for at in at_R.tolist()]
        start = accelerator.process_index * len(inputs)
        rows = self._rows(ids_R[start : start + len(inputs)], dict(zip(own[::-1], inputs[::-1], strict=False)))
        return _Plan(step, ids_R, step.belief_P.take(at_R)), rows

    def _offer(self, own_ids_R: list[Id]) -> list[Id]:
        """The prompts to choose among: the batch's own, more drawn from the dataset, or all of it."""
        if self.options.candidates == "all":
            return list(self._pool)
        own_ids_P, _ = factorize(own_ids_R)
        more = (self.options.candidates - 1) * len(own_ids_P)
        if not more:
            return own_ids_P
        own = set(own_ids_P)
        others = [name for name in self._pool if name not in own]
        rng = np.random.default_rng([self.policy.seed, self.policy.estimator.step, 2])
        return own_ids_P + [others[at] for at in rng.permutation(len(others))[:more].tolist()]

    def _rows(self, ids_R: list[Id], own: dict[Id, dict[str, Any]]) -> list[dict[str, Any]]:
        """A row for each id; copies, because TRL writes a rollout's extra fields into its row.

        With one candidate the rows are the batch's: `own` holds this process's first row of each prompt, and a prompt's
        rollouts may move to a process that has none.
        """
        wanted, group_R = factorize(ids_R)
        if self.options.candidates == 1:
            known = dict(self._gather(list(own.items()))[::-1])  # the first process that has it
            rows_P = [known[name] for name in wanted]
        else:
            rows_P = self.prompts.rows([self._pool[name] for name in wanted])
        return [dict(rows_P[at]) for at in group_R.tolist()]

    def _gather(self, listed: list[Any]) -> list[Any]:
        """The lists of all processes one after the other, in the order in which TRL gathers rewards."""
        return list(gather_object(listed)) if self.trainer.accelerator.num_processes > 1 else listed

    def _check_same_on_all_ranks(self, counts_P: IntArray) -> None:
        digests = self._gather([zlib.crc32(counts_P.tobytes())])
        if len(set(digests)) > 1:
            raise InputError(
                f"The processes decided different counts at step {self.trainer.state.global_step} ({digests}): "
                "give all the same policy, settings, seed and dataset."
            )

    # --- after scoring: what they taught --------------------------------------------------------------------------

    def _learn(self, plan: _Plan, output: dict[str, Any]) -> None:
        """Rewards go to the beliefs; advantages and metrics are put right for groups of any sizes."""
        if self._scored is None:
            raise RuntimeError("TRL did not call _calculate_rewards: budgetalloc saw no rewards of this step.")
        rewards_per_func, lengths = self._scored
        rewards_R = self._total_rewards(rewards_per_func)
        low, high = self.options.reward_range
        unit_R = self._to_unit(rewards_R)
        plan.step.observe(plan.ids_R, unit_R)
        plan.step.end()
        if self.options.baseline is not None:
            # The posterior's baseline lives on the scale of the beliefs, the others on that of the rewards.
            posterior = self.options.baseline == "posterior"
            advantages_R = group_advantages(
                unit_R if posterior else rewards_R,
                plan.ids_R,
                self.options.baseline,
                self.options.scale,
                self.options.weight,
                belief_R=plan.belief_R,
            )
            if posterior and self.options.scale == "none":
                advantages_R = advantages_R * (high - low)
            self._replace_advantages(output, advantages_R)
        metrics = self.trainer._metrics["train"]
        for key, value in group_metrics(plan.ids_R, unit_R, plan.belief_R).items():
            metrics[f"budgetalloc/{key}"].append(value)
        if not self.options.keep_batch:
            metrics["frac_reward_zero_std"][-1] = share_without_spread(plan.ids_R, unit_R)
        if self.ledger is not None:
            _, group_R = factorize(plan.ids_R)
            counts_R = np.bincount(group_R)[group_R]
            step, predicted_R = self.trainer.state.global_step, plan.belief_R.mean
            self.ledger.append(step, plan.ids_R, rewards_R, lengths.tolist(), predicted_R, counts_R)

    def _total_rewards(self, rewards_per_func: torch.Tensor) -> FloatArray:
        """TRL's weighted sum; NaN where no reward function scored the rollout."""
        weights = self.trainer.reward_weights.to(rewards_per_func.device)
        rewards_R = (rewards_per_func * weights).nansum(dim=1)
        rewards_R[torch.isnan(rewards_per_func).all(dim=1)] = torch.nan
        return np.asarray(rewards_R.cpu().double().numpy())  # on the CPU first: MPS has no float64

    def _to_unit(self, rewards_R: FloatArray) -> FloatArray:
        low, high = self.options.reward_range
        unit_R = (rewards_R - low) / (high - low)
        # TRL's rewards are float32: 0.3 + 0.7 may come out as 1 + 1e-7. Anything further out is for the user to see.
        near_R = np.clip(unit_R, 0.0, 1.0)
        unit_R = np.where(np.abs(unit_R - near_R) < 1e-6, near_R, unit_R)
        outside = (unit_R < 0) | (unit_R > 1)
        if outside.any():
            raise InputError(
                f"A reward of {rewards_R[outside][0]:g} lies outside reward_range={self.options.reward_range}: the "
                "total over all reward functions, with their weights, counts. Pass AdaptiveGRPOCallback(..., "
                "reward_range=(lowest, highest))."
            )
        return unit_R

    def _replace_advantages(self, output: dict[str, Any], advantages_R: FloatArray) -> None:
        old = output["advantages"]
        start = self.trainer.accelerator.process_index * len(old)
        mine = advantages_R[start : start + len(old)]
        output["advantages"] = torch.as_tensor(mine, dtype=old.dtype, device=old.device)
        table = self.trainer._logs["advantages"]  # the completions table: its last rows are this batch's
        for at, value in enumerate(advantages_R.tolist(), start=len(table) - len(advantages_R)):
            table[at] = value
