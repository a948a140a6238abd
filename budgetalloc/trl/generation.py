"""One generation batch of TRL's trainer: whose rollouts it holds, and what they teach."""

import copy
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from numpy.typing import NDArray

from budgetalloc.advantages import Baseline, group_advantages
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, UnsupportedError
from budgetalloc.ids import Id, factorize
from budgetalloc.ledger import LedgerWriter
from budgetalloc.policies import Policy, Step
from budgetalloc.posterior import Beta, FloatArray
from budgetalloc.trl.batches import merge, take
from budgetalloc.trl.metrics import group_metrics, share_without_spread
from budgetalloc.trl.options import Options
from budgetalloc.trl.prompts import Prompts

BoolArray = NDArray[np.bool_]
HELD = ("_generate_and_score_completions", "_calculate_rewards", "_generate_single_turn")


@dataclass(frozen=True, eq=False)
class _Round:
    """The rollouts of all processes in TRL's order: their prompts, what they earned (in all, and from each reward
    function), TRL's batch of them, and whether they were generated with a hint."""

    ids_R: list[Id]
    rewards_R: FloatArray
    scores_RF: FloatArray
    lengths_R: list[int]
    output: dict[str, Any]
    hinted: bool


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
        self._generating = 0.0  # seconds of this step that are TRL's

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
        if not self.trainer.model.training:
            return self._own["_generate_and_score_completions"](inputs)  # type: ignore[no-any-return]
        started, self._generating = time.perf_counter(), 0.0
        step, offer = self._open(inputs)
        rounds = []
        for ids_R, rows in self._requests(step, offer, inputs):
            rounds.append(self._round(ids_R, rows, step.hinted))
            step.observe(ids_R, self._to_unit(rounds[-1].rewards_R), hinted=step.hinted)
        output = self._learn(step, rounds, len(inputs) * self.trainer.accelerator.num_processes)
        self.trainer._metrics["train"]["budgetalloc/seconds"].append(time.perf_counter() - started - self._generating)
        return output

    def _round(self, ids_R: list[Id], rows: list[dict[str, Any]], hinted: bool) -> _Round:
        """TRL's own generation and scoring of these rows, with the user's hints in them where they are asked for."""
        trainer, started = self.trainer, time.perf_counter()
        if hinted:
            if self.options.hint is None:
                raise InputError(
                    f"{self.policy} asks for rollouts with a hint: pass AdaptiveGRPOCallback(..., hint=), a function "
                    "from a dataset row to the row with the hint in its prompt."
                )
            rows = [self.options.hint(row) for row in rows]
        self._scored = None
        size = trainer.num_generations
        if len(ids_R) % size:  # TRL folds rewards into groups of this size; its advantages are replaced afterwards
            trainer.num_generations = 1
        try:
            output = self._own["_generate_and_score_completions"](rows)
        finally:
            trainer.num_generations = size
        self._generating += time.perf_counter() - started
        if self._scored is None:
            raise RuntimeError("TRL did not call _calculate_rewards: budgetalloc saw no rewards of this step.")
        rewards_per_func, lengths = self._scored
        scores_RF = rewards_per_func.cpu().double().numpy()
        return _Round(ids_R, self._total_rewards(rewards_per_func), scores_RF, lengths.tolist(), output, hinted)

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

    def _open(self, inputs: list[dict[str, Any]]) -> tuple[Step, list[Id]]:
        """The policy's step, and the prompt of each row of all processes where the loader's rows are on offer."""
        options, total = self.options, len(inputs) * self.trainer.accelerator.num_processes
        own_ids_R = self._gather(self.prompts.ids(inputs) if options.candidates != "all" else [])
        ids_P = self._offer(own_ids_R)
        budget = options.budget(total * options.generate, len(ids_P), self.trainer.num_generations)
        return self.policy.begin(ids_P, budget), own_ids_R

    def _requests(
        self, step: Step, own_ids_R: list[Id], inputs: list[dict[str, Any]]
    ) -> Iterator[tuple[list[Id], list[dict[str, Any]]]]:
        """For each round that the policy wants: the prompts of all processes' rows, and this process's rows."""
        if self.options.keep_batch:
            yield own_ids_R, inputs
            return
        accelerator = self.trainer.accelerator
        own = self.prompts.ids(inputs) if self.options.candidates != "all" else []
        first_rows = dict(zip(own[::-1], inputs[::-1], strict=False))
        while (counts_P := step.request()).any():
            self._check_same_on_all_ranks(counts_P)
            total = int(counts_P.sum())
            if accelerator.num_processes > 1 and total != len(inputs) * accelerator.num_processes:
                raise UnsupportedError(
                    f"{self.policy} decides in rounds, here of {total} rollouts, which is served in one process only; "
                    f"there are {accelerator.num_processes}. Use a policy that decides once a step."
                )
            ids_R = [step.ids_P[at] for at in np.repeat(np.arange(len(counts_P)), counts_P).tolist()]
            share = total // accelerator.num_processes
            start = accelerator.process_index * share
            yield ids_R, self._rows(ids_R[start : start + share], first_rows)

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
        """A row for each id; deep copies, because TRL writes into rows, and environments and rewards may change lists.

        With one candidate the rows are the batch's: `own` holds this process's first row of each prompt, and a prompt's
        rollouts may move to a process that has none.
        """
        wanted, group_R = factorize(ids_R)
        if self.options.candidates == 1:
            known = dict(self._gather(list(own.items()))[::-1])  # the first process that has it
            rows_P = [known[name] for name in wanted]
        else:
            rows_P = self.prompts.rows([self._pool[name] for name in wanted])
        return [copy.deepcopy(rows_P[at]) for at in group_R.tolist()]

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

    def _learn(self, step: Step, rounds: list[_Round], total: int) -> dict[str, Any]:
        """TRL's batch to train on: `total` rows, with advantages and metrics that are right for groups of any sizes."""
        ids_R = [name for each in rounds for name in each.ids_R]
        if len(ids_R) < total:
            raise InputError(
                f"{self.policy} asked for {len(ids_R)} rollouts in one step, and the trainer trains on {total}: a "
                "decision may generate more, never fewer."
            )
        rewards_R = np.concatenate([each.rewards_R for each in rounds])
        place = {name: at for at, name in enumerate(step.ids_P)}
        belief_R = step.belief_P.take(np.array([place[name] for name in ids_R], dtype=np.int64))
        unit_R = self._to_unit(rewards_R)
        step.end()
        output = merge([each.output for each in rounds], self.trainer._tokenizer.pad_token_id)
        if self.options.baseline is not None:
            self._replace_advantages(
                output, self._advantages(self.options.baseline, rewards_R, unit_R, ids_R, belief_R)
            )
        hinted_R = np.repeat([each.hinted for each in rounds], [len(each.ids_R) for each in rounds])
        metrics = self.trainer._metrics["train"]
        for key, value in self._describe(ids_R, unit_R, belief_R, ~hinted_R).items():
            metrics[f"budgetalloc/{key}"].append(value)
        if not self.options.keep_batch:
            metrics["frac_reward_zero_std"][-len(rounds) :] = [share_without_spread(ids_R, unit_R)] * len(rounds)
        if self.ledger is not None:
            _, group_R = factorize(ids_R)
            counts_R = np.bincount(group_R)[group_R]
            lengths_R = [n for each in rounds for n in each.lengths_R]
            predicted_R = np.where(hinted_R, np.nan, belief_R.mean)
            names_R = [f"{name} (hinted)" if h else name for name, h in zip(ids_R, hinted_R.tolist(), strict=True)]
            self.ledger.append(self.trainer.state.global_step, names_R, rewards_R, lengths_R, predicted_R, counts_R)
        if self.policy.keep is not None and len(ids_R) > total:
            scores_RF = np.concatenate([each.scores_RF for each in rounds])
            output = take(output, self.policy.keep(ids_R, rewards_R, total, scores_RF))
        return output

    def _describe(self, ids_R: list[Id], unit_R: FloatArray, belief_R: Beta, plain_R: BoolArray) -> dict[str, float]:
        """The metrics of the rollouts without a hint: one with a hint says nothing of what was foreseen."""
        at = np.flatnonzero(plain_R)
        described = group_metrics([ids_R[k] for k in at.tolist()], unit_R[at], belief_R.take(at))
        return described if self.options.hint is None else described | {"hinted": float(np.sum(~plain_R))}

    def _advantages(
        self, baseline: Baseline, rewards_R: FloatArray, unit_R: FloatArray, ids_R: list[Id], belief_R: Beta
    ) -> FloatArray:
        """The posterior's baseline lives on the scale of the beliefs, the others on that of the rewards."""
        posterior, scale, weight = baseline == "posterior", self.options.scale, self.options.weight
        rewards = unit_R if posterior else rewards_R
        advantages_R = group_advantages(rewards, ids_R, baseline, scale, weight, belief_R=belief_R)
        low, high = self.options.reward_range
        return advantages_R * (high - low) if posterior and scale == "none" else advantages_R

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
        shown_R = advantages_R[-len(table) :].tolist()  # it keeps no more rows than a batch is trained on
        for at, value in enumerate(shown_R, start=len(table) - len(shown_R)):
            table[at] = value
