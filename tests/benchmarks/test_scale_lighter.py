"""The shared prefill generates the same tokens from fewer rows; upper layers only are trained; a cut vocabulary is as
good as the whole."""

from typing import Any

import lighter  # in benchmarks/scale
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=50, num_hidden_layers=6, pad_token_id=0, eos_token_id=1, **sizes))


def batch() -> dict[str, torch.Tensor]:
    """Five rows of three prompts; one of them is padded on the left."""
    prompts = torch.tensor([[5, 6, 7, 8], [0, 0, 9, 3], [0, 4, 4, 4]])
    ids = prompts[torch.tensor([0, 1, 0, 2, 1])]
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


@pytest.mark.parametrize("sampled", [False, True])
def test_the_same_tokens_as_without_it(model, sampled):
    options = {"do_sample": sampled, "max_new_tokens": 6}
    torch.manual_seed(3)
    plain = model.generate(**batch(), **options)
    read: list[int] = []
    model.model.register_forward_pre_hook(
        lambda _, args, kwargs: read.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    lighter.share_prefill(model)
    torch.manual_seed(3)
    assert model.generate(**batch(), **options).tolist() == plain.tolist()
    assert read[:2] == [3 * 3, 5]  # three prompts without their last token, then that token of all rows
