"""What the rounds of one generation batch of TRL taught: the batch to train on, its advantages, metrics and ledger."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.errors import InputError
from budgetalloc.logs.write import LedgerWriter
from budgetalloc.policies import Policy, Step
from budgetalloc.trl.batches import check_same, collect, merge, part, take
from budgetalloc.trl.experimental.reuse import Reuse
from budgetalloc.trl.metrics import group_metrics, share_without_spread
from budgetalloc.trl.options import Options
from budgetalloc.trl.reporting import Reporting

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Round:
    """The rollouts of all processes in TRL's order: their prompts, what they earned (in all, and from each reward
    function), TRL's batch of this process's share, with fillers, and whether they were generated with a hint."""

    ids_R: list[Id]
    rewards_R: FloatArray
    scores_RF: FloatArray
    lengths_R: list[int]
    output: dict[str, Any]
    hinted: bool


class Learning:
    """Makes of a step's rounds the batch that TRL trains on, and tells the policy, the metrics and the ledger.

    Args:
        trainer: The `GRPOTrainer`.
        policy: Learns.
        options: How the policy is attached.
    """

    def __init__(self, trainer: Any, policy: Policy, options: Options) -> None:
        self.trainer, self.policy, self.options = trainer, policy, options
        self.ledger: LedgerWriter | None = None
        self.reporting = Reporting.of(trainer, policy)
        self.reuse = None if options.buffer is None else Reuse(trainer, options.buffer)

    def learn(self, step: Step, rounds: list[Round], total: int) -> dict[str, Any]:
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
        unit_R = self.options.to_unit(rewards_R)
        step.end()
        outputs, pad_token_id = [each.output for each in rounds], self.trainer._tokenizer.pad_token_id
        accelerator, keeps = self.trainer.accelerator, self.policy.keep is not None and len(ids_R) > total
        # Where rows change places, every process makes the whole batch and takes its share of it at the end.
        moved = len(rounds) > 1 or len(ids_R) != total
        if accelerator.num_processes > 1 and moved:
            output = collect(outputs, [len(each.ids_R) for each in rounds], accelerator, pad_token_id)
        else:
            output = merge(outputs, pad_token_id)
        # Advantages are those of the rows that are trained on; beliefs, metrics and ledger see what is fresh, once.
        swap = None if self.reuse is None else self.reuse.substitute(output, ids_R, rewards_R)
        trained_R = rewards_R if swap is None else swap.rewards_R
        if self.options.baseline is not None:
            advantages_R = self.options.advantages(trained_R, ids_R, belief_R)
            fresh_R = advantages_R.copy()
            if swap is not None:
                fresh_R[swap.rows] = 0.0  # these wrong responses are not trained on
            self._replace_advantages(output, fresh_R)
            if self.reuse is not None and swap is not None:
                output = self.reuse.put_back(output, swap, advantages_R)
        hinted_R = np.repeat([each.hinted for each in rounds], [len(each.ids_R) for each in rounds])
        metrics = self.trainer._metrics["train"]
        for key, value in self._describe(ids_R, unit_R, belief_R, ~hinted_R).items():
            metrics[f"budgetalloc/{key}"].append(value)
        if not self.options.keep_batch:
            metrics["frac_reward_zero_std"][-len(rounds) :] = [share_without_spread(ids_R, unit_R)] * len(rounds)
        if self.policy.keep is not None and keeps:
            scores_RF = np.concatenate([each.scores_RF for each in rounds])
            kept_R = np.asarray(self.policy.keep(ids_R, trained_R, total, scores_RF))
            check_same(accelerator, "the rollouts to train on", kept_R.tolist())
            output = take(output, kept_R)
        else:
            kept_R = np.arange(len(ids_R))
        if accelerator.num_processes > 1 and moved:
            output = part(output, accelerator.process_index, accelerator.num_processes)
        if self.reuse is not None:
            output = self.reuse.refill(output, [ids_R[at] for at in kept_R.tolist()], rewards_R[kept_R])
        lengths_R = [n for each in rounds for n in each.lengths_R]
        self._write(ids_R, rewards_R, belief_R, lengths_R, hinted_R)
        if self.reporting is not None:
            self.reporting.add(ids_R, np.where(hinted_R, np.nan, unit_R), np.array(lengths_R), belief_R.mean)
        return output

    def _write(
        self, ids_R: list[Id], rewards_R: FloatArray, belief_R: Beta, lengths_R: list[int], hinted_R: BoolArray
    ) -> None:
        """Appends the step to the ledger, late: a step that could not be finished is not in it."""
        if self.ledger is None:
            return
        _, group_R = factorize(ids_R)
        counts_R = np.bincount(group_R)[group_R]
        predicted_R = np.where(hinted_R, np.nan, belief_R.mean)
        names_R = [f"{name} (hinted)" if h else name for name, h in zip(ids_R, hinted_R.tolist(), strict=True)]
        self.ledger.append(self.trainer.state.global_step, names_R, rewards_R, lengths_R, predicted_R, counts_R)

    def _describe(self, ids_R: list[Id], unit_R: FloatArray, belief_R: Beta, plain_R: BoolArray) -> dict[str, float]:
        """The metrics of the rollouts without a hint: one with a hint says nothing of what was foreseen."""
        at = np.flatnonzero(plain_R)
        described = group_metrics([ids_R[k] for k in at.tolist()], unit_R[at], belief_R.take(at))
        return described if self.options.hint is None else described | {"hinted": float(np.sum(~plain_R))}

    def total_rewards(self, rewards_per_func: torch.Tensor) -> FloatArray:
        """TRL's weighted sum; NaN where no reward function scored the rollout."""
        weights = self.trainer.reward_weights.to(rewards_per_func.device)
        rewards_R = (rewards_per_func * weights).nansum(dim=1)
        rewards_R[torch.isnan(rewards_per_func).all(dim=1)] = torch.nan
        return np.asarray(rewards_R.cpu().double().numpy())  # on the CPU first: MPS has no float64

    def _replace_advantages(self, output: dict[str, Any], advantages_R: FloatArray) -> None:
        old = output["advantages"]
        start = 0 if len(old) == len(advantages_R) else self.trainer.accelerator.process_index * len(old)
        mine = advantages_R[start : start + len(old)]
        output["advantages"] = torch.as_tensor(mine, dtype=old.dtype, device=old.device)
        table = self.trainer._logs["advantages"]  # the completions table: its last rows are this batch's
        shown_R = advantages_R[-len(table) :].tolist()  # it keeps no more rows than a batch is trained on
        for at, value in enumerate(shown_R, start=len(table) - len(shown_R)):
            table[at] = value
