"""Hidden states of the trained model at each prompt, as features."""

import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast_object_list
from trl.trainer.utils import pad

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import BudgetallocError, UnsupportedError

logger = logging.getLogger(__name__)

_TOKENS = 16384  # of a batch, padding included
_LONGEST = 2048  # tokens of a prompt that are read: its last ones


def hidden_states(trainer: Any, texts: Sequence[str]) -> FloatArray:
    """The last layer's hidden state at the last token of each text, shape (P, D).

    This is one prefill of all prompts by the model of a `GRPOTrainer` before its training, which
    the first process makes for all. Its tokens and seconds are logged.

    Raises:
        UnsupportedError: the weights are divided between processes, or the model has no decoder.
    """
    accelerator = trainer.accelerator
    if getattr(accelerator.state.deepspeed_plugin, "zero_stage", 0) == 3 or trainer.is_fsdp_enabled:
        raise UnsupportedError(
            "features='model': the weights are divided between processes (ZeRO stage 3 or FSDP), "
            "so no process can compute hidden states alone. Use features='text', or pass "
            "budgetalloc.Features.of_vectors of embeddings."
        )
    found: list[FloatArray | str] = [""]
    error: Exception | None = None
    if accelerator.is_main_process:
        try:
            found = [_logged_states(trainer, texts)]
        except Exception as raised:  # the other processes wait: send them the error before raising
            error, found = raised, [f"{type(raised).__name__}: {raised}"]
    states = broadcast_object_list(found)[0]
    if isinstance(states, str):
        raise error or BudgetallocError(
            f"features='model': process 0 failed, and all processes stop. It raised {states}"
        )
    return np.asarray(states, dtype=np.float64)


def _logged_states(trainer: Any, texts: Sequence[str]) -> FloatArray:
    model = trainer.model
    started, training = time.perf_counter(), model.training
    # of a processor of images and texts
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    model.eval()
    try:
        with torch.inference_mode():
            states, tokens = _states(model, tokenizer, texts)
    finally:
        model.train(training)
    logger.info(
        "features='model': hidden states of %d prompts, %d tokens, took %.1f s.",
        len(texts),
        tokens,
        time.perf_counter() - started,
    )
    return states


def _states(model: Any, tokenizer: Any, texts: Sequence[str]) -> tuple[FloatArray, int]:
    """Hidden states, and the number of tokens that were read."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    if decoder is None:
        raise UnsupportedError(
            f"features='model': a {type(model).__name__} has no decoder. Use features='text'."
        )
    device = next(model.parameters()).device
    read = [tokenizer(text, add_special_tokens=False)["input_ids"][-_LONGEST:] for text in texts]
    tokens = [torch.tensor(ids or [0], device=device) for ids in read]
    order = sorted(range(len(texts)), key=lambda at: len(tokens[at]))
    rows: dict[int, FloatArray] = {}
    start = 0
    while start < len(order):
        end = start + 1  # texts of about the same length together
        while end < len(order) and (end + 1 - start) * len(tokens[order[end]]) <= _TOKENS:
            end += 1
        part, start = order[start:end], end
        ids = pad([tokens[at] for at in part], 0)
        mask = pad([torch.ones_like(tokens[at]) for at in part], 0)
        output = decoder(input_ids=ids, attention_mask=mask, use_cache=False)
        last = output.last_hidden_state[torch.arange(len(part)), mask.sum(1) - 1]
        rows |= zip(part, last.float().cpu().numpy(), strict=True)
    return np.stack([rows[at] for at in range(len(texts))]), sum(map(len, tokens))
