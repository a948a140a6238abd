"""A random Llama with a tokenizer of single characters. It needs torch and transformers only, not pytest."""

from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def tiny_config(vocabulary: int, **more: Any) -> LlamaConfig:
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    # A large initializer_range makes completions and gradients depend on the prompt.
    return LlamaConfig(**{"vocab_size": vocabulary, **shape, "initializer_range": 0.3, **more})


def tiny_llama(config: LlamaConfig, seed: int = 0, kind: Any = LlamaForCausalLM) -> Any:
    torch.manual_seed(seed)
    return kind(config)


def character_tokenizer(
    symbols: Sequence[str], pad: str = "<pad>", eos: str = "<eos>", fused: bool = True, **more: Any
) -> PreTrainedTokenizerFast:
    """`fused`: decoded texts have no spaces between characters."""
    unknown = more.get("unk_token", pad)
    raw = Tokenizer(models.WordLevel({symbol: at for at, symbol in enumerate(symbols)}, unk_token=unknown))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    if fused:
        raw.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token=pad, eos_token=eos, **more)
