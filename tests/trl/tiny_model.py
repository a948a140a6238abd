"""A random two-layer Llama over digits, its data, settings and a policy. Also for environments without pytest.

The model learns nothing useful, but every line of TRL's trainer really runs.
"""

from typing import Any

import numpy as np
from datasets import Dataset
from tiny_llama import character_tokenizer, tiny_config, tiny_llama
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

import budgetalloc as ba

SYMBOLS = [*"0123456789=", "<pad>", "<eos>"]


def make_tokenizer() -> PreTrainedTokenizerFast:
    return character_tokenizer(SYMBOLS, fused=False, padding_side="left")


def fresh_model(seed: int = 0, **more: Any) -> LlamaForCausalLM:
    return tiny_llama(tiny_config(13, max_position_embeddings=32, pad_token_id=11, eos_token_id=12, **more), seed)


def low_digit(completions: list[str], **_: Any) -> list[float]:
    """1 where the first symbol is a digit below 5, which a random model writes about half the time."""
    return [float(text[:1].isdigit() and text[0] < "5") for text in completions]


def rows(count: int = 24) -> Dataset:
    return Dataset.from_list([{"prompt": f"{n:03d}=", "prompt_id": n} for n in range(count)])


def uneven_rounds(view: Any) -> Any:
    """Rounds of 5, 1, 7 and 3 rollouts: fewer than num_generations, or no multiple of it. The last two depend on the
    rewards."""
    yield np.array([2, 1, 1, 1])
    seen = yield np.array([0, 0, 1, 0])
    worst_P = np.argsort(seen.successes_P, kind="stable")
    seen = yield np.bincount(worst_P[:2], [4, 3], minlength=4).astype(np.int64)
    yield np.bincount([np.argmax(seen.successes_P)], [3], minlength=4).astype(np.int64)


def policy_of_rounds(decide: Any = uneven_rounds, name: str = "odd", **more: Any) -> ba.Policy:
    return ba.Policy(name, decide, ba.BetaEstimator(), needs=ba.Needs(baseline="loo", scale="none", **more))


SETTINGS: dict[str, Any] = {
    "per_device_train_batch_size": 16,
    "num_generations": 4,
    "max_completion_length": 4,
    "learning_rate": 1e-2,
    "max_steps": 4,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
    "disable_tqdm": True,
    "seed": 7,
}
