"""Hidden states of the trained model at each prompt, as features."""

import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import UnsupportedError

__all__ = ["hidden_states"]

logger = logging.getLogger(__name__)

_TOKENS = 16384  # of a batch, padding included
_LONGEST = 2048  # tokens of a prompt that are read: its last ones


def hidden_states(trainer: Any, texts: Sequence[str]) -> FloatArray:
    """The last layer's hidden state at the last token of each text, shape (P, D).

    This is one prefill of all prompts, which the first process makes for all. Its tokens and
    seconds are logged.

    Args:
        trainer: A `GRPOTrainer` before its training, with a model of text.
        texts: The text of each prompt.

    Raises:
        UnsupportedError: the weights are divided between processes, or the model has no decoder.
    """
    import torch
    from accelerate.utils import broadcast_object_list

    accelerator, model = trainer.accelerator, trainer.model
    if getattr(accelerator.state.deepspeed_plugin, "zero_stage", 0) == 3 or trainer.is_fsdp_enabled:
        raise UnsupportedError(
            "features='model': the weights are divided between processes (ZeRO stage 3 or FSDP), "
            "so no process can "
            "compute hidden states alone. Use features='text', or pass "
            "budgetalloc.Features.of_vectors of embeddings."
        )
    found: list[FloatArray | None] = [None]
    if accelerator.is_main_process:
        started, training = time.perf_counter(), model.training
        model.eval()
        with torch.inference_mode():
            states, tokens = _states(model, _tokenizer(trainer.processing_class), list(texts))
        model.train(training)
        logger.info(
            "features='model': hidden states of %d prompts, %d tokens, took %.1f s.",
            len(texts),
            tokens,
            time.perf_counter() - started,
        )
        found = [states]
    states_P = broadcast_object_list(found)[0]
    assert states_P is not None
    return np.asarray(states_P, dtype=np.float64)


def _tokenizer(processing_class: Any) -> Any:
    # of a processor of images and texts
    return getattr(processing_class, "tokenizer", processing_class)


def _states(model: Any, tokenizer: Any, texts: list[str]) -> tuple[FloatArray, int]:
    """Hidden states, and the number of tokens that were read."""
    import torch

    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    if decoder is None:
        raise UnsupportedError(
            f"features='model': a {type(model).__name__} has no decoder. Use features='text'."
        )
    device = next(model.parameters()).device
    tokens = [
        tokenizer(text, add_special_tokens=False)["input_ids"][-_LONGEST:] or [0] for text in texts
    ]
    order = sorted(range(len(texts)), key=lambda at: len(tokens[at]))
    rows: list[FloatArray] = [np.zeros(0)] * len(texts)
    start = 0
    while start < len(order):
        end = start + 1  # texts of about the same length together
        while end < len(order) and (end + 1 - start) * len(tokens[order[end]]) <= _TOKENS:
            end += 1
        part = order[start:end]
        length = len(tokens[part[-1]])
        ids = torch.zeros(len(part), length, dtype=torch.long)
        mask = torch.zeros(len(part), length, dtype=torch.long)
        for row, at in enumerate(part):
            ids[row, : len(tokens[at])] = torch.tensor(tokens[at])
            mask[row, : len(tokens[at])] = 1
        hidden = decoder(
            input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False
        ).last_hidden_state
        last = hidden[torch.arange(len(part)), mask.sum(1) - 1].float().cpu().numpy()
        for row, at in enumerate(part):
            rows[at] = last[row]
        start = end
    return np.stack(rows), sum(map(len, tokens))
