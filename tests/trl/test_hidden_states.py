"""Hidden states of the policy model as features of the prompts."""

import numpy as np
import pytest
import torch

import budgetalloc as ba
from budgetalloc.trl import hidden_states as module
from budgetalloc.trl.hidden_states import hidden_states

TEXTS = ["7", "123=", "", "9" * 20, "000=", "123="]


def test_a_text_has_the_state_of_its_last_token_whatever_shares_its_batch(build, monkeypatch):
    trainer = build()
    trainer.model.train()
    got = hidden_states(trainer, TEXTS)
    assert trainer.model.training
    for text, state in zip(TEXTS, got, strict=True):
        ids = trainer.processing_class(text or "0")["input_ids"]  # an empty text is read as one token, of id 0
        with torch.inference_mode():
            alone = trainer.model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states[-1][0, -1]
        assert state == pytest.approx(alone.numpy(), abs=1e-5)
    monkeypatch.setattr(module, "_TOKENS", 5)  # batches of one
    assert hidden_states(trainer, TEXTS) == pytest.approx(got, abs=1e-5)
    monkeypatch.setattr(module, "_LONGEST", 2)
    assert hidden_states(trainer, ["123=", "003="])[0] == pytest.approx(hidden_states(trainer, ["3="])[0], abs=1e-5)


def test_weights_that_are_divided_and_models_without_a_decoder_are_refused(build, monkeypatch):
    trainer = build()
    monkeypatch.setattr(type(trainer.model), "get_decoder", lambda model: None)
    with pytest.raises(ba.UnsupportedError, match="no decoder"):
        hidden_states(trainer, TEXTS)
    monkeypatch.setattr(trainer, "is_fsdp_enabled", True)
    with pytest.raises(ba.UnsupportedError, match="divided"):
        hidden_states(trainer, TEXTS)


def test_the_features_tell_what_the_states_tell(build):
    features = ba.Features.of_vectors(range(6), hidden_states(build(), TEXTS))
    got = features.of([1, 5, 3])
    assert got[0] == pytest.approx(got[1])  # the same text
    assert np.abs(got[0] - got[2]).max() > 1e-3
