"""Generation by TRL's `GRPOTrainer` with a limit for each row, for what sets limits and for what is
its `rollout_func`."""

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

from budgetalloc.budget import IntArray
from budgetalloc.errors import UnsupportedError
from budgetalloc.trl.patching import patched_attribute
from budgetalloc.trl.vllm_seeds import seeds_by_row


def tokens_of(trainer: Any, prompts: list[Any]) -> list[list[int]]:
    """The tokens of prompts without images, as a `rollout_func` needs them."""
    tokens_R, images, _ = trainer._tokenize_prompts(prompts)
    if images is not None:
        name = type(trainer.rollout_func).__name__
        raise UnsupportedError(f"rollout_func={name}(...) works without images.")
    return list(tokens_R)


@contextmanager
def limited(trainer: Any, tokens: int) -> Iterator[None]:
    """Inside the block, one generation of the trainer has at most so many tokens."""
    with ExitStack() as stack:
        stack.enter_context(patched_attribute(trainer, "max_completion_length", tokens))
        if trainer.use_vllm:
            engine = trainer.vllm_generation
            stack.enter_context(patched_attribute(engine, "max_completion_length", tokens))
        else:
            config = copy.deepcopy(trainer.generation_config)
            config.max_new_tokens = tokens
            stack.enter_context(patched_attribute(trainer, "generation_config", config))
        yield


def generate_within(
    trainer: Any, limits_R: IntArray, generate: Callable[[], Any]
) -> tuple[list[list[int]], list[list[Any]] | None]:
    """The tokens that `generate` makes, of each row at most its limit and the trainer's, and their
    log-probabilities if the trainer uses vLLM.

    Args:
        trainer: The trainer.
        limits_R: The limit of each row in tokens, shape (R,).
        generate: A call of the trainer's `_generate_single_turn` with these rows.
    """
    limits_R = np.minimum(limits_R, trainer.max_completion_length)
    longest, accelerator = int(limits_R.max()), trainer.accelerator
    if accelerator.num_processes > 1:  # they may share an engine
        each = torch.tensor([longest], device=accelerator.device)
        longest = int(accelerator.gather(each).max())
    with ExitStack() as stack:
        stack.enter_context(limited(trainer, longest))
        engine = getattr(trainer.vllm_generation, "llm", None) if trainer.use_vllm else None
        shared = engine is not None and trainer.vllm_generation.tensor_parallel_size > 1
        if engine is not None and not shared and (limits_R < longest).any():
            by_row = _limit_by_row(engine.generate, limits_R)
            stack.enter_context(patched_attribute(engine, "generate", by_row))
        made_R, logps_R = generate()
    limits = limits_R.tolist()
    cut_R = [list(made[:limit]) for made, limit in zip(made_R, limits, strict=True)]
    if logps_R is not None:
        logps_R = [list(each[:limit]) for each, limit in zip(logps_R, limits, strict=True)]
    return cut_R, logps_R


def extended(
    trainer: Any, rows: list[list[int]], limits_R: IntArray
) -> list[tuple[list[int], list[Any]]]:
    """The tokens that TRL generates after each row, at most its limit, and their log-probabilities
    if it uses vLLM. For functions that are the trainer's `rollout_func`."""
    takes = inspect.signature(type(trainer)._generate_single_turn).parameters
    number = {"num_generations": 1} if "num_generations" in takes else {}
    single = partial(trainer._generate_single_turn, rows, None, {}, **number)
    with (
        patched_attribute(trainer, "num_generations", 1),  # TRL 1.14
        patched_attribute(trainer, "num_generations_eval", 1),
        seeds_by_row(trainer, Counter()),
    ):
        made_R, logps_R = generate_within(trainer, limits_R, single)
    return list(zip(made_R, logps_R or [[] for _ in made_R], strict=True))


def ends(trainer: Any) -> set[int]:
    """The tokens that end a text; TRL 1.14.1 and older know the tokenizer's only."""
    return set(getattr(trainer, "eos_token_ids", [trainer._tokenizer.eos_token_id]))


def _limit_by_row(generate: Callable[..., Any], limits_R: IntArray) -> Callable[..., Any]:
    """vLLM's `generate`, with a limit for each row in place of one for all."""

    def generate_by_row(prompts: Any, sampling_params: Any, **named: Any) -> Any:
        of_rows = [sampling_params.clone() for _ in prompts]
        for each, limit in zip(of_rows, limits_R.tolist(), strict=True):
            each.max_tokens = limit
        return generate(prompts, sampling_params=of_rows, **named)

    return generate_by_row
