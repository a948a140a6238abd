"""Generates blocks of tokens with the model of TRL's trainer: transformers or vLLM."""

import copy
import inspect
import math
from typing import Any

import torch
from trl.models import unwrap_model_for_generation
from trl.trainer.utils import pad

from budgetalloc.trl.experimental.trees.growth import Active, Engine
from budgetalloc.trl.patching import patched_attribute

__all__ = ["engine_of"]

# vLLM's default limit; the rest of a distribution counts as one more token in its entropy
_TOP = 20


def engine_of(trainer: Any, entropies: bool) -> Engine:
    """The engine that TRL would generate with; `entropies` asks for the entropy of the tokens."""
    return _VLLM(trainer, entropies) if trainer.use_vllm else _Transformers(trainer, entropies)


class _Transformers:
    """`generate` with one cache for all rows. A branch gets a copy of its parent's cache, so no
    prefix is recomputed.

    Every row has the same number of tokens, because rows that ended are left out by `select`.
    """

    def __init__(self, trainer: Any, entropies: bool) -> None:
        self.trainer, self.entropies = trainer, entropies
        self.cache: Any = None

    def start(self, prompts: list[list[int]]) -> None:
        device = self.trainer.accelerator.device
        rows = [torch.tensor(ids, device=device) for ids in prompts]
        self.cache = None
        self.ids = pad(
            rows, padding_value=self.trainer._tokenizer.pad_token_id, padding_side="left"
        )
        self.mask = pad(
            [torch.ones_like(row) for row in rows], padding_value=0, padding_side="left"
        )

    def extend(self, tokens: int) -> list[Active]:
        trainer, entropies_TR = self.trainer, []

        def record(_: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            logps = scores.float().log_softmax(dim=-1)
            entropies_TR.append(-(logps.exp() * logps).nan_to_num(0.0).sum(dim=-1))
            return scores

        config = copy.deepcopy(trainer.generation_config)
        config.update(max_new_tokens=tokens, return_dict_in_generate=True)
        given = {
            "gather_deepspeed3_params": trainer.args.ds3_gather_for_generation,
            "generation_kwargs": trainer.generation_kwargs,
            "gradient_checkpointing_kwargs": trainer.args.gradient_checkpointing_kwargs,  # TRL 1.16
        }
        known = inspect.signature(unwrap_model_for_generation).parameters
        given = {name: value for name, value in given.items() if name in known}
        unwrapped = unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator, **given)
        with unwrapped as model, torch.no_grad():
            output = model.generate(
                input_ids=self.ids,
                attention_mask=self.mask,
                past_key_values=self.cache,
                generation_config=config,
                logits_processor=[record] if self.entropies else None,
            )
        made, self.cache = output.sequences[:, self.ids.size(1) :], output.past_key_values
        self.ids = output.sequences
        self.mask = torch.cat([self.mask, self.mask.new_ones(made.shape)], dim=1)
        is_end = torch.isin(made, torch.tensor(trainer.eos_token_ids, device=made.device))
        lengths = [row.index(True) + 1 if any(row) else len(row) for row in is_end.tolist()]
        entropies = (
            torch.stack(entropies_TR, dim=1).tolist()
            if self.entropies
            else [[math.nan]] * len(lengths)
        )
        return [
            Active(row[:length], [], sum(each[:length]) / len(each[:length]))
            for row, length, each in zip(made.tolist(), lengths, entropies, strict=True)
        ]

    def select(self, rows: list[int]) -> None:
        index = torch.tensor(rows, device=self.ids.device)
        self.ids, self.mask = self.ids[index], self.mask[index]
        self.cache.batch_select_indices(index)


class _VLLM:
    """TRL's vLLM, in the process or behind its server. Its prefix cache saves computing a shared
    prefix again."""

    def __init__(self, trainer: Any, entropies: bool) -> None:
        self.vllm, self.top = (
            trainer.vllm_generation,
            min(_TOP, len(trainer._tokenizer)) if entropies else 0,
        )

    def start(self, prompts: list[list[int]]) -> None:
        self.ids = prompts

    def extend(self, tokens: int) -> list[Active]:
        block = patched_attribute(self.vllm, "max_completion_length", tokens)
        with block, patched_attribute(self.vllm, "logprobs", self.top):
            _, made_R, logps_R, top_R = self.vllm.generate(
                prompts=self.ids, images=None, num_generations=1
            )
        self.ids = [[*ids, *made] for ids, made in zip(self.ids, made_R, strict=True)]
        return [
            Active(
                list(made),
                [
                    logps[top.index(token)]
                    for token, logps, top in zip(made, logps_T, top_T, strict=True)
                ],
                sum(map(_entropy, logps_T)) / len(made) if self.top else math.nan,
            )
            for made, logps_T, top_T in zip(made_R, logps_R, top_R, strict=True)
        ]

    def select(self, rows: list[int]) -> None:
        self.ids = [self.ids[row] for row in rows]


def _entropy(logps: list[float | None]) -> float:
    """The entropy in nats of a distribution whose largest log-probabilities are known.

    >>> round(_entropy([math.log(0.5), math.log(0.25)]), 3)
    1.04
    """
    shares = [math.exp(each) for each in logps if each is not None]
    return -sum(p * math.log(p) for p in [*shares, max(0.0, 1 - sum(shares))] if p > 0)
