"""One generation batch of TRL's trainer: whose rollouts it holds."""

import copy
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.errors import InputError
from budgetalloc.policies import Policy, Step
from budgetalloc.trl.batches import check_same, drop_fillers, my_share
from budgetalloc.trl.learning import Learning, Round
from budgetalloc.trl.options import Options
from budgetalloc.trl.prompts import Prompts

BoolArray = NDArray[np.bool_]
HELD = ("_generate_and_score_completions", "_calculate_rewards")


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
        self.learning = Learning(trainer, policy, options)
        self._pool: dict[Id, int] = {}
        self._own = {name: getattr(trainer, name) for name in HELD}
        self._wanted = 0  # rows of the round in progress, all processes together, without fillers
        self._scored: tuple[torch.Tensor, torch.Tensor] | None = None
        self._generating = 0.0  # seconds of this step that are TRL's

    def hold(self) -> None:
        """Puts this object before the trainer's methods; raises `InputError` where the processes are not alike."""
        self._check_alike()
        if self.options.candidates != 1:
            self._pool = self.prompts.first_rows()
        for name, mine in zip(HELD, (self._generate_and_score, self._see_rewards), strict=True):
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
        rounds, before = [], self.policy.state_dict()
        try:
            for ids_R, rows in self._requests(step, offer, inputs):
                rounds.append(self._round(ids_R, rows, step.hinted))
                step.observe(ids_R, self.options.to_unit(rounds[-1].rewards_R), hinted=step.hinted)
            output = self.learning.learn(step, rounds, len(inputs) * self.trainer.accelerator.num_processes)
        except BaseException:  # half a step teaches nothing: what the beliefs hold is what the ledger holds
            self.policy.load_state_dict(before)
            raise
        self.trainer._metrics["train"]["budgetalloc/seconds"].append(time.perf_counter() - started - self._generating)
        return output

    def _round(self, ids_R: list[Id], rows: list[dict[str, Any]], hinted: bool) -> Round:
        """TRL's own generation and scoring of this process's rows, with the user's hints where they are asked for.

        TRL's means of lengths count the fillers; everything about rewards does not.
        """
        trainer, started = self.trainer, time.perf_counter()
        if hinted:
            if self.options.hint is None:
                raise InputError(
                    f"{self.policy} asks for rollouts with a hint: pass AdaptiveGRPOCallback(..., hint=), a function "
                    "from a dataset row to the row with the hint in its prompt."
                )
            rows = [self.options.hint(row) for row in rows]
        self._scored, self._wanted = None, len(ids_R)
        size, generated = trainer.num_generations, len(rows) * trainer.accelerator.num_processes
        if not self.options.keep_batch:
            # Each row is a prompt of its own: TRL's vLLM server takes each num_generations-th row for a prompt, and its
            # rewards are folded into groups of this size, from which come advantages that are replaced afterwards.
            trainer.num_generations = 1
        try:
            output = self._own["_generate_and_score_completions"](rows)
        finally:
            trainer.num_generations = size
        self._generating += time.perf_counter() - started
        if self._scored is None:
            raise RuntimeError("TRL did not call _calculate_rewards: budgetalloc saw no rewards of this step.")
        drop_fillers(trainer._logs, generated - len(ids_R))
        rewards_per_func, lengths = self._scored
        scores_RF = rewards_per_func.cpu().double().numpy()
        return Round(ids_R, self.learning.total_rewards(rewards_per_func), scores_RF, lengths.tolist(), output, hinted)

    def _see_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        rewards: torch.Tensor = self._own["_calculate_rewards"](inputs, prompts, completions, completion_ids_list)
        if self.trainer.model.training:
            lengths = torch.tensor([len(ids) for ids in completion_ids_list], device=rewards.device)
            lengths = self.trainer.accelerator.gather(lengths)  # TRL gathered the rewards already, in the same order
            self._scored = rewards[: self._wanted], lengths[: self._wanted]
            rewards = rewards.clone()
            rewards[self._wanted :] = torch.nan  # TRL leaves a filler out as it does a rollout that nobody scored
        return rewards

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
        while True:
            counts_P = step.request()
            ids_R = [step.ids_P[at] for at in np.repeat(np.arange(len(counts_P)), counts_P).tolist()]
            # Also where nothing is wanted: a process that ends its step before the others would leave them waiting.
            check_same(accelerator, f"the counts of step {self.trainer.state.global_step}", (ids_R, step.hinted))
            if not ids_R:
                return
            mine = my_share(ids_R, accelerator.process_index, accelerator.num_processes)
            yield ids_R, self._rows(mine, first_rows)

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

    def _check_alike(self) -> None:
        """Raises on all processes where one would decide otherwise, or not be there when the others share out rows."""
        if self.trainer.accelerator.num_processes == 1:
            return
        estimator = self.policy.estimator
        mine = {
            "policy": self.policy.name,
            "seed": self.policy.seed,
            "options": repr(replace(self.options, hint=None)),
            "hint": self.options.hint is not None,
            "keep": self.policy.keep is not None,
            "dataset": self.prompts.fingerprint,
            "state": f"{estimator.step} steps, {len(estimator)} prompts",
        }
        everyone = self._gather([mine])
        for name, first in everyone[0].items():
            for rank, other in enumerate(everyone):
                if other[name] != first:
                    raise InputError(
                        f"The processes differ in {name}: process 0 has {first!r}, process {rank} has {other[name]!r}. "
                        "Give all the same policy, settings, seed and dataset, and the same checkpoint to resume from."
                    )
