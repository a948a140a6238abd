"""One generation batch of TRL's trainer: whose rollouts it holds."""

import time
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from numpy.typing import NDArray

from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, UnsupportedError
from budgetalloc.ids import Id, factorize
from budgetalloc.policies import Policy, Step
from budgetalloc.trl.learning import Learning, Round
from budgetalloc.trl.options import Options
from budgetalloc.trl.prompts import Prompts

BoolArray = NDArray[np.bool_]
HELD = ("_generate_and_score_completions", "_calculate_rewards", "_generate_single_turn")


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
            step.observe(ids_R, self.learning.to_unit(rounds[-1].rewards_R), hinted=step.hinted)
        output = self.learning.learn(step, rounds, len(inputs) * self.trainer.accelerator.num_processes)
        self.trainer._metrics["train"]["budgetalloc/seconds"].append(time.perf_counter() - started - self._generating)
        return output

    def _round(self, ids_R: list[Id], rows: list[dict[str, Any]], hinted: bool) -> Round:
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
        return Round(ids_R, self.learning.total_rewards(rewards_per_func), scores_RF, lengths.tolist(), output, hinted)

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
