"""The start of the runs at scale: only answers are learned, and a run can begin with the model that is written."""

import string
from types import SimpleNamespace

import pytest
import start  # in benchmarks/scale
import torch
from pretrain import Recipe, build_model, build_tokenizer  # in benchmarks/learning
from transformers import AutoModelForCausalLM, AutoTokenizer

LANGUAGE = SimpleNamespace(ALPHABET=string.printable)


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    tokenizer = build_tokenizer(LANGUAGE, 128)
    build_model(tokenizer, Recipe(width=32, layers=2, positions=128)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path


def test_the_loss_is_of_the_answers_only(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder / "model", padding_side="right")
    batch = start.tokens(tokenizer, ["What is 1 + 2?\n", "2?\n"], ["3", "12"])
    learned = [tokenizer.decode(labels[labels >= 0]) for labels in batch["labels"]]
    assert learned == ["3<eos>", "12<eos>"]
    assert batch["attention_mask"].sum(1).tolist() == [len("What is 1 + 2?\n3") + 1, len("2?\n12") + 1]


def test_two_steps_write_a_model_that_answers(folder, capsys):
    out = folder / "start"
    start.main([str(folder / "model"), str(out), "--steps", "2", "--rows", "4", "--every", "3", "--rate", "1e-3"])
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("step 2: loss ")
    assert len(said) == 1 + len(start.short.kinds) + 1 + 1  # a line for each kind, one for all, one for the vocabulary
    assert said[-1] == f"{len(AutoTokenizer.from_pretrained(out))} tokens are left"
    before, after = (AutoModelForCausalLM.from_pretrained(at) for at in (folder / "model", out))
    assert not torch.equal(before.lm_head.weight, after.lm_head.weight)
    assert AutoTokenizer.from_pretrained(out)("1 + 2")["input_ids"]
