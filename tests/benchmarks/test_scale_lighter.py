"""The shared prefill generates the same tokens from fewer rows; upper layers only are trained; a cut vocabulary is as
good as the whole."""

from typing import Any

import lighter  # in benchmarks/scale
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as DecodeBytes
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


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


def test_a_cut_vocabulary_leaves_tokens_and_logits_of_the_texts(model, tmp_path):
    texts = ["What is 12 + 30?\n", "What is 4 * 17?\n"]
    backend = Tokenizer(BPE())
    backend.pre_tokenizer, backend.decoder = ByteLevel(add_prefix_space=False), DecodeBytes()
    trainer = BpeTrainer(
        vocab_size=400, special_tokens=["<pad>", "<end>"], initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator([*texts, "Who was there, and what did they say?"] * 3, trainer)
    special = {"pad_token": "<pad>", "eos_token": "<end>"}
    before = PreTrainedTokenizerFast(tokenizer_object=backend, padding_side="left", **special)
    model.resize_token_embeddings(len(before))
    before.save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    tokens = lighter.cut_vocabulary(tmp_path, texts)
    after, small = AutoTokenizer.from_pretrained(tmp_path), LlamaForCausalLM.from_pretrained(tmp_path)
    assert 2 + 256 < tokens == len(after) == small.config.vocab_size < len(before)
    assert (after.pad_token_id, after.eos_token_id) == (0, 1)
    assert [after.tokenize(text) for text in texts] == [before.tokenize(text) for text in texts]
    assert after.decode(after("Who says é?")["input_ids"]) == "Who says é?"  # by bytes
    old = before.convert_tokens_to_ids(after.convert_ids_to_tokens(range(tokens)))
    whole_BTV = model(**before(texts, return_tensors="pt", padding=True)).logits
    torch.testing.assert_close(whole_BTV[..., old], small(**after(texts, return_tensors="pt", padding=True)).logits)
