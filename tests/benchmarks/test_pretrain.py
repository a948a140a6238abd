"""The folder that pretraining writes: read without a network, one token a character, half precision."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("trl")
import growing  # of benchmarks/learning
import torch
from mixes import SIZED
from pretrain import SIZES, Recipe, build_model, build_tokenizer, pretrain, save
from transformers import AutoModelForCausalLM, AutoTokenizer

from budgetalloc.cli.testbed import skills
from budgetalloc.cli.testbed.heldout import answer_logits
from budgetalloc.cli.testbed.skills import ALPHABET


def test_one_token_a_character() -> None:
    tokenizer = build_tokenizer()
    ids = tokenizer("b4071=")["input_ids"]
    assert len(ids) == 6
    assert tokenizer.decode(ids) == "b4071="
    assert (
        tokenizer.decode([*tokenizer("1704")["input_ids"], tokenizer.eos_token_id], skip_special_tokens=True) == "1704"
    )
    assert tokenizer(ALPHABET)["input_ids"] == list(range(2, 2 + len(ALPHABET)))
    assert tokenizer(["1", "12"], padding=True)["input_ids"][0][0] == tokenizer.pad_token_id


def test_the_other_language_has_its_own_letters() -> None:
    tokenizer = build_tokenizer(growing)
    ids = tokenizer(["47+85=", "c4="], padding=True)["input_ids"]
    assert tokenizer.decode(ids[0]) == "47+85="
    assert ids[1][:3] == [tokenizer.pad_token_id] * 3
    assert tokenizer(growing.ALPHABET)["input_ids"] == list(range(2, 2 + len(growing.ALPHABET)))


def test_padding_counts_for_nothing_in_the_loss() -> None:
    tokenizer = build_tokenizer(growing)
    torch.manual_seed(0)
    model = build_model(tokenizer).eval()
    prompts, answers = ["4+7=", "r4708="], ["11", "8074"]
    logits_PTV, tokens_PT = answer_logits(model, tokenizer, prompts, answers)
    eos = tokenizer.eos_token_id
    assert tokens_PT.tolist() == [[3, 3, eos, -100, -100], [10, 2, 9, 6, eos]]  # a digit is itself and 2
    for k in range(2):
        alone, _ = answer_logits(model, tokenizer, prompts[k : k + 1], answers[k : k + 1])
        torch.testing.assert_close(logits_PTV[k, : alone.shape[1]], alone[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("language", [skills, growing], ids=lambda language: language.__name__)
def test_a_short_pretraining_is_reproducible_in_either_language(language: Any) -> None:
    models = [pretrain(Recipe(steps=3, rows=16), progress=False, language=language)[0] for _ in range(2)]
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_model_is_tiny_and_has_no_dropout() -> None:
    model = build_model(build_tokenizer())
    assert sum(p.numel() for p in model.parameters()) == 339_936
    assert model.config.attention_dropout == 0.0


def test_a_few_steps_learn_and_the_folder_reads_back(tmp_path: Path) -> None:
    model, tokenizer = pretrain(Recipe(steps=30, rows=64, seed=4), progress=False)
    save(model, tokenizer, tmp_path)
    read = AutoModelForCausalLM.from_pretrained(tmp_path)
    words = AutoTokenizer.from_pretrained(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}
    assert read.dtype == torch.float32
    for a, b in zip(model.parameters(), read.parameters(), strict=True):
        assert torch.equal(a.cpu().half().float(), b)
    tokens = words(["a1234="], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        digits = read(tokens).logits[0, -1].softmax(-1)[2:12].sum()
    assert digits > 0.5  # an answer begins with a digit: untrained it is a quarter


def test_each_size_has_a_mix() -> None:
    assert [f"u_shape_{size}" for size in SIZES] == list(SIZED)
