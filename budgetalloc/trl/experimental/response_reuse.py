"""Puts stored responses into TRL's batch, with the log-probabilities of the models that generated
them."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from trl.trainer.utils import pad

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.state import load_state, save_state
from budgetalloc.budget import IntArray
from budgetalloc.errors import StateError, UnsupportedError
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.trl.batch_merge import merge_rounds, select_rows
from budgetalloc.trl.experimental.buffers import (
    CorrectResponseBuffer,
    SelectiveSampleBuffer,
    Stored,
    Substitution,
)

__all__ = ["BUFFER_FILE", "Buffer", "Reuse"]

Buffer = SelectiveSampleBuffer | CorrectResponseBuffer
BUFFER_FILE = "budgetalloc_buffer.npz"

# Per-token entries of TRL's batches, which are stored with a completion if present.
_OLD = "old_per_token_logps"
_PER_TOKEN = (_OLD, "ref_per_token_logps", "sampling_per_token_logps")
_ROWS = (
    "prompt_ids",
    "prompt_mask",
    "completion_ids",
    "completion_mask",
    "advantages",
    "num_items_in_batch",
)


class Reuse:
    """Puts a buffer's responses into the batches that TRL trains on, and new responses into the
    buffer.

    TRL omits old log-probabilities, and uses a ratio of 1, if it trains on a batch before the model
    changes. A stored sample has another ratio, so with `SelectiveSampleBuffer` TRL's own function
    computes them for every batch, in one more forward pass per step. `CorrectResponseBuffer` needs
    none: its rows count as on-policy, or are masked.

    Args:
        trainer: The `GRPOTrainer`.
        buffer: Stores and chooses responses. Its steps are those of `trainer.state.global_step`.
    """

    def __init__(self, trainer: Any, buffer: Buffer) -> None:
        self.trainer, self.buffer = trainer, buffer

    # --- AR3PO: a stored correct response for a wrong one, before the advantages
    # ------------------------------------

    def substitute(self, output: dict[str, Any], batch: Rollouts) -> Substitution | None:
        """The wrong rows that get a stored correct response; stores the new correct ones."""
        _check_columns(output)
        if not isinstance(self.buffer, CorrectResponseBuffer):
            return None
        swap = self.buffer.substitute(batch.ids_R, batch.rewards_R, batch.step, batch.success_R)
        # A response that TRL masks has no tokens to store.
        unmasked_R = np.where(_in_loss(output), batch.success_R, np.nan)
        self.buffer.add(batch.ids_R, _responses(output), batch.rewards_R, batch.step, unmasked_R)
        self._log(len(swap.rows))
        return swap

    def put_back(
        self, output: dict[str, Any], swap: Substitution, advantages_R: FloatArray
    ) -> dict[str, Any]:
        """The batch with stored responses in place of the wrong ones, or without either
        ("stop_gradient").

        Args:
            output: TRL's batch, with advantages of 0 in the rows to be replaced.
            swap: The result of `substitute`.
            advantages_R: Advantages from the rewards after the substitution.
        """
        if not len(swap.rows):
            return output
        # `advantages_R` includes them in the mean and deviation of their group
        if not swap.train_R.all():
            mask = output["completion_mask"].clone()
            mask[torch.as_tensor(swap.rows, device=mask.device)] = 0
            return {**output, "completion_mask": mask, "num_items_in_batch": mask.sum()}
        stored = self._batch(swap.stored, advantages_R[swap.rows], output, without=(_OLD,))
        if _OLD in output:  # without it TRL uses a ratio of 1, as required
            stored[_OLD] = self._log_probabilities(stored)
        source_R = np.arange(len(advantages_R))
        source_R[swap.rows] = len(advantages_R) + np.arange(len(swap.rows))
        return select_rows(
            merge_rounds([output, stored], self.trainer._tokenizer.pad_token_id), source_R
        )

    # --- Skywork R1V2: stored samples for rows without signal, after the advantages
    # ---------------------------------

    def refill(self, output: dict[str, Any], batch: Rollouts, kept_R: IntArray) -> dict[str, Any]:
        """The batch with stored samples in place of rows without signal; stores the rows with
        signal.

        Args:
            output: TRL's batch.
            batch: The record of the step.
            kept_R: The rollouts of `batch` that are the rows of `output`.
        """
        if not isinstance(self.buffer, SelectiveSampleBuffer):
            return output
        advantages_R = np.where(_in_loss(output), output["advantages"].cpu().double().numpy(), 0.0)
        fresh, stored = self.buffer.refill(advantages_R, batch.step)
        given = _OLD in output
        if stored:
            drawn = self._batch(stored, np.array([x.advantage for x in stored]), output)
            output = merge_rounds(
                [select_rows(output, fresh), drawn], self.trainer._tokenizer.pad_token_id
            )
        if not given:  # as wide as in the loss, so that fresh rows have a ratio of 1
            output = {**output, _OLD: self._log_probabilities(output)}
            for row, sample in zip(output[_OLD][len(fresh) :], stored, strict=True):
                old = torch.as_tensor(_column(sample, _OLD), dtype=row.dtype, device=row.device)
                row[: len(old)] = old
        responses = _responses(output)[: len(fresh)]
        fresh_R = kept_R[fresh]
        ids = [batch.ids_R[at] for at in fresh_R.tolist()]
        self.buffer.add(ids, responses, batch.rewards_R[fresh_R], advantages_R[fresh], batch.step)
        self._log(len(stored))
        return output

    # --- rows
    # -------------------------------------------------------------------------------------------------------

    def _batch(
        self,
        stored: list[Stored],
        advantages_S: FloatArray,
        like: dict[str, Any],
        without: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Stored responses as TRL's batch would hold them, with the columns, types and device of
        `like`."""
        to = like["advantages"].device
        multiple, pad_id = self.trainer.pad_to_multiple_of, self.trainer._tokenizer.pad_token_id
        batch: dict[str, Any] = {
            "advantages": torch.as_tensor(advantages_S, dtype=like["advantages"].dtype, device=to)
        }
        for part, side in (("prompt", "left"), ("completion", "right")):
            ids, mask = f"{part}_ids", f"{part}_mask"
            tokens = [
                torch.as_tensor(_column(x, ids), dtype=like[ids].dtype, device=to) for x in stored
            ]
            batch[ids] = pad(tokens, pad_id, side, multiple)
            batch[mask] = pad(
                [torch.ones_like(x, dtype=like[mask].dtype) for x in tokens], 0, side, multiple
            )
        for name in _PER_TOKEN:
            if name in like and name not in without:
                values = [
                    torch.as_tensor(_column(x, name), dtype=like[name].dtype, device=to)
                    for x in stored
                ]
                batch[name] = pad(values, 0.0, "right", multiple)
        batch["num_items_in_batch"] = batch["completion_mask"].sum()
        return batch

    def _log_probabilities(self, batch: dict[str, Any]) -> torch.Tensor:
        """The log-probability of each completion token under the current model."""
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        keep, portion = (
            batch["completion_ids"].size(1),
            self.trainer.args.per_device_train_batch_size,
        )
        trainer = self.trainer
        with torch.no_grad():
            answer = trainer._get_per_token_logps_and_entropies(
                trainer.model, ids, mask, keep, batch_size=portion
            )
        return answer[0]

    def _log(self, reused: int) -> None:
        self.trainer._metrics["train"]["budgetalloc/reused"].append(float(reused))

    # --- checkpoints
    # ------------------------------------------------------------------------------------------------

    def check_clock(self, step: int) -> None:
        """Raises `StateError` if the buffer has seen later steps than the first step of this
        training."""
        seen = self.buffer.step
        if seen > step:
            raise StateError(
                f"buffer= was used until step {seen}, and training begins at step {step}, so the "
                "age of the stored "
                "responses is not known. Pass a new buffer for a new training, or resume from a "
                "checkpoint."
            )

    def save(self, folder: Path) -> None:
        """Writes the buffer's state into a checkpoint."""
        save_state(folder / BUFFER_FILE, self.buffer.state_dict())

    def load(self, folder: Path) -> bool:
        """Loads the buffer's state; False if the checkpoint has none."""
        if not (folder / BUFFER_FILE).exists():
            return False
        state, _ = load_state(folder / BUFFER_FILE)
        self.buffer.load_state_dict(state)
        return True


def _in_loss(output: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows have a token in the loss; GRPOConfig(mask_truncated_completions=True) masks the
    others."""
    return np.asarray(output["completion_mask"].any(dim=1).cpu().numpy())


def _responses(output: dict[str, Any]) -> list[dict[str, Any]]:
    """Each row without its padding, for a buffer."""
    masks = {part: output[f"{part}_mask"].bool().cpu() for part in ("prompt", "completion")}
    columns = {
        f"{part}_ids": (output[f"{part}_ids"].cpu().to(torch.int32), mask)
        for part, mask in masks.items()
    }
    columns |= {
        name: (output[name].cpu().float(), masks["completion"])
        for name in _PER_TOKEN
        if name in output
    }
    rows = range(len(output["advantages"]))
    return [
        {name: value[row][mask[row]].numpy() for name, (value, mask) in columns.items()}
        for row in rows
    ]


def _column(sample: Stored, name: str) -> Any:
    if name not in sample.response:
        raise StateError(
            f"buffer= holds a response without {name!r} (it has {sorted(sample.response)}), stored "
            "under other "
            "settings of the trainer. Pass a new buffer."
        )
    return np.array(sample.response[name])  # stored arrays are read-only, which torch warns of


def _check_columns(output: dict[str, Any]) -> None:
    for name in output:
        if name not in _ROWS and name not in _PER_TOKEN:
            raise UnsupportedError(
                f"buffer= cannot keep {name!r} of TRL's batch with a stored response. Train "
                "without a buffer, or "
                "without tools, environments and images."
            )
